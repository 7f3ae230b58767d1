"""Which meters of a pod lie in which hierarchy: cgroup v1, v2 and machines that have both. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

_UNIFIED: Final = ""

_EACH_SECOND: Final = (
    ("cpuacct", ("cpuacct.usage",), ("cpu.stat", "cpu.pressure")),
    ("cpu", ("cpu.stat",), ()),
    ("memory", ("memory.usage_in_bytes",), ("memory.current", "memory.pressure")),
)
"""v1 controller, its meters in v1, and in v2 where that hierarchy is not of v1."""

_SELDOM: Final = (
    ("memory", ("memory.stat",), ("memory.stat", "memory.events")),
    (
        "blkio",
        ("blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_service_bytes"),
        ("io.stat", "io.pressure"),
    ),
)


@dataclass(frozen=True, slots=True)
class Layout:
    """Meters of a pod by mountpoint: read `each_second`, or `seldom`, each ten.

    `closer`: names of the latter. `threads`: the mountpoint that lists the threads that compete for the CPU.
    `v2_cpu`, `v2_memory`: whose files these are.
    """

    each_second: tuple[tuple[str, tuple[str, ...]], ...]
    seldom: tuple[tuple[str, tuple[str, ...]], ...]
    closer: frozenset[str]
    threads: str
    v2_cpu: bool
    v2_memory: bool


def of(mounts: Mapping[str, str]) -> Layout:
    """The layout of a machine with these hierarchies: v1 controller, or "" for v2, -> mountpoint.

    ValueError where nothing counts a cgroup's CPU time.
    """
    v2_cpu = "cpuacct" not in mounts
    if v2_cpu and _UNIFIED not in mounts:
        raise ValueError("no cgroup hierarchy here counts CPU time: mount cgroup2, or cpuacct of v1")
    seldom = tuple(_meters(_SELDOM, mounts))
    return Layout(
        each_second=tuple(_meters(_EACH_SECOND, mounts)),
        seldom=seldom,
        closer=frozenset(name for _, names in seldom for name in names),
        threads=mounts[_UNIFIED] if v2_cpu else mounts.get("cpu", mounts["cpuacct"]),
        v2_cpu=v2_cpu,
        v2_memory="memory" not in mounts,
    )


def _meters(
    table: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...], mounts: Mapping[str, str]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    unified: tuple[str, ...] = ()
    for controller, v1, v2 in table:
        if controller in mounts:
            yield mounts[controller], v1
        else:
            unified += v2
    if unified and _UNIFIED in mounts:
        yield mounts[_UNIFIED], unified
