"""Why floors and limits of pods' networks are not kept, pod by pod. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Final, NamedTuple

from agent.network.shaping import Shaped
from qos.bandwidth import BITS, Bounds
from qos.network.grants import bounds_of
from qos.network.wanted import Direction, Link, PodTraffic, Shortfall, Unkept, UnkeptLimit, Wanted
from qos.quantity import render

FOREIGN: Final = "ForeignQdisc"
"""Reason: somebody else's qdisc is where ours would be."""
NOT_SHAPED: Final = "ShapingFailed"
"""Reason: the kernel refused something."""
LINK_UNKNOWN: Final = "the speed of the node's link is not known"
_WHY: Final[Mapping[Unkept, str]] = {
    Unkept.LINK_UNKNOWN: LINK_UNKNOWN,
    Unkept.LINK_EXCEEDED: "the floors here are more than the node's link has",
    Unkept.BAND_EXCEEDED: "the floors of its band are more than the band may have",
    Unkept.RECEIVING_NOT_SHAPED: "what this node receives is not shaped",
    Unkept.HOST_NETWORK: "a pod with the host's network shares its interface with the host",
    Unkept.NO_CLASS_FREE: "all classes of its band are taken",
    Unkept.NOT_IDENTIFIED: "its packets are not told from others' yet",
    Unkept.LIMITED: "its own limit is below its floor, and holds",
}


class Problem(NamedTuple):
    """A floor, or a limit, of one direction that is not kept. reason: one word, for machines."""

    direction: Direction
    floor: bool
    reason: str
    text: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.text}"


def unkept(
    pods: Iterable[PodTraffic], wanted: Wanted, shaped: Shaped, link: Link | None
) -> dict[str, tuple[Problem, ...]]:
    """By uid, of the pods of which something is not kept; what was planned for them comes first."""
    found: defaultdict[str, list[Problem]] = defaultdict(list)
    for short in wanted.shortfalls:
        found[short.uid].append(_short(short))
    for one in wanted.unkept_limits:
        found[one.uid].append(_limit(one))
    planned, policed = ({(one.interface, one.direction) for one in all_of}
                        for all_of in (wanted.policers, shaped.policed))  # fmt: skip
    for pod in pods:
        for direction in Direction:
            at = (pod.interface, direction)
            kept = _Policer.WORKS if at in policed else _Policer.FAILS if at in planned else _Policer.NONE
            found[pod.uid] += _unshaped(pod, direction, shaped, link, kept)
    return {uid: tuple(problems) for uid, problems in found.items() if problems}


class _Policer(Enum):
    """Of one direction of a pod. FAILS: planned and not in use, which is no fault where a tree does it."""

    NONE = "none"
    FAILS = "fails"
    WORKS = "works"


def _unshaped(
    pod: PodTraffic, direction: Direction, shaped: Shaped, link: Link | None, policer: _Policer
) -> Iterator[Problem]:
    """What was planned, and is not so in the kernel."""
    bounds = bounds_of(pod, direction)
    for floor in _stated(bounds):
        if policer is _Policer.WORKS and not floor:
            continue
        planned = policer is _Policer.FAILS and not floor
        interface = _where(pod, direction, link, floor=floor) or (pod.interface if planned else 0)
        if not interface:
            continue
        classified = interface != pod.interface or planned
        why = shaped.unshaped.get(interface, shaped.unclassified if classified else "")
        if planned and interface == pod.interface:
            why = shaped.unpoliced.get(interface, why)
        if why:
            reason = FOREIGN if interface in shaped.foreign else NOT_SHAPED
            yield Problem(direction, floor, reason, f"its {direction.value} is not shaped: {why}")


def _stated(bounds: Bounds) -> Iterator[bool]:
    if bounds.floor:
        yield True
    if bounds.limit is not None:
        yield False


def _where(pod: PodTraffic, direction: Direction, link: Link | None, *, floor: bool) -> int:
    """The interface at which it is kept, 0: the plan has said already that it is not."""
    if direction is Direction.INGRESS and not floor:
        return pod.interface
    if link is None:
        return 0
    return link.index if direction is Direction.EGRESS else link.ifb


def _short(short: Shortfall) -> Problem:
    missing = render("", short.missing * BITS)
    text = f"{missing} bits/s of the floor of its {short.direction.value} are not kept: {_WHY[short.reason]}"
    return Problem(short.direction, True, short.reason.value, text)


def _limit(one: UnkeptLimit) -> Problem:
    text = f"the limit of its {one.direction.value} is not kept: {_WHY[one.reason]}"
    return Problem(one.direction, False, one.reason.value, text)
