"""The CPU floor along the hierarchy: which weights keep it, and by how much it cannot be kept. Pure.

The worst case is counted: every sibling at every level wants all the CPU it can get. Then a cgroup receives,
of what its parent receives, its load against that of all its siblings. Quotas of siblings are ignored: they
could only leave more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from qos.keys import CPU
from qos.plan.node import Level, Rival
from qos.plan.rivals import Beside, largest, total
from qos.plan.settings import Shortfall
from qos.plan.siblings import WHOLE, Capacity, Member, Siblings
from qos.plan.weights import IDLE_LOAD, Scale
from qos.quantity import render

MOST_TIMES: Final = 49
"""Siblings with a floor together weigh at most this many times those without one: the parent needs a 49th
more.
"""
_NAMED: Final = 4


class Weighing(NamedTuple):
    """The weight of one cgroup that is ours: what must reach it, of how much, against which siblings."""

    number: int
    level: Level
    weight: int
    need: int
    capacity: Capacity
    parent: str

    @property
    def reason(self) -> str:
        """The level's need and what it competes with, in words for people."""
        against = f"{_against(self.level)} at {self.parent}"
        if not self.need:
            why = "the weight of the class" if self.number else "no part of the floor"
            return f"{why}, {against}"
        of_what = f"{_cpu(self.need)} of {_cpu(self.capacity.whole)} CPUs"
        return f"{of_what} for the floors below {against}" if self.number else f"floor {of_what} {against}"


class CpuFloor(NamedTuple):
    """The weights that keep a floor as far as it can be kept."""

    weighings: tuple[Weighing, ...]
    shortfall: Shortfall | None


@dataclass(frozen=True, slots=True)
class CpuDemand:
    """What a container is to get. Millicores; levels by number, 0 the container's own.

    `floor`: the container's. `pod_need`: what must reach its pod at least. `settled`: its weight among the
    containers of its pod, which have theirs, too (qos.plan.pod_weights); None: it is in no pod.
    `alone`: it has CPUs that no other may use. `weights`: fixed by its class. `most`: what its own CPUs come
    to, None: it has none. `together`: siblings with a floor get their weights at once, too.
    """

    floor: int
    pod_need: int = 0
    settled: int | None = None
    alone: bool = False
    weights: Mapping[int, int] = field(default_factory=dict)
    most: int | None = None
    together: bool = False


def keep_cpu(levels: Sequence[Level], scale: Scale, cpus: int, demand: CpuDemand) -> CpuFloor:
    """Weights for the levels that are ours, given what the others weigh.

    levels: from the root's child to the container. cpus: millicores that all of them share. No weight takes a
    sibling below a floor that it has now, not even until its own weight follows; unless all are planned
    together and all can be kept. Where the floors cannot be kept together, each is kept in part.
    """
    needs = _needs(levels, scale, demand)
    capacity = Capacity(cpus)
    weighings: list[Weighing] = []
    missed: tuple[int, str] | None = None
    for index, level in enumerate(levels):
        number = len(levels) - 1 - index
        given, load, bounded = capacity, _load_of(level, scale), False
        if level.owned:
            weight, bounded = _weight(number, level, Siblings(given, scale, ()), needs[index], demand)
            load = scale.load(weight)
            if needs[index] or number in demand.weights or level.idle or demand.settled is not None:
                parent = levels[index - 1].path if index else "/"
                weighings.append(Weighing(number, level, weight, needs[index], given, parent))
        capacity = given if demand.alone else given.shared(load, load_of(level.rivals, scale))
        limit = _least(level.cpu_quota, None if number else demand.most)
        capacity = capacity.limited(limit)
        if missed is None and not capacity.holds(needs[index]):
            missed = (index, _why(level, given, capacity, limit, load, scale, bounded))
    if capacity.holds(demand.floor):
        return CpuFloor(tuple(weighings), None)
    assert missed is not None  # the container's own level needs at least its floor
    index, why = missed
    number = len(levels) - 1 - index
    shortfall = Shortfall(CPU, number, levels[index].path, demand.floor, capacity.whole, why)
    return CpuFloor(tuple(weighings), shortfall)


def _needs(levels: Sequence[Level], scale: Scale, demand: CpuDemand) -> list[int]:
    """What must reach each level so that all floors below it can be kept, worked out from the bottom."""
    needs = [0] * len(levels)
    need = demand.floor
    for index in range(len(levels) - 1, -1, -1):
        level = levels[index]
        inside = index == len(levels) - 1
        if level.owned and not inside:
            need = max(need, demand.pod_need)
        needs[index] = need = max(need, level.floor_cpu)
        # What a pod needs is the same for all its containers: it does not follow from one of them.
        need = 0 if inside and demand.settled is not None else _with_siblings(level, need, scale)
    return needs


def _with_siblings(level: Level, need: int, scale: Scale) -> int:
    """What the parent must receive: the floors of its children, and what its other children then take."""
    floors = need + total(level.rivals, _floor)
    return with_unpromised(
        floors, max(need, largest(level.rivals, _floor)), total(level.rivals, _unpromised, scale), scale
    )


