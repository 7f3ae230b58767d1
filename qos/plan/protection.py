"""Memory protection along the hierarchy: what every ancestor needs so that it reaches the container. Pure.

A cgroup's memory.min and memory.low count only as far as its parent's cover what all children claim
(effective_protection in mm/memcontrol.c: otherwise the parent's is divided by what they use of their claims).
So each level is given the sum of what its children claim. With memory_recursiveprot the kernel hands on what
they claim and do not use, to whoever is beside them. Of memory.low that is a preference: when nothing else is
left, it is reclaimed all the same. Of memory.min it would be memory that nobody can reclaim: so above a pod
memory.min counts only what the pod uses of its claim, where that is known, and follows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from qos.keys import MEMORY
from qos.plan.node import Level, Rival
from qos.plan.rivals import total
from qos.plan.settings import Shortfall
from qos.quantity import render

MIN: Final = "memory.min"
LOW: Final = "memory.low"
_STEPS: Final = 64


@dataclass(frozen=True, slots=True)
class MemoryDemand:
    """What is to be protected, in bytes: of a container, and the most of all that run in its pod at a time.

    `file`: by memory.min or memory.low. `percent`: of the floors that a Level names for all below it.
    `beside`: of those that run in the pod with the container.
    """

    file: str
    amount: int
    pod_amount: int = 0
    percent: int = 100
    beside: int = 0


class Protected(NamedTuple):
    """The protection of one cgroup, in bytes, whole pages; `of_others`: of it, for other pods below."""

    number: int
    level: Level
    amount: int
    of_others: int


class MemoryFloor(NamedTuple):
    """The protections, parents first, and what cannot be kept although they are set."""

    protected: tuple[Protected, ...]
    shortfall: Shortfall | None


def keep_memory(levels: Sequence[Level], memory: int, page: int, demand: MemoryDemand) -> MemoryFloor:
    """What each level needs. levels: from the root's child to the container; memory: the node's, in bytes."""
    amounts = _amounts(levels, page, demand)
    ours = next((amounts[index] for index, level in enumerate(levels) if level.owned), amounts[-1])
    protected = [
        Protected(len(levels) - 1 - index, level, amounts[index], max(amounts[index] - ours, 0))
        for index, level in enumerate(levels)
        if amounts[index]
    ]
    known = [replace(level, memory_used=None) for level in levels]
    return MemoryFloor(
        tuple(protected), _shortfall(levels, _amounts(known, page, demand), memory, page, demand)
    )


def used_part(claim: int, used: int | None, page: int) -> int:
    """The part of a pod's memory.min that counts above it, in bytes; used: by the pod, None: not known.

    In steps of a 64th of the claim, downwards, so that what is written does not change with every page.
    """
    if used is None or used >= claim:
        return claim
    step = whole_pages(max(claim // _STEPS, 1), page)
    return used // step * step


def whole_pages(amount: int, page: int) -> int:
    """Rounded up: the kernel rounds down, which would be less than promised."""
    return -(-amount // page) * page


def _amounts(levels: Sequence[Level], page: int, demand: MemoryDemand) -> list[int]:
    amounts = [0] * len(levels)
    amount = whole_pages(demand.amount, page)
    for index in range(len(levels) - 1, -1, -1):
        level = levels[index]
        if level.owned and index < len(levels) - 1:
            inside = _claimed(levels[index + 1].rivals, page, demand.file)
            amount = max(amount, whole_pages(demand.pod_amount, page) + inside)
        if amount:
            named = -(-level.floor_memory * demand.percent // 100)
            amounts[index] = amount = max(amount, whole_pages(named, page))
            if not level.owned:  # what it has already stays
                amount = max(amount, whole_pages(_has(level, demand.file), page))
            if demand.file == MIN:
                amount = used_part(amount, level.memory_used, page)
            amount += _claimed(level.rivals, page, demand.file)
    return amounts


def _claimed(rivals: Sequence[Rival], page: int, file: str) -> int:
    return total(rivals, _claim, page, file)


def _claim(rival: Rival, page: int, file: str) -> int:
    return whole_pages(rival.memory_min if file == MIN else rival.memory_low, page)


def _has(level: Level, file: str) -> int:
    return level.memory_min if file == MIN else level.memory_low


def _shortfall(
    levels: Sequence[Level], amounts: Sequence[int], memory: int, page: int, demand: MemoryDemand
) -> Shortfall | None:
    """Where there is less memory than is claimed, siblings are taken to have theirs first: the worst case.

    Containers of one pod share what reaches it as the kernel divides it when all use what they claim.
    """
    reaching, missed = memory, None
    for index, level in enumerate(levels):
        others = _claimed(level.rivals, page, demand.file)
        limit = memory if level.memory_max is None else level.memory_max
        left = reaching - others
        if index == len(levels) - 1:
            left = _part(left, amounts[index], demand.beside, page)
            others += demand.beside
        left = min(left, limit, amounts[index])
        if missed is None and left < amounts[index]:
            number, parent = len(levels) - 1 - index, levels[index - 1] if index else None
            missed = (number, level.path, _why(level, parent, min(reaching, limit), others, left == limit))
        reaching = max(left, 0)
    if missed is None or reaching >= demand.amount:
        return None
    number, path, why = missed
    return Shortfall(MEMORY, number, path, demand.amount, reaching, why)


def _part(left: int, own: int, beside: int, page: int) -> int:
    """What the kernel gives each of several that claim the same amount, in whole pages."""
    return left if own + beside <= left else left * own // max(own + beside, 1) // page * page


def _why(level: Level, parent: Level | None, reaching: int, others: int, limited: bool) -> str:
    if limited and level.memory_max is not None:
        return f"the memory limit of {level.path} is {_bytes(level.memory_max)}"
    where = f"reach {parent.path}" if parent else "are all the node has"
    return f"{_bytes(reaching)} {where}, of which {_bytes(others)} are promised to siblings"


def _bytes(amount: int) -> str:
    return render(MEMORY, amount)
