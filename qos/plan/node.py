"""A node as the plan sees it: what its kernel has, and the cgroups from the root down to one container. Pure.

Values are what was read from the kernel (real-node facts: kubelet and runtimes convert requests differently
at each level, so nothing here is derived from a formula unless a caller says it is assumed).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

V1 = "v1"
V2 = "v2"
HYBRID = "hybrid"
LARGEST_PAGE = 65_536
"""Bytes, of the kernels that run containers: 64 KiB on some arm64 and ppc64le."""


@dataclass(frozen=True, slots=True)
class Rival:
    """Another child of the same cgroup: what it may take, and what it was promised.

    Beside a container in a pod: not the pod's other containers, which the plan knows itself.
    `weight`: cpu.weight (v2) or cpu.shares (v1); `idle`: cpu.idle is 1. `cpu_floor` in millicores,
    `memory_min`, `memory_low` in bytes: what is promised to it, 0: nothing. `populated`: there are processes
    in it or below; one without any takes no CPU, and what is charged to it may still be protected.
    `cpu_guard`: what no floor may take from it, in millicores: its pods' requests as far as it has them.
    """

    weight: int
    idle: bool = False
    cpu_floor: int = 0
    memory_min: int = 0
    memory_low: int = 0
    populated: bool = True
    cpu_guard: int = 0


@dataclass(frozen=True, slots=True)
class Level:
    """One cgroup on the way from the root to a container, as it was read.

    `owned`: ours to set exactly (the container, its pod); else shared, and only raised. `assumed`: it could
    not be read; the values are what is usual (qos.plan.assumed).
    `memory_used`: what of its memory.min it uses, in bytes, as it was read (qos.plan.protection.used_part);
    None: not known, it may be all.
    `cpu_quota` in millicores, `memory_max` in bytes; None: unlimited. `cpu_period`: microseconds, over which
    the kernel counts the quota. `floor_cpu`, `floor_memory`: what must reach this cgroup for all floors below
    it, this container's included; 0: to be derived by the plan. `loose`: threads in its parent itself, which
    compete with it one by one; as many as there are CPUs are among its rivals. `planned_weight`: what a plan
    of the whole node gives it, beside rivals that have theirs, too; 0: to be solved for this one.
    """

    path: str
    weight: int
    rivals: Sequence[Rival] = ()
    owned: bool = False
    idle: bool = False
    cpu_quota: int | None = None
    memory_min: int = 0
    memory_low: int = 0
    memory_max: int | None = None
    memory_used: int | None = None
    floor_cpu: int = 0
    floor_memory: int = 0
    assumed: bool = False
    cpu_period: int = 100_000
    loose: int = 0
    planned_weight: int = 0


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a plan needs to know of a node. cpus in millicores, memory and page in bytes.

    `cgroup`: V1, V2 or HYBRID (v1 controllers beside an empty unified tree: planned as v1).
    `files`: the kernel files that a cgroup of this node has (memory.min, cpu.max.burst ...).
    `devices`: disks as MAJOR:MINOR.
    `levels`: from the root's child down to the container itself, the last one.
    `page`: where it is unknown the largest there is, whose multiples all kernels take as they are.
    `shared_cpus`, `own_cpus`: CPU lists (0-3,8) of the share pool, and those given to this container.
    `planned_together`: the plans of all siblings with a floor are made from these facts and applied at once.
    """

    cgroup: str
    cpus: int
    memory: int
    files: frozenset[str]
    levels: tuple[Level, ...]
    page: int = LARGEST_PAGE
    devices: tuple[str, ...] = ()
    shared_cpus: str = ""
    own_cpus: str = ""
    planned_together: bool = False
