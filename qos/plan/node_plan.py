"""The plans of all pods of a node, made together: one solution for all that share a cgroup. Pure.

Weights that are solved one after the other creep, and depend on the order; so do claims of memory that are
added to what is written already. Here both follow from what others wrote alone: the same node comes to the
same settings, whatever was applied before, and a floor that leaves lets the weights of the others fall back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction

from qos.plan import layout, observed
from qos.plan.assumed import Machine
from qos.plan.before import Found, shares
from qos.plan.container_plan import ContainerPlan, container_plan
from qos.plan.cpu_list import cpu_count
from qos.plan.hierarchy import MOST_TIMES, load_of, with_unpromised
from qos.plan.node import Level, NodeFacts, Rival
from qos.plan.placed_pod import NodeTree, PlacedPod, node_facts, parent_of
from qos.plan.protection import whole_pages
from qos.plan.rivals import Beside, Children
from qos.plan.siblings import WHOLE, Capacity, Member, Siblings
from qos.plan.weights import LEGACY, UNIFIED
from qos.pods.containers import request


class PlannedNode:
    """A node's pods with what each weighs and claims beside the others; places: by uid.

    Of the cgroups that pods are in (kubepods, a QoS class's: `inner`) the weights are kubelet's and stay. It
    is ready when solve() has come to its end.
    """

    def __init__(self, tree: NodeTree, machine: Machine, places: Mapping[str, PlacedPod]) -> None:
        self.places = dict(places)
        self._tree, self._machine = tree, machine
        self._scale = UNIFIED if machine.unified else LEGACY
        self._pods = {place.level.path: place for place in places.values()}
        parents = dict.fromkeys(place.parent for place in places.values())
        inner = dict.fromkeys(path for parent in parents for path in _down_to(parent))
        self._inner = {path: self._shared(path) for path in inner}
        self._inside: dict[str, list[str]] = {path: self._children_of(path) for path in ("/", *self._inner)}
        self._as_rivals: dict[str, Rival] = {}
        self._needs: dict[str, int] = {}
        self._index: dict[str, int] = {}
        self._siblings: dict[str, Children] = {}
        self._levels: dict[str, tuple[Level, ...]] = {}
        self._facts: dict[str, NodeFacts] = {}
        self._weights: dict[str, int] = {}
        self._guards: dict[str, int] = {}
        self._loads: dict[str, int] = {}
        self._rates: dict[str, Fraction] = {}
        self._strange = {*tree.pods.values()} - {*self._pods}

    @classmethod
    def solved(cls, tree: NodeTree, machine: Machine, places: Mapping[str, PlacedPod]) -> PlannedNode:
        """A node that is ready to plan."""
        node = cls(tree, machine, places)
        for _ in node.solve():
            pass
        return node

    def solve(self) -> Iterator[None]:
        """Find what each pod weighs, one cgroup a step; nothing can be planned before the last step."""
        by_depth = sorted(self._inside, key=lambda path: (path.count("/") if path != "/" else 0, path))
        before = self._before(by_depth)
        yield
        for path in reversed(by_depth[1:]):
            self._guard(path, before)
            self._sum_up(path)
            yield
        for path in by_depth:
            self._solve(path)
            yield

    def plan(self, uid: str) -> tuple[ContainerPlan, ...]:
        """The plans of a pod's containers."""
        place = self.places[uid]
        level = self._beside(place, self._weights[place.level.path])
        return tuple(self._plans(place, level, together=True))

    def plan_beside(self, place: PlacedPod) -> tuple[ContainerPlan, ...]:
        """The plans of one pod's containers as it is there now, beside all others as they are planned."""
        uid, path = place.decided.pod.uid, place.level.path
        if place.parent not in self._levels:
            return PlannedNode.solved(self._tree, self._machine, {**self.places, uid: place}).plan(uid)
        before = self.places.get(uid)
        same = before is not None and (before.contest, before.level.path) == (place.contest, path)
        level = self._beside(place, self._weights[path] if same else 0)
        return tuple(self._plans(place, level, together=same))

    def _plans(self, place: PlacedPod, level: Level, *, together: bool) -> Iterator[ContainerPlan]:
        above = self._levels[place.parent]
        if place.parent not in self._facts:
            self._facts[place.parent] = node_facts(self._tree, self._machine, place.parent)
        usual = self._facts[place.parent]
        for one in place.decided.pod.containers:
            levels = (*above, level, place.inside[one.name])
            facts = replace(usual, levels=levels, planned_together=together)
            made = container_plan(place.decided, one, facts, place.floors)
            yield made
            if not level.planned_weight:  # what the pod weighs is the same for all its containers
                level = replace(level, planned_weight=self._weight_in(made))

    def _weight_in(self, made: ContainerPlan) -> int:
        found = (one.value for one in made.plan.settings if (one.level, one.file) == (1, self._scale.file))
        return int(next(found, 0))

    def _beside(self, place: PlacedPod, weight: int) -> Level:
        rivals = Beside(self._siblings[place.parent], self._index.get(place.level.path))
        return replace(place.level, rivals=rivals, planned_weight=weight, loose=self._loose(place.parent))

    def _shared(self, path: str) -> Level:
        seen = self._tree.groups.get(path)
        if seen is None:
            return Level(path, self._machine.default_weight, assumed=True)
        return observed.level(Level(path, 0), seen.values, (), self._machine.memory)

    def _children_of(self, path: str) -> list[str]:
        """The children of this cgroup: those that exist, and those that will."""
        seen = self._tree.groups.get(path)
        names = seen.children if seen else ()
        found = dict.fromkeys(f"{path.rstrip('/')}/{name}" for name in names)
        coming = [one for one in (*self._inner, *self._pods) if parent_of(one) == path]
        return list(found | dict.fromkeys(coming))

    def _loose(self, path: str) -> int:
        seen = self._tree.groups.get(path)
        return seen.loose if seen else 0

    def _rivals(self, path: str) -> Iterable[Rival]:
        """Its children as they are before any weight is raised."""
        for child in self._inside[path]:
            if child not in self._as_rivals:
                self._as_rivals[child] = self._rival(child)
            yield self._as_rivals[child]

    def _rival(self, path: str) -> Rival:
        if path in self._pods:
            place = self._pods[path]
            return place.rival(place.contest.base)
        seen = self._tree.groups.get(path)
        return (
            observed.rival(seen.values, self._machine.memory) if seen else Rival(self._machine.default_weight)
        )

    def _before(self, by_depth: Iterable[str]) -> Mapping[str, Fraction]:
        """What each cgroup gets before any weight is changed, in millicores."""
        found: dict[str, Found] = {}
        for path in by_depth:
            for child, rival in zip(self._inside[path], self._rivals(path), strict=True):
                level = self._level_found(child)
                found[child] = Found(
                    load_of((rival if level is None else Rival(level.weight, level.idle),), self._scale),
                    None if level is None else level.cpu_quota,
                )
        loose = {
            path: [Found(load_of((one,), self._scale)) for one in self._threads(path)] for path in by_depth
        }
        inside = {path: self._inside[path] for path in by_depth}
        self._loads = {child: one.load for child, one in found.items()}
        return shares(inside, found, loose, {path: self._cpus(path) for path in by_depth})

    def _level_found(self, path: str) -> Level | None:
        if path in self._pods:
            return self._pods[path].level
        return self._inner.get(path)

    def _guard(self, path: str, before: Mapping[str, Fraction]) -> None:
        """What the children of an inner cgroup must keep, and what must reach it for that, in microcores."""
        rate = Fraction()
        for child in self._inside[path]:
            if child not in self._guards:
                self._guards[child] = min(self._requested(child) * WHOLE, int(before[child] * WHOLE))
            rate = max(rate, Fraction(self._guards[child], max(self._loads[child], 1)))
        loose = load_of(self._threads(path), self._scale)
        self._rates[path] = rate
        self._guards[path] = int(rate * (sum(self._loads[child] for child in self._inside[path]) + loose))

    def _requested(self, path: str) -> int:
        """What the pod there requests, in millicores; of a pod that nobody knows as its weight says."""
        place = self._pods.get(path)
        if place is None:
            seen = self._tree.groups.get(path)
            known = seen is not None and path in self._strange
            return layout.requested(self._rival(path).weight, self._machine.unified) if known else 0
        if place.contest.idle or self._scale.load(place.contest.base) < self._loads[path]:
            return 0  # its class asks for less
        return request(place.decided.pod)[0]

    def _threads(self, path: str) -> tuple[Rival, ...]:
        return observed.loose_rivals(self._loose(path), self._cpus("/") // 1000, self._machine.unified)

    def _sum_up(self, path: str) -> None:
        """What all below an inner cgroup are promised, and what must reach it for that."""
        level, rivals = self._inner[path], list(self._rivals(path))
        needs = [self._need(child) for child in self._inside[path]]
        loads = [load_of((one,), self._scale) for one in rivals]
        unpromised = sum(load for load, need in zip(loads, needs, strict=True) if not need)
        largest = max(needs, default=0)
        need = with_unpromised(sum(needs), largest, unpromised, self._scale)
        self._needs[path] = max(need, self._with_guards(path, needs)) if need else 0
        page = self._tree.page
        least = sum(whole_pages(one.memory_min, page) for one in rivals)
        low = sum(whole_pages(one.memory_low, page) for one in rivals)
        ours = self._protects(path)
        self._as_rivals[path] = Rival(
            level.weight,
            level.idle,
            sum(one.cpu_floor for one in rivals),
            max(level.memory_min, least) if ours else level.memory_min,
            max(level.memory_low, low) if ours else level.memory_low,
            cpu_guard=self._guards[path] // WHOLE,
        )

    def _with_guards(self, path: str, needs: Iterable[int]) -> int:
        """What must reach an inner cgroup for all floors in it when all keep what they must, too."""
        rate, loose = self._rates[path], load_of(self._threads(path), self._scale)
        found = sum(
            max(int(rate * self._loads[child]) + 1, need * WHOLE, self._guards[child])
            for child, need in zip(self._inside[path], needs, strict=True)
        )
        return -(-(found + int(rate * loose)) // WHOLE)

    def _need(self, path: str) -> int:
        return self._pods[path].contest.need if path in self._pods else self._needs.get(path, 0)

    def _protects(self, path: str) -> bool:
        """Whether memory is planned to be protected for a pod below."""
        return any(
            place.protected and f"{place.level.path}/".startswith(f"{path}/") for place in self._pods.values()
        )

    def _solve(self, path: str) -> None:
        """The weights of the pods in a cgroup, whose own are known."""
        above = self._levels[path] = self._levels_to(path)
        children, rivals = self._inside[path], list(self._rivals(path))
        loose = self._threads(path)
        capacity, most = self._reaching(path, above), []
        pods, fixed, unpromised = [], [], load_of(loose, self._scale)
        for child, rival in zip(children, rivals, strict=True):
            one = self._member(child, rival)
            if child in self._pods and (one.floor or one.wish):
                pods.append((child, one))
            elif one.floor:
                fixed.append(one)
            else:
                unpromised += one.load
                if one.guard:
                    most.append(capacity.most_total(one.load, one.guard))
        members, bound = tuple(one for _, one in pods), min(most, default=None)
        shared = Siblings(capacity, self._scale, members, unpromised, tuple(fixed), bound)
        raised = dict(zip((child for child, _ in pods), shared.together(MOST_TIMES), strict=True))
        for index, child in enumerate(children):
            self._index[child] = index
            if child in self._pods:
                base = rivals[index].weight
                weight = self._scale.most(raised[child]) if child in raised else base
                self._weights[child] = weight
                guard = self._guards.get(child, 0) // WHOLE
                rivals[index] = replace(rivals[index], weight=weight, cpu_guard=guard)
        self._siblings[path] = Children((*rivals, *loose))

    def _member(self, path: str, rival: Rival) -> Member:
        """A child as it is before any weight is raised."""
        load, guard = load_of((rival,), self._scale), self._guards.get(path, 0)
        found = self._loads[path]
        wished = path in self._pods and not rival.idle and load > found
        return (
            Member(found, self._need(path), guard, load) if wished else Member(load, self._need(path), guard)
        )

    def _levels_to(self, path: str) -> tuple[Level, ...]:
        if path == "/":
            return ()
        parent = parent_of(path)
        rivals = self._siblings[parent].beside(self._index[path])
        own = replace(self._inner[path], rivals=rivals, loose=self._loose(parent))
        return (*self._levels[parent], own)

    def _reaching(self, path: str, above: tuple[Level, ...]) -> Capacity:
        """What reaches a cgroup when all beside it and above want what they can get."""
        capacity = Capacity(self._cpus(path))
        for level in above:
            own = load_of((Rival(level.weight, level.idle),), self._scale)
            capacity = capacity.shared(own, load_of(level.rivals, self._scale)).limited(level.cpu_quota)
        return capacity

    def _cpus(self, path: str) -> int:
        """Millicores that may be used below it."""
        shared = self._tree.cpus.get(path)
        return 1000 * cpu_count(shared) if shared else self._machine.cpus


def _down_to(path: str) -> Iterator[str]:
    """The cgroups from the root's child to this one."""
    parts = path.strip("/").split("/") if path != "/" else []
    for end in range(1, len(parts) + 1):
        yield "/" + "/".join(parts[:end])
