"""Weights among siblings: how much one must weigh so that every sibling with a floor can have it. Pure.

All siblings are taken to want all the CPU they can get: each then receives its load against the sum of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from qos.plan.weights import Scale

_ROUNDS: Final = 50
WHOLE: Final = 1000
"""Per mille of the floors: all of them. Floors are in millicores, so times this they are in microcores."""


class Capacity(NamedTuple):
    """CPU time in millicores, exactly: numerator / denominator."""

    numerator: int
    denominator: int = 1

    @property
    def whole(self) -> int:
        """Rounded down."""
        return self.numerator // self.denominator

    def holds(self, millicores: int) -> bool:
        """True if it is at least this much."""
        return millicores * self.denominator <= self.numerator

    def shared(self, load: int, others: int) -> Capacity:
        """What a load receives of it beside other loads."""
        return Capacity(self.numerator * load, self.denominator * (load + others))

    def limited(self, quota: int | None) -> Capacity:
        """At most the quota, in millicores."""
        return self if quota is None or not self.holds(quota) else Capacity(quota)

    def most_total(self, load: int, need: int) -> int:
        """The largest load of all together with which one of this load receives its need, in microcores."""
        return load * self.numerator * WHOLE // (need * self.denominator)

    def least_load(self, need: int, total: int) -> int:
        """The smallest load that receives the need, in microcores, where all weigh this much together."""
        return -(-need * total * self.denominator // (self.numerator * WHOLE))


class Member(NamedTuple):
    """One of the siblings: its load now, and its floor in millicores (0: none).

    `guard`: what it must keep whatever the others' floors need, in microcores; it has that now. `wish`: the
    load that its class asks for, where that is more than its load.
    """

    load: int
    floor: int = 0
    guard: int = 0
    wish: int = 0

    def need(self, part: int) -> int:
        """What it must receive, in microcores, when floors count this part, per mille."""
        return max(self.floor * part, self.guard)

    def least(self, part: int) -> int:
        """What it weighs at least then: that part of what its class asks for."""
        return self.load + max(self.wish - self.load, 0) * part // WHOLE


@dataclass(frozen=True, slots=True)
class Siblings:
    """Siblings that share a capacity; `unpromised`: the load of those without a floor.

    `fixed`: those whose load nobody changes, and that have a floor or a guard. `most`: the largest load of
    all together with which those in `unpromised` keep what they must; None: any.
    """

    capacity: Capacity
    scale: Scale
    members: tuple[Member, ...]
    unpromised: int = 0
    fixed: tuple[Member, ...] = ()
    most: int | None = None

    @property
    def load(self) -> int:
        """What all of them weigh."""
        return self._unmoved + sum(member.load for member in self.members)

    @property
    def _unmoved(self) -> int:
        """The load of all that no solution raises."""
        return self.unpromised + sum(member.load for member in self.fixed)

    def bound(self, now: int) -> int | None:
        """The largest load with which one more sibling, which weighs `now`, lets all others keep the floor
        that they have now, and what they must keep. None: nothing bounds it. A sibling that is below its
        floor now bounds nothing by it: its own plan will raise it.
        """
        total = self.load + now
        totals = [] if self.most is None else [max(self.most, total)]
        for one in (*self.members, *self.fixed):
            needs = (need for need in (one.floor * WHOLE, one.guard) if need)
            kept = (self.capacity.most_total(one.load, need) for need in needs)
            totals += [most for most in kept if most >= total]
        return min(totals) - self.load if totals else None

    def together(self, times: int) -> list[int]:
        """What each member must weigh. In the least solution all of them have their floors, the fixed ones
        too, and all keep what they must. Where there is none, all have the same part of their floors: the
        largest part with which those without a floor keep one part in `times` + 1, and what they must. A
        fixed one that has less than half of its floor now is beyond help, and its floor bounds nothing.
        """
        helped = tuple(map(self._helped, self.fixed))
        if helped != self.fixed:
            return replace(self, fixed=helped).together(times)
        loads = self._solution(self.members, WHOLE, self.most)
        if loads is not None:
            return loads
        bounds = [] if self.most is None else [self.most]
        if self.unpromised:
            bounds.append(max(self.load, self.unpromised * (times + 1)))
        return self._alike(self.members, WHOLE - 1, min(bounds, default=None))

    def least(self, own: Member) -> int | None:
        """What one more must weigh in the least solution in which all, itself too, have their floors.

        None: there is no solution.
        """
        loads = self._solution((own, *self.members), WHOLE, self.most)
        return None if loads is None else loads[0]

    def fair(self, own: Member) -> int:
        """What one more must weigh so that all have the same part of their floors, the largest possible."""
        return self._alike((own, *self.members), WHOLE, self.most)[0]

    def _helped(self, one: Member) -> Member:
        if 2 * self.capacity.most_total(one.load, max(one.floor, 1) * WHOLE) < self.load:
            return one._replace(floor=0)
        return one

    def _alike(self, members: Sequence[Member], high: int, most: int | None) -> list[int]:
        """The loads with which all have the largest part of their floors, at most `high` per mille."""
        low, found = 0, [member.load for member in members]
        while low < high:
            middle = (low + high + 1) // 2
            if self._suffices(members, self._largest(members, middle, most), middle):
                low = middle
            else:
                high = middle - 1
        return (self._solution(members, low, most) if low else None) or found

    def _solution(self, members: Sequence[Member], part: int, most: int | None) -> list[int] | None:
        """The loads when this part of each floor is kept and none weighs less than now; None: there are none.

        Where all together weigh S, a need takes need * S / capacity, and S is the sum of what all take: the
        least fixed point, approached from below; where that is slow, some S that is enough.
        """
        low, high = self._least_total(members, part), self._largest(members, part, most)
        for _ in range(_ROUNDS):
            loads = self._raised(members, low, part) if low <= high else None
            if loads is None:
                return None
            if self._unmoved + sum(loads) <= low:
                return loads
            low = self._unmoved + sum(loads)
        if not self._suffices(members, high, part):
            return None
        while low < high:
            middle = (low + high) // 2
            if self._suffices(members, middle, part):
                high = middle
            else:
                low = middle + 1
        return self._raised(members, high, part)

    def _largest(self, members: Sequence[Member], part: int, most: int | None) -> int:
        """The largest load of all together: the larger, the less of it goes to what has no need."""
        heaviest = self.scale.load(self.scale.high)
        bounds = [] if most is None else [most]
        for load, need in (
            *((one.load, one.need(part)) for one in self.fixed),
            *((max(heaviest, one.load), one.need(part)) for one in members),
        ):
            if need:
                bounds.append(self.capacity.most_total(load, need))
        return min(bounds, default=self._unmoved + sum(one.least(part) for one in members))

    def _least_total(self, members: Sequence[Member], part: int) -> int:
        """The load of all together that would do if weights were no whole numbers; no solution has less."""
        capacity, denominator = self.capacity.numerator * WHOLE, self.capacity.denominator
        asked = [(one.least(part), one.need(part)) for one in members]
        total = self._unmoved + sum(least for least, _ in asked)
        for _ in members:
            raised = [need * total * denominator > least * capacity for least, need in asked]
            needs = sum(need for more, (_, need) in zip(raised, asked, strict=True) if more)
            rest = sum(least for more, (least, _) in zip(raised, asked, strict=True) if not more)
            left = capacity - needs * denominator
            least_total = -(-(self._unmoved + rest) * capacity // left) if left > 0 else total
            if least_total <= total:
                break
            total = least_total
        return total

    def _suffices(self, members: Sequence[Member], total: int, part: int) -> bool:
        loads = self._raised(members, total, part)
        return loads is not None and self._unmoved + sum(loads) <= total

    def _raised(self, members: Sequence[Member], total: int, part: int) -> list[int] | None:
        """The weight of each when all weigh this much together; None: more than the kernel lets one weigh."""
        loads: list[int] = []
        for one in members:
            least, need = one.least(part), one.need(part)
            if not need:
                loads.append(least)
                continue
            if not self.capacity.numerator:
                return None
            wanted = self.capacity.least_load(need, total)
            if wanted <= least:
                loads.append(least)
                continue
            weight = self.scale.least(wanted)
            if weight is None:
                return None
            loads.append(self.scale.load(weight))
        return loads
