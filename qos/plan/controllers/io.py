"""Disks: a weight against other pods (io.weight), and limits of the container's own (io.max).

Source: the kernel's cgroup-v2 IO, block/bfq-cgroup.c (weights 1 to 1000, default 100), block/blk-throttle.c;
CFQ's blkio.weight (10 to 1000, default 500) of kernels before 5.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from qos.plan.controller import (
    DEVICE_LIMIT,
    DEVICE_LIMITS,
    INTEGER,
    UNIFIED,
    WEIGHT,
    Case,
    File,
    Finding,
    Keeps,
)
from qos.plan.controller import setting as make
from qos.plan.node import V1, V2
from qos.plan.settings import Setting
from qos.promises import IoLimit, Unsupported

NAME: Final = "io"
_V1: Final = "blkio"
_BYTES: Final = 2**63 - 1
_OPERATIONS: Final = 2**32 - 1  # more is clamped to it, and is what unlimited means
_MIB: Final = str(2**20)
READ_BYTES: Final = "blkio.throttle.read_bps_device"
WRITE_BYTES: Final = "blkio.throttle.write_bps_device"
READ_OPERATIONS: Final = "blkio.throttle.read_iops_device"
WRITE_OPERATIONS: Final = "blkio.throttle.write_iops_device"
_LIFTED: Final = "0 lifts the limit; only direct I/O and reads are charged to the container"
_NEEDS_BFQ: Final = "acts on disks with the scheduler bfq"

# fmt: off
FILES: Final = (
    File("io.weight", (V2,), UNIFIED, WEIGHT, 1, 10_000, 70, "5.4", "acts on disks with io.cost.qos enabled",
         trial="50", fresh="", nri=""),
    File("io.bfq.weight", (V2,), UNIFIED, WEIGHT, 1, 1000, 71, "4.12", _NEEDS_BFQ,
         trial="50", fresh="", nri=""),
    File("blkio.weight", (V1,), _V1, INTEGER, 10, 1000, 72, "2.6.33", "CFQ; gone since 5.0",
         trial="50", fresh="", nri=""),
    File("blkio.bfq.weight", (V1,), _V1, WEIGHT, 1, 1000, 73, "4.12", _NEEDS_BFQ,
         trial="50", fresh="", nri=""),
    File("io.max", (V2,), UNIFIED, DEVICE_LIMITS, 1, _BYTES, 74, "4.5",
         trial=f"rbps={_MIB}", fresh="", nri="",
         hints={"ENODEV": "there is no such disk"}),
    File(READ_BYTES, (V1,), _V1, DEVICE_LIMIT, 0, _BYTES, 75, "2.6.37", _LIFTED,
         trial=_MIB, fresh="", nri=""),
    File(WRITE_BYTES, (V1,), _V1, DEVICE_LIMIT, 0, _BYTES, 76, "2.6.37", _LIFTED,
         trial=_MIB, fresh="", nri=""),
    File(READ_OPERATIONS, (V1,), _V1, DEVICE_LIMIT, 0, _OPERATIONS, 77, "2.6.37", _LIFTED,
         trial=_MIB, fresh="", nri=""),
    File(WRITE_OPERATIONS, (V1,), _V1, DEVICE_LIMIT, 0, _OPERATIONS, 78, "2.6.37", _LIFTED,
         trial=_MIB, fresh="", nri=""),
)
# fmt: on
_WEIGHT: Final = Keeps(
    "io_weight",
    ("io.weight", "io.bfq.weight"),
    ("blkio.bfq.weight", "blkio.weight"),
    "all containers share the disks alike; an io_limit on the others is the nearest",
)
_LIMIT: Final = Keeps(
    "io_limit",
    ("io.max",),
    (READ_BYTES, WRITE_BYTES, READ_OPERATIONS, WRITE_OPERATIONS),
    "nothing limits it; a low io_weight is the nearest",
    together=True,
)
KEEPS: Final = (_WEIGHT, _LIMIT)


def settings(case: Case) -> Iterator[Finding]:
    """The weight of the pod against other pods; the limits of the container on each disk."""
    if case.promises.io_weight is not None:
        yield _weight(case, case.promises.io_weight)
    if case.promises.io_limit is not None:
        yield from _limits(case, case.promises.io_limit)


def native_weight(file: str, weight: int) -> int:
    """A v2 weight (default 100) in a file's own range, in the same proportion to the file's default.

    Weights of more than ten times the default become ten times (bfq) or twice (CFQ) the default.
    """
    if file == "blkio.weight":
        return min(max(weight * 5, 10), 1000)
    return weight if file == "io.weight" else min(weight, 1000)


def _weight(case: Case, weight: int) -> Finding:
    file = case.first(_WEIGHT)
    if not file:
        return case.lacks(_WEIGHT)
    number, level = case.outermost()
    native = native_weight(file, weight)
    value = f"default {native}" if file == "io.weight" else native
    return make(NAME, number, level, file, value, f"disk weight {weight} of the class, others have 100")


def _limits(case: Case, limit: IoLimit) -> Iterator[Finding]:
    if not case.node.devices:
        yield Unsupported("io_limit", _LIMIT.files(case.unified)[0], "the node names no disk to limit")
    elif not case.unified:
        yield from _v1_limits(case, limit)
    elif case.first(_LIMIT):
        yield from _unified_limits(case, limit)
    else:
        yield case.lacks(_LIMIT)


def _unified_limits(case: Case, limit: IoLimit) -> Iterator[Setting]:
    names = {
        "rbps": min(limit.read_bytes, _BYTES),
        "wbps": min(limit.write_bytes, _BYTES),
        "riops": min(limit.read_operations, _OPERATIONS),
        "wiops": min(limit.write_operations, _OPERATIONS),
    }
    keys = " ".join(f"{name}={value}" for name, value in names.items() if value)
    if not keys:
        return
    for device in case.node.devices:
        yield make(NAME, 0, case.node.levels[-1], "io.max", f"{device} {keys}", _limit_reason(device))


def _v1_limits(case: Case, limit: IoLimit) -> Iterator[Finding]:
    values = {
        READ_BYTES: min(limit.read_bytes, _BYTES),
        WRITE_BYTES: min(limit.write_bytes, _BYTES),
        READ_OPERATIONS: min(limit.read_operations, _OPERATIONS),
        WRITE_OPERATIONS: min(limit.write_operations, _OPERATIONS),
    }
    for file, value in values.items():
        if value and file not in case.node.files:
            yield Unsupported("io_limit", file, f"this kernel has no {file}; {_LIMIT.otherwise}")
        elif value:
            for device in case.node.devices:
                reason = _limit_reason(device)
                yield make(NAME, 0, case.node.levels[-1], file, f"{device} {value}", reason)


def _limit_reason(device: str) -> str:
    return f"the class's limit on disk {device}"
