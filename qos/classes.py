"""The classes and what each promises: one table, in which a new class is one row.

The names are those that Koordinator's users have on their pods; what its own kernel does there (bvt group
identity, watermark ratios) is mapped to what a mainline kernel has. Whoever writes a pod chooses its class
by a label, so a class gives nothing that request or floor have not paid for: oom_score_adj and io.weight stay
as they are for all but BE, which gets less. A QoSProfile, which needs a right to use, may give more. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from qos.bandwidth import Band
from qos.promises import PINNED, CpuQuota, CpuSet, Overrides, Promises


class QosClass(NamedTuple):
    """A row: what the class is for, in one line, and its promises. `has_floor`: a policy may hold slots.

    `band`: of its traffic, where nobody says another. All but BE have L0, as the host has: a class, which any
    author may choose, takes nothing from others.
    """

    meaning: str
    promises: Promises
    has_floor: bool = True
    band: Band = Band.L0


class Contradiction(NamedTuple):
    """Why a promise cannot be made: the field of Promises, and the reason."""

    field: str
    why: str


IDLE_WITH_FLOOR: Final = Contradiction(
    "cpu_idle", "a class with a floor cannot be idle: an idle cgroup is promised no CPU"
)
IDLE_ON_OWN_CPUS: Final = Contradiction(
    "cpu_idle", "who runs only when nobody else wants the CPU has no use for CPUs of its own"
)
WEIGHT_OF_IDLE: Final = Contradiction("cpu_weight", "the kernel refuses a weight for an idle cgroup")
BURST_WITHOUT_QUOTA: Final = Contradiction(
    "cpu_burst_percent", "without a CPU quota there is nothing to burst above"
)

_FLOOR: Final = Promises(memory_low_percent=100)
# Not memory.min, which a profile may add: what others have beside a floor could be reclaimed by no pressure.
_PINNED: Final = replace(_FLOOR, cpu_quota=CpuQuota.NONE)

CLASSES: Final[Mapping[str, QosClass]] = {
    "SYSTEM": QosClass("agents of the node, on the system's CPUs", replace(_FLOOR, cpus=CpuSet.SYSTEM)),
    "LSE": QosClass("latency sensitive, exclusive CPUs", replace(_PINNED, cpus=CpuSet.EXCLUSIVE)),
    "LSR": QosClass("latency sensitive, reserved CPUs", replace(_PINNED, cpus=CpuSet.RESERVED)),
    "LS": QosClass("latency sensitive, shared CPUs", _FLOOR),
    "BE": QosClass(
        "best effort",
        # Killed first, and as a whole, so that its memory is free at once; a tenth of the kernel's io.weight;
        # 8192: a quarter of the smallest kernel.pid_max, so that a fork bomb leaves others their processes.
        Promises(cpu_idle=True, memory_oom_group=True, oom_score_adj=1000, io_weight=10, pids_max=8192),
        has_floor=False,
        band=Band.L2,
    ),
}


def promises_of(class_name: str, overrides: Overrides | None = None) -> Promises:
    """The promises of a class with the overrides applied. KeyError: no such class."""
    return replace(CLASSES[class_name].promises, **(overrides or {}))


def contradiction(class_name: str, promises: Promises) -> Contradiction | None:
    """The first reason why these promises cannot all be kept for this class, if there is one."""
    idle = promises.cpu_idle
    found = {
        IDLE_WITH_FLOOR: idle and CLASSES[class_name].has_floor,
        IDLE_ON_OWN_CPUS: idle and promises.cpus in PINNED,
        WEIGHT_OF_IDLE: idle and promises.cpu_weight is not None,
        BURST_WITHOUT_QUOTA: promises.cpu_burst_percent > 0 and promises.cpu_quota is CpuQuota.NONE,
    }
    return next((reason for reason, holds in found.items() if holds), None)
