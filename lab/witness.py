"""The slots that are promised and not filled, packed: the proof, kept up change by change, that they have a
place.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence

from lab.disturbances import Left
from lab.evenness import evenness_of
from lab.moorings import moorings_of
from lab.occupancy import Occupancy, add
from lab.packing import UNBOUNDED, Packing, Want, pack, room
from lab.promises import Promise
from qos.cluster.objects import Pod


class Witness:
    """How many slots of each promise are kept: filled, or with a place in the packing.

    `cap_percent`: no more than this share of all ready nodes is held, in any dimension.
    """

    def __init__(self, occupancy: Occupancy, cap_percent: int) -> None:
        self._occupancy = occupancy
        self._cap_percent = cap_percent
        self._promises: list[Promise] = []
        self._owner_of: dict[str, str] = {}
        self._room: dict[str, dict[str, int]] = {}
        self._packing = Packing({})
        self._filled: Counter[str] = Counter()

    @property
    def promises(self) -> Sequence[Promise]:
        """The promises, first come first when capacity is short."""
        return self._promises

    def owner_of(self, pod: Pod) -> str:
        """Key of the promise whose slot a pod fills, or "": that of a Reservation which it uses, if any."""
        owned = (one for one in self._promises if one.owned(pod))
        first = min(owned, key=lambda one: not one.reservation, default=None)
        return first.key if first is not None else ""

    def kept(self) -> dict[str, int]:
        """Slots of each promise that are filled or have a place."""
        return {p.key: min(p.slots, self._filled[p.key]) + self._packing.count(p.key) for p in self._promises}

    def wants(self, counts: Mapping[str, int]) -> list[Want]:
        """The promises that `counts` names, with this many slots kept in all: these must have a place."""
        return [self._want(p, counts[p.key] - self._filled[p.key]) for p in self._promises if p.key in counts]

    def free(self, *, cautious: bool) -> dict[str, dict[str, int]]:
        """What is free on each node."""
        return {name: self._occupancy.free(name, cautious=cautious) for name in self._occupancy.places}

    def left_on(self, name: str) -> Left:
        """What one node has left for slots; nothing where there is no such node."""
        if name not in self._occupancy.places:
            return Left()
        room = {key: rooms[name] for key, rooms in self._room.items() if name in rooms}
        return Left(self._occupancy.free(name, cautious=False), room)

    def rebuild(self, promises: Sequence[Promise]) -> None:
        """Start anew: policies or what they follow from have changed."""
        self._promises = list(promises)
        self._owner_of = {}
        self._filled = Counter()
        for pod in self._occupancy.pods.values():
            self._count_owner(pod)
        self._room = {p.key: self._rooms(p, self._occupancy.places) for p in self._promises}
        self._packing = Packing({})  # slots may have another size: where they lay says nothing
        self._repack()

    def nodes_changed(self, names: Iterable[str]) -> None:
        """Nodes came, went or changed: they may admit other slots than before."""
        names = set(names)
        for promise in self._promises:
            self._room[promise.key] = {n: r for n, r in self._room[promise.key].items() if n not in names}
            self._room[promise.key] |= self._rooms(promise, names & self._occupancy.places.keys())
        self._settle(names, grown=True)

    def pod_changed(self, pod: Pod, before: Pod | None, *, gone: bool) -> None:
        """A pod was bound, ended, or changed what it takes."""
        key = self._owner_of.pop(pod.uid, "")
        if key:
            self._filled[key] -= 1
        if not gone:
            self._count_owner(pod)
        names = {pod.node_name, pod.nominated_node_name}
        if before is not None:
            names |= {before.node_name, before.nominated_node_name}
        names &= self._occupancy.places.keys()
        for promise in self._promises:
            if promise.per_node is not None:
                self._room[promise.key] |= self._rooms(promise, names & self._room[promise.key].keys())
        self._settle(names, grown=before is not None and bool(before.node_name or before.nominated_node_name))

    def _count_owner(self, pod: Pod) -> None:
        if pod.node_name and not pod.terminal and (key := self.owner_of(pod)):
            self._owner_of[pod.uid] = key
            self._filled[key] += 1

    def _want(self, promise: Promise, count: int) -> Want:
        even = moorings_of(promise, self._occupancy) or evenness_of(promise, self._occupancy)
        return Want(promise.key, promise.vector, max(0, count), self._room[promise.key], even)

    def _rooms(self, promise: Promise, names: Iterable[str]) -> dict[str, int]:
        occupancy, limit = self._occupancy, promise.per_node
        eligible = (name for name in names if occupancy.eligible(promise, name))
        if limit is None:
            return dict.fromkeys(eligible, UNBOUNDED)
        return {name: max(0, limit - occupancy.owners_on(name, promise)) for name in eligible}

    def _needed(self) -> dict[str, int]:
        """Slots to place for each promise, under the installation-wide cap."""
        budget: dict[str, int] = {}
        for place in self._occupancy.places.values():
            if place.node.ready:
                add(budget, place.node.allocatable, 1)
        budget = {name: amount * self._cap_percent // 100 for name, amount in budget.items()}
        needed = {}
        for promise in self._promises:
            filled = min(promise.slots, self._filled[promise.key])
            held = min(promise.slots - filled, room(budget, promise.vector))
            add(budget, {r: v * held for r, v in promise.vector.items()}, -1)
            needed[promise.key] = held
        return needed

    def _settle(self, names: set[str], *, grown: bool) -> None:
        """Bring the packing in line after some nodes changed: drop what no longer fits, place what is
        missing.
        """
        needed = self._needed()
        for name in names:
            self._measure(name)
        lacking = self._trim(needed, names)
        for name in names:
            lacking |= self._unload(name)
        lacking |= self._even_out(needed)
        if not (lacking or grown):
            return
        for promise in self._promises:
            short = needed[promise.key] - self._packing.count(promise.key)
            if short > 0 and self._packing.place(self._want(promise, needed[promise.key]), short) < short:
                self._repack()
                return

    def _measure(self, name: str) -> None:
        """Work out anew what a node has free beside its slots."""
        if name not in self._occupancy.places:
            self._packing.free.pop(name, None)
            return
        left = self._occupancy.free(name, cautious=True)
        for promise in self._promises:
            here = self._packing.held.get(promise.key, {}).get(name, 0)
            add(left, {r: v * here for r, v in promise.vector.items()}, -1)
        self._packing.free[name] = left

    def _trim(self, needed: Mapping[str, int], names: set[str]) -> bool:
        """Drop slots that are filled by now, those on the changed nodes first. True: some promise needs
        more.
        """
        lacking = False
        for promise in self._promises:
            extra = self._packing.count(promise.key) - needed[promise.key]
            lacking |= extra < 0
            held = self._packing.held.get(promise.key, {})
            for name in sorted(held, key=lambda n: (n not in names, n)) if extra > 0 else ():
                count = min(extra, held[name])
                if count > 0:
                    self._packing.drop(self._want(promise, 0), name, count)
                    extra -= count
        return lacking

    def _unload(self, name: str) -> bool:
        """Drop slots from a node that cannot keep them, the last in rank first. True: some were dropped."""
        dropped = False
        for promise in reversed(self._promises):
            here = self._packing.held.get(promise.key, {}).get(name, 0)
            limit = self._room[promise.key].get(name, 0)
            while here > 0 and (here > limit or self._overloaded(name, promise)):
                self._packing.drop(self._want(promise, 0), name, 1)
                here -= 1
                dropped = True
        return dropped

    def _even_out(self, needed: Mapping[str, int]) -> bool:
        """Where slots may lie by spread constraints changes with any pod or node: place them anew. True: some
        promise needs more.
        """
        lacking = False
        for promise in self._promises:
            if promise.moored or any(one.required for one in promise.spread):
                self._packing.place(self._want(promise, 0), 0)
                lacking |= self._packing.count(promise.key) < needed[promise.key]
        return lacking

    def _overloaded(self, name: str, promise: Promise) -> bool:
        left = self._packing.free.get(name)
        return left is None or any(left.get(r, 0) < 0 for r, v in promise.vector.items() if v > 0)

    def _repack(self) -> None:
        """Pack from nothing; taken when it keeps more, the first in rank deciding."""
        needed = self._needed()
        wants = [self._want(p, needed[p.key]) for p in self._promises]
        packed = pack(self.free(cautious=True), wants)
        order = [p.key for p in self._promises]
        stale = self._packing.free.keys() != packed.free.keys()
        if stale or [packed.count(k) for k in order] > [self._packing.count(k) for k in order]:
            self._packing = packed


class Window:
    """The least value of the last `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._values: deque[tuple[float, int]] = deque([(float("-inf"), 0)])

    def push(self, at: float, value: int) -> None:
        """The value from `at` on."""
        if self._values[-1][1] != value:
            self._values.append((at, value))

    def least(self, at: float) -> int:
        """The least value in force from `at` - seconds to `at`."""
        while len(self._values) > 1 and self._values[1][0] <= at - self._seconds:
            self._values.popleft()
        return min(value for _, value in self._values)
