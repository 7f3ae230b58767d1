"""What a class promises a pod on its node: one field a promise, as people override them in a QoSProfile."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, TypedDict


class CpuQuota(Enum):
    """Whether a CPU limit throttles: the container's limit as it is, or no quota.

    With NONE a pinned class (CpuSet RESERVED, EXCLUSIVE) keeps its quota until it has been given CPUs: before
    that nothing else would bound it. Koordinator does the same.
    """

    LIMIT = "Limit"
    NONE = "None"


class CpuSet(Enum):
    """Which CPUs: those of the share pool, some of its own, some of its own that no other pod may use."""

    SHARED = "Shared"
    RESERVED = "Reserved"
    EXCLUSIVE = "Exclusive"
    SYSTEM = "System"


PINNED: Final = frozenset({CpuSet.RESERVED, CpuSet.EXCLUSIVE})
"""CPUs that are given to one pod."""


@dataclass(frozen=True, slots=True)
class IoLimit:
    """The most a container may read and write on every disk; 0: no limit. Bytes and operations a second."""

    read_bytes: int = 0
    write_bytes: int = 0
    read_operations: int = 0
    write_operations: int = 0


@dataclass(frozen=True, slots=True)
class Promises:
    """What a pod may expect of a node. Percentages are 0 to 100; None: the promise is not made.

    cpu_idle: runs only when nobody else wants the CPU (cpu.idle).
    cpu_weight: a fixed cgroup v2 weight, 1 to 10000; None: from request and floor.
    cpu_burst_percent: of the CPU limit, saved up while idle and spent above it; the kernel caps it at 100.
    memory_min_percent: of the floor: never reclaimed, as far as it is used (qos.plan.protection).
    memory_low_percent: of the floor: reclaimed only when nothing unprotected is left.
    memory_request_min_percent, memory_request_low_percent: the same of the request, whether there is a floor
    or not; the larger amount counts. A pod without a floor, of a class that says nothing here, is not
    protected: requests are not promises, and memory.min for all of them would leave the kernel nothing to
    reclaim (Koordinator's defaults are 0 too). memory.low is never below memory.min.
    memory_high_percent: p of request + (limit or node memory - request) * p / 100, above which the container
    is throttled; never below memory.min; 0: never throttled.
    memory_oom_group: all processes of the container are killed together; False: one at a time; None: as
    kubelet or runtime chose (kubelet since 1.28: together).
    oom_score_adj: -1000 to 1000. io_weight: 1 to 10000 (v1: scaled to 10 to 1000). pids_max: processes.
    """

    cpu_idle: bool = False
    cpu_weight: int | None = None
    cpu_quota: CpuQuota = CpuQuota.LIMIT
    cpu_burst_percent: int = 0
    cpus: CpuSet = CpuSet.SHARED
    memory_min_percent: int = 0
    memory_low_percent: int = 0
    memory_request_min_percent: int = 0
    memory_request_low_percent: int = 0
    memory_high_percent: int = 0
    memory_oom_group: bool | None = None
    oom_score_adj: int | None = None
    io_weight: int | None = None
    io_limit: IoLimit | None = None
    pids_max: int | None = None


class Overrides(TypedDict, total=False):
    """Some of the fields of Promises: what someone wants otherwise than the class has it."""

    cpu_idle: bool
    cpu_weight: int | None
    cpu_quota: CpuQuota
    cpu_burst_percent: int
    cpus: CpuSet
    memory_min_percent: int
    memory_low_percent: int
    memory_request_min_percent: int
    memory_request_low_percent: int
    memory_high_percent: int
    memory_oom_group: bool | None
    oom_score_adj: int | None
    io_weight: int | None
    io_limit: IoLimit | None
    pids_max: int | None


class Unsupported(NamedTuple):
    """A promise that this kernel cannot keep: the file it would need, why, and what is done instead."""

    promise: str
    file: str
    why: str


def kept_as(promise: str) -> str:
    """The promise that the controllers know: protecting the request is protecting memory."""
    return promise.replace("memory_request_", "memory_")
