"""The machine's own meters, from /proc, and how pressed it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from agent.monitor import samples
from agent.monitor.samples import NodeSample, Pressure
from kernel import meters

RESOURCES: Final = ("cpu", "memory", "io")
SELDOM_SECONDS: Final = 10.0

NONE: Final = "None"
SOME: Final = "Some"
HIGH: Final = "High"

LEVELS: Final[Mapping[str, tuple[float, float]]] = {
    "cpu": (0.25, 0.75),
    "memory": (0.05, 0.20),
    "io": (0.20, 0.60),
}
"""From which share of the last ten seconds that something waited (PSI some avg10) the level is Some, High.

A CPU that is always busy is what one pays for; memory that must be waited for is trouble long before.
"""
_BACK: Final = 0.5
"""A level ends at half of what it began at: a share that sways around the limit says nothing new."""


def level(resource: str, share: float, before: str = NONE) -> str:
    """None, Some or High, for the share that is waited and the level until now. Pure."""
    some, high = LEVELS[resource]
    if share >= high * (_BACK if before == HIGH else 1):
        return HIGH
    if share >= some * (_BACK if before != NONE else 1):
        return SOME
    return NONE


class NodeMeters:
    """/proc/stat, meminfo, pressure/*, vmstat, kept open. `close()` when done."""

    def __init__(self, proc: str) -> None:
        self._meters = meters.of_machine(
            proc, ("stat", "meminfo", "vmstat", *(f"pressure/{resource}" for resource in RESOURCES))
        )
        self._latest = NodeSample(at=float("-inf"))
        self._next_disks = float("-inf")

    def sample(self, at: float) -> NodeSample:
        """All of it; the disks each ten seconds."""
        there = self._meters.names
        busy, idle, stolen = samples.cpu_times(self._meters.read("stat")) if "stat" in there else (0.0,) * 3
        total, available = samples.meminfo(self._meters.read("meminfo")) if "meminfo" in there else (0, 0)
        self._latest = replace(
            self._latest,
            at=at,
            busy=busy,
            idle=idle,
            stolen=stolen,
            memory_total=total,
            memory_available=available,
            pressure=self._pressure(),
        )
        if at >= self._next_disks and "vmstat" in there:
            self._next_disks = at + SELDOM_SECONDS
            read, written = samples.paged(self._meters.whole("vmstat"))
            self._latest = replace(self._latest, read=read, written=written)
        return self._latest

    def close(self) -> None:
        """Close them all."""
        self._meters.close()

    def _pressure(self) -> dict[str, Pressure]:
        names = {resource: f"pressure/{resource}" for resource in RESOURCES}
        return {
            resource: samples.pressure(self._meters.read(name))
            for resource, name in names.items()
            if name in self._meters.names
        }
