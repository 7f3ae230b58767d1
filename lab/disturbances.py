"""What may excuse a bind: capacity that, in the last seconds, went to pods to which slots yield, or was lost.

Decisions are written in another order than they are taken. So a bind that leaves fewer slots kept is judged
once more as if the disturbances of the last `grace` seconds had not been. Only what they took on the nodes
they touched is given back: what breaks a floor beside that is no less broken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from lab.occupancy import Occupancy, add
from lab.packing import Want
from lab.promises import Promise
from qos.cluster.objects import Pod, Resources

Free: TypeAlias = dict[str, dict[str, int]]
"""Node -> what is free there."""


@dataclass(frozen=True, slots=True)
class Left:
    """What a node has left for slots. `room`: promise -> how many it admits there, capacity aside."""

    free: Resources = field(default_factory=dict)
    room: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Taken:
    """What one disturbance took on a node: a pod its requests, or a change of the node what it had left."""

    at: float
    node: str
    left: Left
    pod: Pod | None = None
    bypasses: bool = False

    def excuses(self, promise: Promise) -> bool:
        """Whether slots of a promise had to yield to it."""
        return self.pod is None or self.bypasses or promise.yields_to(self.pod)


class Disturbances:
    """The disturbances of the last `grace` seconds."""

    def __init__(self, occupancy: Occupancy, grace: float) -> None:
        self._occupancy = occupancy
        self._grace = grace
        self._recent: deque[_Taken] = deque()

    def pod_bound(self, at: float, pod: Pod, *, bypasses: bool) -> None:
        """A pod came to its node; whom it disturbs depends on its priority, unless it bypassed."""
        self._recent.append(_Taken(at, pod.node_name, Left(pod.requests), pod, bypasses))

    def node_changed(self, at: float, name: str, before: Left, after: Left) -> None:
        """A node was lost, shrank or admits less."""
        lost = {r: v - after.free.get(r, 0) for r, v in before.free.items() if v > after.free.get(r, 0)}
        room = {key: n for key, n in before.room.items() if n > after.room.get(key, 0)}
        if lost or room:
            self._recent.append(_Taken(at, name, Left(lost, room)))

    def without(
        self, now: float, promise: Promise, free: Free, wants: Sequence[Want]
    ) -> tuple[Free, list[Want]]:
        """What would be free, and where slots could lie, had nothing disturbed this promise."""
        free, wants = {name: dict(left) for name, left in free.items()}, list(wants)
        for taken in self._since(now):
            if taken.excuses(promise):
                add(free.setdefault(taken.node, {}), taken.left.free, 1)
                wants = [_wider(want, taken) for want in wants]
        return free, wants

    def bypassing(self, now: float, name: str) -> dict[str, int]:
        """What pods that bypassed have taken on a node."""
        total: dict[str, int] = {}
        for taken in self._since(now):
            if taken.node == name and taken.bypasses:
                add(total, taken.left.free, 1)
        return total

    def _since(self, now: float) -> Iterator[_Taken]:
        """The disturbances that are still recent, and whose pods still are where they went."""
        while self._recent and now - self._recent[0].at > self._grace:
            self._recent.popleft()
        for taken in self._recent:
            place = self._occupancy.places.get(taken.node)
            if taken.pod is None or (place is not None and taken.pod.uid in place.pods):
                yield taken


def _wider(want: Want, taken: _Taken) -> Want:
    """A want that may also lie where it might before; a node that is not known holds nothing without it.

    In which spread domain it was is not known any more: such a want is judged by capacity alone.
    """
    if want.key not in taken.left.room:
        return want
    return replace(want, room={**want.room, taken.node: taken.left.room[want.key]}, even=None)
