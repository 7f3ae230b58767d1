"""Disks: a limit holds, for reading and for writing."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lab.contention import measures
from lab.contention.groups import Group
from lab.contention.node import Node, best_effort
from lab.contention.work import Load
from qos.classes import promises_of
from qos.promises import IoLimit

MIB = 1 << 20
SCRATCH = Path("/dev/disk/by-id/scratch")
LIMIT = 8 * MIB

Record = Callable[[str, object], None]


def device() -> str:
    number = SCRATCH.stat().st_rdev
    return f"{os.major(number)}:{os.minor(number)}"


def counter(group: Group, key: str) -> Callable[[], int]:
    """Bytes that a cgroup has read (rbytes) or written (wbytes) on the scratch disk."""

    def read() -> int:
        for line in group.read("io.stat").splitlines():
            name, *values = line.split()
            if name == device():
                return int(dict(value.split("=") for value in values).get(key, 0))
        return 0

    return read


def holds(rate: float) -> bool:
    return 0.7 * LIMIT < rate < 1.15 * LIMIT


@pytest.mark.parametrize("direction", ["read", "write"])
def test_a_limit_holds(node: Node, load: Load, direction: str, record_property: Record) -> None:
    batch = best_effort("batch")
    app = node.start(batch)["app"]
    (load.read if direction == "read" else load.write)(app, SCRATCH)
    count = counter(app, f"{direction[0]}bytes")
    free = measures.rate(count, 64 * MIB, lambda found: found > 3 * LIMIT)
    promises = replace(promises_of("BE"), io_limit=IoLimit(read_bytes=LIMIT, write_bytes=LIMIT))
    node.keep(batch, "app", promises, None, devices=(device(),))
    limited = measures.rate(count, 24 * MIB, holds)
    record_property("MiB/s without and with io.max", (free / MIB, limited / MIB))
    assert free > 3 * LIMIT
    assert holds(limited)
