"""Whether pods whose packets waited had their floors: two looks at their classes, and glances between. Pure.

A queue that is not empty now and was not a second ago may have been empty in between. So a pod that was below
its floor when packets waited is looked at more often for the next interval, and only that one is judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from agent.deficit import judge
from agent.deficit.judge import NOTHING, Judged
from agent.network.counting import Counts
from agent.network.records import Counters
from agent.network.shaper import Round
from qos.bandwidth import BytesPerSecond
from qos.network.grants import bounds_of
from qos.network.wanted import Direction


class Way(NamedTuple):
    """One direction of a pod."""

    uid: str
    direction: Direction


class Place(NamedTuple):
    """Where a floor is kept: the pod's class 10ce:minor at an interface."""

    interface: int
    minor: int
    floor: BytesPerSecond


@dataclass(slots=True)
class _Interval:
    """What is going on since `at`. waited: whether packets waited at each look."""

    place: Place
    at: float
    bytes: int
    waited: bool


class Sending:
    """The floors of one node, looked at again and again. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._going: dict[Way, _Interval] = {}

    @property
    def suspected(self) -> bool:
        """Whether somebody may be below his floor, and has to be glanced at."""
        return any(one.waited for one in self._going.values())

    def glance(self, counts: Counts) -> None:
        """A look between."""
        for one in self._going.values():
            now = _class(one.place, counts)
            one.waited &= now is not None and now.backlog > 0

    def judged(self, at: float, places: Mapping[Way, Place], counts: Counts) -> dict[Way, Judged]:
        """The interval that ends now, of those that wanted their floor; the next begins."""
        found, going = {}, {}
        for way, place in places.items():
            now = _class(place, counts)
            if now is None:
                continue
            one, waits = NOTHING, now.backlog > 0
            before = self._going.get(way)
            if before is not None and before.place == place:
                sent, waited = now.bytes - before.bytes, before.waited and waits
                one = judge.network(sent, at - before.at, place.floor, waited=waited)
            if one.wanted:
                found[way] = one
            suspected = waits and (one.deficit > 0 or not one.wanted)
            going[way] = _Interval(place, at, now.bytes, suspected)
        self._going = going
        return found


def _class(place: Place, counts: Counts) -> Counters | None:
    return counts.classes.get(place.interface, {}).get(place.minor)


def places(last: Round | None) -> dict[Way, Place]:
    """Of all pods with a floor and a class of their own, as the last round made them."""
    return dict(_places(last)) if last is not None and last.link is not None else {}


def _places(last: Round) -> Iterator[tuple[Way, Place]]:
    assert last.link is not None
    interfaces = {Direction.EGRESS: last.link.index, Direction.INGRESS: last.link.ifb}
    for uid, granted in last.wanted.standing.items():
        pod = last.pods.get(uid)
        for direction, interface in interfaces.items() if pod else ():
            assert pod is not None
            if interface and (floor := bounds_of(pod, direction).floor):
                yield Way(uid, direction), Place(interface, granted.minor, floor)
