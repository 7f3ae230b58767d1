"""What was read of a cgroup and of those beside it, as a level of a node's facts. Pure.

Sources: the kernel's admin-guide cgroup-v2 and cgroup-v1/memory; sched-bwc.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

from qos.plan.layout import DEFAULT_SHARES, DEFAULT_WEIGHT, requested
from qos.plan.node import Level, Rival

Values: TypeAlias = Mapping[str, str]
"""File name to its text, as the kernel gives it; files that a cgroup does not have are absent."""


class Seen(NamedTuple):
    """A cgroup as it was read: its files, the names of those in it, and the threads in it itself."""

    values: Values
    children: tuple[str, ...] = ()
    loose: int = 0


_EVENTS: Final = "cgroup.events"
WANTED: Final = (
    "cpu.weight",
    "cpu.shares",
    "cpu.idle",
    "cpu.max",
    "cpu.cfs_quota_us",
    "cpu.cfs_period_us",
    "memory.min",
    "memory.low",
    "memory.max",
    "memory.limit_in_bytes",
    _EVENTS,
)
"""What to read of a cgroup on the way to a container."""
WANTED_BESIDE: Final = (
    "cpu.weight",
    "cpu.shares",
    "cpu.idle",
    "memory.min",
    "memory.low",
    "memory.max",
    _EVENTS,
)
"""What to read of its siblings; on cgroup v1 in the cpu hierarchy only: no memory is protected there.

Siblings without processes are left out on v1, which has no cgroup.events.
"""

_DEFAULT_PERIOD: Final = 100_000
_UNLIMITED: Final = 2**62
"""cgroup v1 shows "unlimited" as the largest number of pages that fits."""


def level(expected: Level, values: Values | None, beside: Iterable[Values] | None, memory: int) -> Level:
    """The level as it is; `expected` where the cgroup does not exist yet (values is None).

    beside: its siblings, itself left out; None where not even the parent exists. memory: the node's, in
    bytes. Raises ValueError, naming the file, for what is no value of it.
    """
    rivals = expected.rivals if beside is None else tuple(rival(one, memory) for one in beside)
    if values is None:
        return replace(expected, rivals=rivals)
    quota, period = _quota(values, expected.cpu_period)
    return replace(
        expected,
        weight=_weight(values),
        rivals=rivals,
        idle=_idle(values),
        cpu_quota=quota,
        cpu_period=period,
        memory_min=_claim(values, "memory.min", memory),
        memory_low=_claim(values, "memory.low", memory),
        memory_max=_memory_max(values),
        assumed=False,
    )


def with_floors(level: Level, floors: Iterable[int]) -> Level:
    """The level with what its siblings were promised, in millicores, in their order."""
    pairs = zip(level.rivals, floors, strict=True)
    return replace(level, rivals=tuple(replace(rival, cpu_floor=floor) for rival, floor in pairs))


def with_guards(level: Level, unified: bool) -> Level:
    """The level, whose siblings are kubelet's, with what these request as their weights say it."""
    rivals = (
        replace(rival, cpu_guard=0 if rival.idle else requested(rival.weight, unified))
        for rival in level.rivals
    )
    return replace(level, rivals=tuple(rivals))


def among_threads(level: Level, loose: int, cpus: int, unified: bool) -> Level:
    """The level with the threads that are in its parent itself: each competes as a new cgroup would.

    As many of them as there are CPUs are taken to be busy, the others to sleep, as most threads do.
    """
    return replace(level, rivals=(*level.rivals, *loose_rivals(loose, cpus, unified)), loose=loose)


def loose_rivals(loose: int, cpus: int, unified: bool) -> tuple[Rival, ...]:
    """The threads in a cgroup itself, as rivals of its children: at most as many as there are CPUs."""
    return (Rival(DEFAULT_WEIGHT if unified else DEFAULT_SHARES),) * min(loose, cpus)


def rival(values: Values, memory: int) -> Rival:
    """A sibling: its weight, and the memory that is protected for it; memory: the node's, in bytes."""
    return Rival(
        _weight(values),
        _idle(values),
        memory_min=_claim(values, "memory.min", memory),
        memory_low=_claim(values, "memory.low", memory),
        populated="populated 0" not in values.get(_EVENTS, "").split("\n"),
    )


def _weight(values: Values) -> int:
    """The kernel shows 0 for the weight of an idle cgroup on v2."""
    if "cpu.weight" in values:
        return _integer(values, "cpu.weight")
    if "cpu.shares" in values:
        return _integer(values, "cpu.shares")
    # Its parent gives it no cpu controller: it competes as one of default weight would.
    return DEFAULT_SHARES if "memory.limit_in_bytes" in values else DEFAULT_WEIGHT


def _idle(values: Values) -> bool:
    return values.get("cpu.idle", "0").strip() == "1"


def _quota(values: Values, usual: int) -> tuple[int | None, int]:
    """Quota in millicores (None: unlimited), period in microseconds; `usual` where no file says it."""
    if "cpu.max" in values:
        quota, _, period = values["cpu.max"].strip().partition(" ")
        limit = -1 if quota == "max" else _number("cpu.max", quota)
        period_us = _number("cpu.max", period) if period else _DEFAULT_PERIOD
    elif "cpu.cfs_quota_us" in values:
        limit = _integer(values, "cpu.cfs_quota_us")
        period_us = (
            _integer(values, "cpu.cfs_period_us") if "cpu.cfs_period_us" in values else _DEFAULT_PERIOD
        )
    else:
        return None, usual
    return (limit * 1000 // period_us if limit >= 0 else None), period_us


def _memory_max(values: Values) -> int | None:
    if "memory.max" in values:
        return _bytes(values, "memory.max")
    limit = _bytes(values, "memory.limit_in_bytes")
    return limit if limit is not None and limit < _UNLIMITED else None


def _claim(values: Values, file: str, memory: int) -> int:
    """What is protected, in bytes: where that is max, all that the cgroup can have."""
    claim = _bytes(values, file) if file in values else 0
    if claim is not None:
        return claim
    limit = _bytes(values, "memory.max")
    return memory if limit is None else min(limit, memory)


def _bytes(values: Values, file: str) -> int | None:
    """None where the file is absent, or says max."""
    text = values.get(file, "max").strip()
    return None if text == "max" else _number(file, text)


def _integer(values: Values, file: str) -> int:
    return _number(file, values[file].strip())


def _number(file: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{file}: {text!r} is not a number") from None