def with_unpromised(floors: int, largest_floor: int, unpromised: int, scale: Scale) -> int:
    """What the floors need beside this much load without a floor. floors: their sum, in millicores."""
    if not floors or not unpromised:
        return floors
    most = scale.load(scale.high) * floors // largest_floor * 9 // 10  # a tenth is left for rounding
    promised = min(unpromised * MOST_TIMES, most)
    return -(-floors * (unpromised + promised) // promised)


def _weight(number: int, level: Level, shared: Siblings, need: int, demand: CpuDemand) -> tuple[int, bool]:
    """The weight of one level of ours, and whether a sibling's floor keeps it from being more.

    `shared`: what its siblings and itself share.
    """
    if number == 0 and demand.settled is not None:
        return demand.settled, False
    if level.planned_weight:
        return level.planned_weight, False
    if not isinstance(level.rivals, Beside):
        return _weight_beside(number, level, shared, need, demand)
    fixed = demand.weights.get(number)
    asked = (number, level.weight, level.idle, shared, need, fixed, demand.alone, demand.together)
    return level.rivals.once(asked, lambda: _weight_beside(number, level, shared, need, demand))


def _weight_beside(
    number: int, level: Level, shared: Siblings, need: int, demand: CpuDemand
) -> tuple[int, bool]:
    """The same where it has to be found: hundreds of siblings are gone through several times."""
    scale = shared.scale
    base = demand.weights.get(number, scale.native(100) if level.idle else level.weight)
    now = _load_of(level, scale)
    exact = _siblings(level.rivals, shared, 0, now)
    padded = exact if number == 0 else _siblings(level.rivals, shared, MOST_TIMES, now)
    weight, own = base, Member(scale.load(base), need)
    if need and not demand.alone:
        least = padded.least(own) or exact.least(own)
        weight = scale.most(least or exact.fair(own))
        if demand.together and least:
            return weight, False
        if not least and exact.unpromised:  # no weight would do: the others keep something, too
            weight = min(weight, max(base, scale.most(MOST_TIMES * exact.unpromised)))
    bounds = [bound for bound in (exact.bound(now), padded.bound(now)) if bound is not None]
    most = min(map(scale.most, bounds), default=weight)
    return min(weight, most), most < weight


def _siblings(rivals: Sequence[Rival], shared: Siblings, padding: int, now: int) -> Siblings:
    """The siblings of one that weighs `now`; with a padding, their floors are larger by 1/padding, for what
    inside of them has no floor.
    """
    capacity, scale = shared.capacity, shared.scale
    total_load = load_of(rivals, scale) + now
    members, fixed, unpromised = [], [], 0
    for rival in rivals:
        load = _load(rival, scale)
        has = load * capacity.numerator * WHOLE // max(total_load * capacity.denominator, 1)
        guard = min(rival.cpu_guard * WHOLE, has)
        if rival.cpu_floor and not rival.idle:
            floor = rival.cpu_floor + (rival.cpu_floor // padding + 1 if padding else 0)
            members.append(Member(load, floor, guard))
        elif guard:
            fixed.append(Member(load, 0, guard))
        else:
            unpromised += load
    return Siblings(capacity, scale, tuple(members), unpromised, tuple(fixed))


def _load_of(level: Level, scale: Scale) -> int:
    return IDLE_LOAD if level.idle else scale.load(level.weight)


def load_of(rivals: Sequence[Rival], scale: Scale) -> int:
    """What all of them weigh together."""
    return total(rivals, _load, scale)


def _load(rival: Rival, scale: Scale) -> int:
    if not _is_populated(rival):
        return 0
    return IDLE_LOAD if rival.idle else scale.load(rival.weight)


def _unpromised(rival: Rival, scale: Scale) -> int:
    return _load(rival, scale) if rival.idle or not rival.cpu_floor else 0


def _floor(rival: Rival) -> int:
    return 0 if rival.idle else rival.cpu_floor


def _promised(rival: Rival) -> int:
    return rival.cpu_floor


def _guard(rival: Rival) -> int:
    return rival.cpu_guard


def _weighs(rival: Rival) -> int:
    return 0 if rival.idle or not _is_populated(rival) else rival.weight


def _is_idle(rival: Rival) -> int:
    return int(rival.idle and rival.populated)


def _is_populated(rival: Rival) -> int:
    """A floor is for processes that are there, or will be."""
    return int(rival.populated or rival.cpu_floor > 0)


def _least(*limits: int | None) -> int | None:
    return min([limit for limit in limits if limit is not None], default=None)


def _why(
    level: Level, given: Capacity, left: Capacity, limit: int | None, load: int, scale: Scale, bounded: bool
) -> str:
    if limit is not None and left == Capacity(limit):
        return f"the CPU quota of {level.path}, or the CPUs given to it, come to {_cpu(limit)}"
    promised = total(level.rivals, _promised)
    beside = f", {_cpu(promised)} of it promised to siblings," if promised else ""
    weight = "cpu.idle" if load == IDLE_LOAD else f"{scale.file} {scale.most(load)}"
    guarded = bounded or (level.planned_weight and total(level.rivals, _guard))
    more = "; more weight would take siblings below their floors or requests" if guarded else ""
    against = f"{weight} {_against(level)}{more}"
    return f"of {_cpu(given.whole)} CPU{beside} {_cpu(left.whole)} are left with {against}"


def _against(level: Level) -> str:
    return f"against {_named(level.rivals)}"


def _named(rivals: Sequence[Rival]) -> str:
    count = total(rivals, _is_populated)
    if not count:
        return "no siblings"
    if count > _NAMED:
        idle = total(rivals, _is_idle)
        return f"{count} siblings of weight {total(rivals, _weighs)}" + (
            f", {idle} of them idle" if idle else ""
        )
    busy = (rival for rival in rivals if _is_populated(rival))
    weights = "+".join("idle" if rival.idle else str(rival.weight) for rival in busy)
    return f"weight{'s' if count > 1 else ''} {weights}"


def _cpu(millicores: int) -> str:
    return render(CPU, millicores)
