"""An HTB tree: root, host, bands, a shared leaf for each band, and the classes of single pods.

HTB serves first who is below its own rate, then lends what is left by priority, and among equals in turn, by
quantum. So a floor is a class's rate, and a band's minimum is what its rate has beyond its floors: all pods
of the band share that in turn, the shared leaf with the quanta of all pods that it serves. So a pod that is
given a class of its own takes no more from the others than it did before, as long as the leaf serves at most
64 (docs/limits.md).
Source: net/sched/sch_htb.c; that only leaves' priorities count is there too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from qos.bandwidth import Band, BytesPerSecond
from qos.network.bands import TRICKLE, Division
from qos.network.minors import BANDS, HOST, ROOT, SHARED
from qos.network.wanted import HtbClass, HtbTree, Tbf

_TIMER_HZ: Final = 250
"""A burst covers what a class may send between two ticks of a common timer; high resolution needs less."""
_EXACT_HZ: Final = 20
_FRAME: Final = 1514
_LARGEST_FRAME: Final = 9216
_GSO: Final = 65536
"""The largest packet before it is cut into segments."""
_QUANTUM: Final = 70_000
"""A pod's turn: no less than a GSO packet with the headers of its segments. TCP makes them so large on short
ways, however slow the link; HTB sends one packet a turn at least, so smaller turns would all be alike.
"""
_MOST_TURNS: Final = 64
"""Of a shared leaf: else the others would wait too long for theirs."""
_BUCKET_QUEUE_HZ: Final = 20
"""What waits for a bucket's tokens: a twentieth of a second."""


@dataclass(frozen=True, slots=True)
class Member:
    """A pod with a class of its own: floor granted, limit; bytes a second."""

    minor: int
    band: Band
    floor: BytesPerSecond
    limit: BytesPerSecond | None


def burst(rate: BytesPerSecond) -> int:
    """What HTB needs to reach a rate, bytes; at most a twentieth of a second, so that the first is exact.

    No whole GSO packet: HTB lets a class go into debt for a packet larger than its burst.
    """
    return max(rate // _TIMER_HZ, min(2 * _FRAME, rate // _EXACT_HZ), 1)


def banded(
    interface: int,
    division: Division,
    members: Sequence[Member],
    shared: Mapping[Band, int],
    leaf: str,
    *,
    limits_alone: bool = False,
) -> HtbTree:
    """The tree of a link that is divided. `shared`: how many pods each band's shared leaf serves.

    L0 is given what the other bands' minima and floors leave of the link, as terway-qos has it.
    `limits_alone`: nobody knows how fast the link is, so no band goes before another: minima of a link that
    is far too fast would protect nobody.
    """
    total = division.total
    rates = {band: division.minima[band] for band in Band}
    for member in members:
        rates[member.band] += member.floor
    rates[Band.L0] = min(total - division.host - rates[Band.L1] - rates[Band.L2], division.maxima[Band.L0])
    classes = [
        _class(ROOT, 0, Band.L0, total, total, _QUANTUM, ""),
        _class(HOST, ROOT, Band.L0, division.host, total, _QUANTUM, leaf),
    ]
    for band in Band:
        ceiling = division.maxima[band]
        turns = max(1, min(shared.get(band, 0), _MOST_TURNS))
        classes += (
            _class(BANDS[band], ROOT, band, rates[band], ceiling, _QUANTUM, ""),
            _class(SHARED[band], BANDS[band], band, TRICKLE, ceiling, _QUANTUM * turns, leaf),
        )
    for member in members:
        ceiling = division.maxima[member.band]
        ceiling = ceiling if member.limit is None else min(member.limit, ceiling)
        rate = min(max(member.floor, TRICKLE), ceiling)
        classes.append(_class(member.minor, BANDS[member.band], member.band, rate, ceiling, _QUANTUM, leaf))
    if limits_alone:
        classes = [replace(one, priority=0) for one in classes]
    return HtbTree(interface, HOST, tuple(sorted(classes, key=lambda one: one.minor)))


def bucket(interface: int, rate: BytesPerSecond) -> Tbf:
    """What a pod receives, limited. A packet larger than the burst is cut, or dropped where it cannot be."""
    queue = max(rate // _BUCKET_QUEUE_HZ, _GSO)
    return Tbf(interface, rate, max(rate // _TIMER_HZ, _LARGEST_FRAME), queue)


def _class(
    minor: int, parent: int, band: Band, rate: BytesPerSecond, ceil: BytesPerSecond, quantum: int, leaf: str
) -> HtbClass:
    return HtbClass(minor, parent, int(band), rate, ceil, quantum, burst(rate), leaf, ceil_burst=burst(ceil))
