"""What a class promises a pod on its node: one field a promise, as people override them in a QoSProfile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    NamedTuple,
    TypeAlias,
    TypedDict,
    TypeVar,
    get_args,
    get_type_hints,
)

T = TypeVar("T")


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


def _stated(default: T, meaning: str, low: int | None = None, high: int | None = None) -> T:
    made: T = field(default=default, metadata={"stated": (meaning, low, high)})
    return made


@dataclass(frozen=True, slots=True)
class Promises:
    """What a pod may expect of a node; None: the promise is not made. The one declaration of each promise.

    A pod without a floor, of a class that says nothing of its memory request, is not protected: requests are
    no promises, and memory.min for all of them would leave the kernel nothing to reclaim (Koordinator's
    defaults are 0 too). Neither memory.low nor memory.high is ever below memory.min; memory.high is
    request + (limit or node memory - request) * percent / 100. On v1 io_weight is scaled to 10 to 1000.
    """

    cpu_idle: bool = _stated(
        False,
        "Run only when nobody else wants the CPU (cpu.idle). Only in a class without floor, and not "
        "with CPUs of its own.",
    )
    cpu_weight: int | None = _stated(
        None,
        "A fixed share of contended CPUs (cpu.weight, 100 is the kernel's default). Unset: from "
        "request and floor, which is how a floor is kept.",
        1,
        10_000,
    )
    cpu_quota: CpuQuota = _stated(
        CpuQuota.LIMIT,
        "Limit: a container's CPU limit throttles it. None: it does not; a pod of class LSE or LSR is "
        "bounded by its own CPUs instead, once it has them.",
    )
    cpu_burst_percent: int = _stated(
        0,
        "How much of the CPU limit may be saved up while idle and spent above the limit "
        "(cpu.max.burst). Not with cpuQuota None.",
        0,
        100,
    )
    cpus: CpuSet = _stated(
        CpuSet.SHARED,
        "Which CPUs: Shared (all that nobody has for itself), Reserved (some of its own, lent while "
        "idle), Exclusive (some of its own, never lent), System (those of the node's own agents).",
    )
    memory_min_percent: int = _stated(
        0,
        "How much of the memory floor is never reclaimed (memory.min; on ancestors as far as used). "
        "No class promises any: it is memory that no shortage gets back.",
        0,
        100,
    )
    memory_low_percent: int = _stated(
        0,
        "How much of the memory floor is reclaimed only when nothing unprotected is left (memory.low).",
        0,
        100,
    )
    memory_request_min_percent: int = _stated(
        0,
        "How much of the memory request is never reclaimed, with or without a floor; the larger "
        "amount counts. Koordinator's minLimitPercent.",
        0,
        100,
    )
    memory_request_low_percent: int = _stated(
        0,
        "How much of the memory request is reclaimed only when nothing unprotected is left. "
        "Koordinator's lowLimitPercent.",
        0,
        100,
    )
    memory_high_percent: int = _stated(
        0,
        "Where throttling begins (memory.high): this far on the way from the memory request to the "
        "limit, or to the node's memory where there is no limit. 0: never. Koordinator's "
        "throttlingPercent.",
        0,
        100,
    )
    memory_oom_group: bool | None = _stated(
        None,
        "When memory runs out, end all processes of the container at once (memory.oom.group). False: "
        "one at a time. Not set: as the class has it, else as the kubelet or the runtime chose.",
    )
    oom_score_adj: int | None = _stated(
        None,
        "Whom the kernel kills first: 1000 first, -1000 never. Unset: as the kubelet chose.",
        -1000,
        1000,
    )
    io_weight: int | None = _stated(
        None,
        "The share of a contended disk (io.weight, 100 is the kernel's default). Needs a disk "
        "scheduler that heeds it: BFQ or iocost.",
        1,
        10_000,
    )
    io_limit: IoLimit | None = _stated(None, "The most that each container may read and write (io.max).")
    pids_max: int | None = _stated(
        None, "The most processes and threads of a container (pids.max).", 1, 2**22
    )


class Promise(NamedTuple):
    """A field of Promises: its type, without None; what it means to people; a number's range, inclusive."""

    kind: type
    meaning: str
    low: int | None
    high: int | None


def _declared() -> Iterator[tuple[str, Promise]]:
    hints = get_type_hints(Promises)
    for one in fields(Promises):
        kind = hints[one.name]
        yield one.name, Promise(next(iter(get_args(kind)), kind), *one.metadata["stated"])


PROMISES: Final = dict(_declared())
"""Every promise by its name: what people may override, and how it is read, is made from this."""

if TYPE_CHECKING:
    Overrides: TypeAlias = dict[str, Any]
    """Some of the fields of Promises: what someone wants otherwise than the class has it."""
else:
    Overrides = TypedDict("Overrides", get_type_hints(Promises), total=False)


class Unsupported(NamedTuple):
    """A promise that this kernel cannot keep: the file it would need, why, and what is done instead."""

    promise: str
    file: str
    why: str


def kept_as(promise: str) -> str:
    """The promise that the controllers know: protecting the request is protecting memory."""
    return promise.replace("memory_request_", "memory_")
