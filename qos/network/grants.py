"""Which floors are kept: of the same pods always the same, and none is taken back for one that comes later.

What a pod was granted in the plan before, it keeps. Of what is left, pods are given theirs by priority, then
by uid; the last may be given a part. Nobody is given what a band's minimum has (qos.network.bands).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from qos.bandwidth import Band, Bounds, BytesPerSecond
from qos.network.bands import Division
from qos.network.wanted import Direction, PodTraffic, Shortfall, Standing, Unkept


def in_order(pods: Iterable[PodTraffic]) -> list[PodTraffic]:
    """Who is served first: the higher priority, then the lower uid."""
    return sorted(pods, key=lambda pod: (-pod.priority, pod.uid))


def bounds_of(pod: PodTraffic, direction: Direction) -> Bounds:
    """One direction of a pod."""
    return pod.egress if direction is Direction.EGRESS else pod.ingress


@dataclass(slots=True)
class _Room:
    """What is left to grant: of the links, and of each band."""

    together: BytesPerSecond
    bands: dict[Band, BytesPerSecond]

    def take(self, band: Band, amount: BytesPerSecond) -> BytesPerSecond:
        """As much of the amount as there is."""
        taken = max(min(amount, self.together, self.bands[band]), 0)
        self.together -= taken
        self.bands[band] -= taken
        return taken


@dataclass(frozen=True, slots=True)
class Grants:
    """The granted floors of one direction, bytes a second by uid, each above 0; and what is not granted."""

    amounts: Mapping[str, BytesPerSecond]
    shortfalls: tuple[Shortfall, ...]


def grant(
    pods: Sequence[PodTraffic],
    direction: Direction,
    divisions: Sequence[Division],
    why_none: Unkept | None,
    before: Mapping[str, Standing],
) -> Grants:
    """The floors of one direction. `pods`: in order; `divisions`: of all links, the least of them counts.

    `why_none`: why this direction is promised to nobody at all; None: it is.
    """
    asking = [pod for pod in pods if bounds_of(pod, direction).floor > 0]
    if why_none or not divisions:
        reason = why_none or Unkept.LINK_UNKNOWN
        return Grants({}, tuple(_short(pod, direction, 0, reason) for pod in asking))
    room = _Room(
        max(min(one.promisable for one in divisions), 0),
        {band: min(one.room(band) for one in divisions) for band in Band},
    )
    able = [pod for pod in asking if direction is Direction.EGRESS or not on_host_network(pod)]
    granted = {}
    for pod in able:
        stood = _granted_before(before.get(pod.uid), direction)
        granted[pod.uid] = room.take(pod.band, min(_keepable(pod, direction), stood))
    for pod in able:
        rest = _keepable(pod, direction) - granted[pod.uid]
        granted[pod.uid] += room.take(pod.band, rest)
    amounts = {uid: amount for uid, amount in granted.items() if amount}
    return Grants(amounts, tuple(_shortfalls(asking, direction, amounts, room)))


def on_host_network(pod: PodTraffic) -> bool:
    """True for a pod that has no address of its own, whose sockets are known by their cgroup."""
    return bool(pod.cgroup_ids) and not pod.addresses


def _keepable(pod: PodTraffic, direction: Direction) -> BytesPerSecond:
    """The floor, as far as the pod's own limit lets it be used."""
    bounds = bounds_of(pod, direction)
    return bounds.floor if bounds.limit is None else min(bounds.floor, bounds.limit)


def _granted_before(standing: Standing | None, direction: Direction) -> BytesPerSecond:
    if standing is None:
        return 0
    return standing.egress if direction is Direction.EGRESS else standing.ingress


def _shortfalls(
    asking: Sequence[PodTraffic], direction: Direction, amounts: Mapping[str, BytesPerSecond], room: _Room
) -> Iterator[Shortfall]:
    for pod in asking:
        granted = amounts.get(pod.uid, 0)
        floor, keepable = bounds_of(pod, direction).floor, _keepable(pod, direction)
        if direction is Direction.INGRESS and on_host_network(pod):
            yield _short(pod, direction, 0, Unkept.HOST_NETWORK)
        elif granted < keepable:
            full = room.together > 0
            yield _short(pod, direction, granted, Unkept.BAND_EXCEEDED if full else Unkept.LINK_EXCEEDED)
        elif granted < floor:
            yield _short(pod, direction, granted, Unkept.LIMITED)


def _short(pod: PodTraffic, direction: Direction, granted: BytesPerSecond, reason: Unkept) -> Shortfall:
    return Shortfall(pod.uid, direction, bounds_of(pod, direction).floor - granted, reason)
