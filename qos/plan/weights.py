"""CPU weights as the scheduler counts them: cpu.weight of cgroup v2 and cpu.shares of v1 on one scale.

Sources: kernel/sched/core.c (sched_weight_from_cgroup: weight * 1024 / 100, rounded to the closest),
kernel/sched/fair.c (MIN_SHARES, MAX_SHARES), kernel/sched/sched.h (WEIGHT_IDLEPRIO). Pure.
"""

from __future__ import annotations

from typing import Final, NamedTuple

IDLE_LOAD: Final = 3
"""What a cgroup with cpu.idle weighs on the scheduler's scale, on which a nice 0 task weighs 1024."""


ROUNDING: Final = 25
"""Per mille of what is due: weights are whole numbers; what they miss by less does not count as missed."""


def misses(kept: int, due: int) -> bool:
    """Whether less is kept than is due, by more than what whole-number weights round off."""
    return kept * 1000 < due * (1000 - ROUNDING)


class Scale(NamedTuple):
    """A weight file: its range, and what a new cgroup has. `unit` of it is a load of 1024."""

    file: str
    low: int
    high: int
    unit: int

    def load(self, weight: int) -> int:
        """What a weight comes to on the scheduler's scale; one that no file can hold counts as the lowest."""
        return (max(weight, self.low) * 1024 + self.unit // 2) // self.unit

    def least(self, load: int) -> int | None:
        """The smallest weight that comes to at least the load; None: there is none."""
        weight = max(-(-(load * self.unit - self.unit // 2) // 1024), self.low)
        return weight if weight <= self.high else None

    def most(self, load: int) -> int:
        """The largest weight that comes to at most the load; the lowest where all come to more."""
        weight = ((load + 1) * self.unit - self.unit // 2 - 1) // 1024
        return min(max(weight, self.low), self.high)

    def native(self, weight: int) -> int:
        """A cpu.weight of v2 on this scale, in the same proportion to a new cgroup's."""
        return min(max(weight * self.unit // 100, self.low), self.high)


UNIFIED: Final = Scale("cpu.weight", 1, 10_000, 100)
LEGACY: Final = Scale("cpu.shares", 2, 262_144, 1024)
