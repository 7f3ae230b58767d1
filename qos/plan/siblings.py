"""Weights among siblings: how much one must weigh so that every sibling with a floor can have it. Pure.

All siblings are taken to want all the CPU they can get: each then receives its load against the sum of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from qos.plan.weights import Scale

_ROUNDS: Final = 50


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

    def eased(self, per_mille: int) -> Capacity:
        """A capacity of which the floors are the same part as they are of this one, times per_mille / 1000.
        per_mille: at least 1.
        """
        return Capacity(self.numerator * 1000, self.denominator * per_mille)

    def limited(self, quota: int | None) -> Capacity:
        """At most the quota, in millicores."""
        return self if quota is None or not self.holds(quota) else Capacity(quota)


class Member(NamedTuple):
    """One of the siblings: its load now, and its floor in millicores (0: none)."""

    load: int
    floor: int = 0


@dataclass(frozen=True, slots=True)
class Siblings:
    """Siblings that share a capacity; `unpromised`: the load of those without a floor.

    `fixed`: those with a floor whose load nobody changes.
    """

    capacity: Capacity
    scale: Scale
    members: tuple[Member, ...]
    unpromised: int = 0
    fixed: tuple[Member, ...] = ()

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
        that they have now. None: no floor bounds it. A sibling that is below its floor now bounds nothing:
        its own plan will raise it.
        """
        load, (numerator, denominator) = self.load, self.capacity
        most = None
        for own, floor in (*self.members, *self.fixed):
            if floor and floor * (load + now) * denominator <= own * numerator:
                total = own * numerator // (floor * denominator)
                most = total if most is None else min(most, total)
        return None if most is None else most - load

    def together(self, times: int) -> list[int]:
        """What each member must weigh. In the least solution all of them have their floors, the fixed ones
        too. Where there is none, all have the same part of their floors: the largest part with which those
        without a floor keep one part in `times` + 1. A fixed one that has less than half of its floor now is
        beyond help and bounds nothing.
        """
        fixed = [one for one in self.fixed if self._leaves((one,), self.load, self.capacity.eased(500))]
        loads = self._solution(self.members, fixed, self.capacity)
        if loads is not None:
            return loads
        most = max(self.load, self.unpromised * (times + 1)) if self.unpromised else None
        found = [member.load for member in self.members]
        low, high = 0, 999  # per mille of the floors
        while low < high:
            middle = (low + high + 1) // 2
            loads = self._solution(self.members, fixed, self.capacity.eased(middle))
            if loads is None or (most is not None and self._unmoved + sum(loads) > most):
                high = middle - 1
            else:
                low, found = middle, loads
        return found

    def least(self, own: Member) -> int | None:
        """What one more must weigh in the least solution in which all, itself too, have their floors.

        None: there is no solution.
        """
        loads = self._solution((own, *self.members), self.fixed, self.capacity)
        return None if loads is None else loads[0]

    def fair(self, own: Member) -> int:
        """What one more must weigh so that all have the same part of their floors, the largest possible."""
        members, found = (own, *self.members), own.load
        low, high = 0, 1000  # per mille of the floors
        while low < high:
            middle = (low + high + 1) // 2
            loads = self._solution(members, self.fixed, self.capacity.eased(middle))
            if loads is None:
                high = middle - 1
            else:
                low, found = middle, loads[0]
        return found

    def _solution(
        self, members: Sequence[Member], fixed: Sequence[Member], capacity: Capacity
    ) -> list[int] | None:
        """The loads when no floor is missed and none weighs less than now; None: there is no solution.

        Where all together weigh S, a floor needs floor * S / capacity, and S is the sum of what all need: the
        least fixed point, approached from below; where that is slow, from a total that is surely enough.
        """
        unmoved = self._unmoved
        total = self._enough(members, unmoved + sum(member.load for member in members), 0, capacity)
        for _ in range(_ROUNDS):
            loads = None if total is None else self._raised(members, total, capacity)
            if total is None or loads is None:
                return None
            if unmoved + sum(loads) <= total:
                return loads if self._leaves(fixed, total, capacity) else None
            total = unmoved + sum(loads)
        rounding = self.scale.load(2) - self.scale.load(1) + 1
        enough = self._enough(members, total or 0, rounding, capacity)
        loads = None if enough is None else self._raised(members, enough, capacity)
        if enough is None or loads is None or unmoved + sum(loads) > enough:
            return None
        return loads if self._leaves(fixed, enough, capacity) else None

    @staticmethod
    def _leaves(fixed: Sequence[Member], total: int, capacity: Capacity) -> bool:
        """Whether the fixed ones have their floors when all weigh this much together."""
        return all(one.floor * total * capacity.denominator <= one.load * capacity.numerator for one in fixed)

    def _raised(self, members: Sequence[Member], total: int, capacity: Capacity) -> list[int] | None:
        """The weight of each when all weigh this much together; None: more than the kernel lets one weigh."""
        if not capacity.numerator:
            return None
        loads: list[int] = []
        numerator, unit, scale = capacity.numerator, total * capacity.denominator, self.scale
        for load, floor in members:
            wanted = -(-floor * unit // numerator)
            if wanted <= load:
                loads.append(load)
                continue
            weight = scale.least(wanted)
            if weight is None:
                return None
            loads.append(scale.load(weight))
        return loads

    def _enough(self, members: Sequence[Member], total: int, rounding: int, capacity: Capacity) -> int | None:
        """A total, not below this one, at which the floors are kept although each weight is rounded up by
        this much; None: the floors are too large. Without rounding it is the least total that suffices.
        """
        numerator, denominator = capacity
        unmoved = self._unmoved
        for _ in range(len(members) + 1):
            unit = total * denominator
            raised = [one for one in members if one.floor * unit > one.load * numerator]
            kept = sum(one.load for one in members) - sum(one.load for one in raised)
            left = numerator - sum(one.floor for one in raised) * denominator
            rest = unmoved + kept + rounding * len(raised)
            if left <= 0:
                return total if not left and not rest else None
            more = -(-rest * numerator // left)
            if more <= total:
                return total
            total = more
        return total
