"""The settings of a container that NRI can express: they go into its spec, and outlive every update of it.

A runtime applies a container's whole spec again at each update (kubelet's resize, its CPU manager), so what
is only in the kernel's file is gone then. What a spec cannot say, or what could keep a container from being
created, is written when the container starts, by kernel/. Measured with containerd 2.3.5 and runc 1.1.5 on
cgroup v1 and v2 (docs/nri.md has the table).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from agent.nri.records import Adjustment
from qos.plan.controller import all_files
from qos.plan.node import V1, V2
from qos.plan.settings import SET, Entry


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
    """The adjustment with the value in it; None: it cannot be expressed."""
    declared = all_files()[file]
    if not declared.nri or (V2 if unified else V1) not in declared.versions:
        return None
    if declared.nri == "unified":
        return replace(adjustment, unified={**adjustment.unified, file: value})
    said = SAID[declared.nri](value)
    return None if said is None else replace(adjustment, **{declared.nri: said})


def _quota(value: str) -> int | None:
    """Lifting the quota is never refused; a quota above the parent's is, and then there is no container."""
    return -1 if value == "-1" else None


def _list(value: str) -> str | None:
    return value or None


def _limit(value: str) -> int | None:
    return int(value) if value.isdecimal() and int(value) else None


SAID: Final[Mapping[str, Callable[[str], Any]]] = {
    "cpu_shares": int,
    "cpu_quota": _quota,
    "cpus": _list,
    "mems": _list,
    "pids_limit": _limit,
}
"""How a field of Adjustment is made of a file's value; None: it is not."""
