"""How a kernel divides CPU and protects memory along a tree of cgroups, for tests to compare plans with.

Written from the kernel's documents and code with its own arithmetic, without any of qos: weights and cpu.idle
(kernel/sched), effective_protection (mm/memcontrol.c). Times are exact fractions of millicores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction


@dataclass
class Group:
    """A cgroup: cpu.weight, or cpu.shares where `shares` is given; None as demand or quota: without end.

    `memory_min` is the setting of the kind of protection that is asked for; `memory_usage` counts only where
    there are no children.
    """

    name: str
    weight: int = 100
    shares: int | None = None
    idle: bool = False
    quota: int | None = None
    demand: int | None = None
    memory_min: int = 0
    memory_max: int | None = None
    memory_usage: int = 0
    children: list[Group] = field(default_factory=list)

    def walk(self) -> Iterator[Group]:
        """Itself and all below."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def usage(self) -> int:
        """Memory of all below."""
        return sum(child.usage for child in self.children) if self.children else self.memory_usage


def cpu_time(root: Group, cpus: int) -> dict[str, Fraction]:
    """What each group gets, by name, when all run what they can; cpus in millicores."""
    result: dict[str, Fraction] = {}
    _divide_cpu(root, Fraction(cpus), result)
    return result


def protection(root: Group, *, recursive: bool, memory: int | None = None) -> dict[str, int]:
    """The effective memory.min of each group below the root, by name, when the root's memory is short.

    The kernel lets all below the root claim what they want, and then kills; memory: the machine's, in bytes,
    divides their claims as a parent's protection would. No more than its limit is protected in a group.
    """
    result: dict[str, int] = {}
    claimed = sum(child.memory_min for child in root.children)
    for child in root.children:
        effective = child.memory_min
        if memory is not None and claimed > memory:
            effective = effective * memory // claimed
        result[child.name] = _limited(effective, child)
        _divide_protection(child, result, recursive=recursive)
    return result


def _limited(effective: int, group: Group) -> int:
    return effective if group.memory_max is None else min(effective, group.memory_max)


def _load(group: Group) -> int:
    if group.idle:
        return 3
    if group.shares is not None:
        return min(max(group.shares, 2), 1 << 18)
    return round(Fraction(group.weight * 1024, 100) + Fraction(1, 1000))  # halves upwards


def _wanted(group: Group) -> Fraction | None:
    wanted = None if group.demand is None else Fraction(group.demand)
    if group.children:
        parts = [_wanted(child) for child in group.children]
        known = [part for part in parts if part is not None]
        wanted = sum(known, Fraction()) if len(known) == len(parts) else None
    if group.quota is None:
        return wanted
    return Fraction(group.quota) if wanted is None else min(wanted, Fraction(group.quota))


def _divide_cpu(group: Group, amount: Fraction, result: dict[str, Fraction]) -> None:
    """By weight among those who want more, again and again as the others are satisfied."""
    result[group.name] = amount
    given = {child.name: Fraction() for child in group.children}
    hungry = list(group.children)
    while hungry and amount:
        unit = amount / sum(map(_load, hungry))
        full = [one for one in hungry if (want := _wanted(one)) is not None and want <= unit * _load(one)]
        if not full:
            for one in hungry:
                given[one.name] = unit * _load(one)
            break
        for one in full:
            given[one.name] = _wanted(one) or Fraction()
            amount -= given[one.name]
            hungry.remove(one)
    for child in group.children:
        _divide_cpu(child, given[child.name], result)


def _divide_protection(parent: Group, result: dict[str, int], *, recursive: bool) -> None:
    claimed = sum(min(child.usage, child.memory_min) for child in parent.children)
    available, parent_usage = result[parent.name], parent.usage
    for child in parent.children:
        own = min(child.usage, child.memory_min)
        if claimed > available:
            effective = own * available // claimed
        elif recursive and parent_usage > claimed and child.usage > own:
            unclaimed = (available - claimed) * (child.usage - own) // (parent_usage - claimed)
            effective = own + unclaimed
        else:
            effective = own
        result[child.name] = _limited(effective, child)
        _divide_protection(child, result, recursive=recursive)
