"""The settings of a container that NRI can express: they go into its spec, and outlive every update of it.

A runtime applies a container's whole spec again at each update (kubelet's resize, its CPU manager), so what
is only in the kernel's file is gone then. What a spec cannot say, or what could keep a container from being
created, is written when the container starts, by kernel/. Measured with containerd 2.3.5 and runc 1.1.5 on
cgroup v1 and v2 (docs/nri.md has the table).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from agent.nri.records import Adjustment
from qos.plan.settings import SET, Entry

Say = Callable[[Adjustment, str], Adjustment | None]
"""The adjustment with a value of the kernel's file in it; None: it cannot be expressed."""

_UNIFIED: Final = frozenset(
    ("cpu.weight", "cpu.max", "memory.min", "memory.low", "memory.high", "memory.oom.group")
)
"""Each is valid whatever the others are, because the runtime writes them in no order."""


def adjustment_of(entries: Iterable[Entry], unified: bool) -> tuple[Adjustment, list[Entry]]:
    """(what the runtime shall put into the container's spec, the settings that are left to be written).

    unified: on cgroup v2. The container's own level only; the order of what is left is kept.
    """
    adjustment, rest = Adjustment(), []
    for entry in entries:
        level, mode, file, value = entry
        said = _say(adjustment, file, value, unified) if (level, mode) == (0, SET) else None
        if said is None:
            rest.append(entry)
        else:
            adjustment = said
    return adjustment, rest


def _say(adjustment: Adjustment, file: str, value: str, unified: bool) -> Adjustment | None:
    if file in _EVERYWHERE:
        return _EVERYWHERE[file](adjustment, value)
    if not unified:
        return _LEGACY[file](adjustment, value) if file in _LEGACY else None
    if file not in _UNIFIED:
        return None
    return replace(adjustment, unified={**adjustment.unified, file: value})


def _shares(adjustment: Adjustment, value: str) -> Adjustment | None:
    return replace(adjustment, cpu_shares=int(value))


def _quota(adjustment: Adjustment, value: str) -> Adjustment | None:
    """Lifting the quota is never refused; a quota above the parent's is, and then there is no container."""
    return replace(adjustment, cpu_quota=-1) if value == "-1" else None


def _cpus(adjustment: Adjustment, value: str) -> Adjustment | None:
    return replace(adjustment, cpus=value) if value else None


def _mems(adjustment: Adjustment, value: str) -> Adjustment | None:
    return replace(adjustment, mems=value) if value else None


def _pids(adjustment: Adjustment, value: str) -> Adjustment | None:
    return replace(adjustment, pids_limit=int(value)) if value.isdecimal() and int(value) else None


_EVERYWHERE: Final[dict[str, Say]] = {"cpuset.cpus": _cpus, "cpuset.mems": _mems, "pids.max": _pids}
_LEGACY: Final[dict[str, Say]] = {"cpu.shares": _shares, "cpu.cfs_quota_us": _quota}
