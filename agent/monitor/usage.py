"""What the node and each of its pods use, as kubelet measures it: for who asks whether a node is too full.

CPU is the mean since the measurement before. Memory is the working set: without page cache that has not been
used lately, which the kernel drops first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from agent.monitor import layout, samples
from kernel import meters
from kernel.refused import Refused
from qos.cluster.node_report import UsageState
from qos.cluster.objects import Resources
from qos.keys import CPU, MEMORY

USAGE_SECONDS: Final = 45.0
"""Between two measurements. So a report that is written now shows in full what has run for 90 s: rescheduling
takes 120 s for that (settleSeconds).
"""
_MIB: Final = 1 << 20


class _Reading(NamedTuple):
    """`cpu`: seconds of CPU time so far, at monotonic time `at`; `memory`: bytes now."""

    at: float
    cpu: float
    memory: int

    def since(self, before: _Reading | None) -> Resources | None:
        """The mean since then, and the memory now, in whole MiB; None where nothing can be said."""
        if before is None or self.at <= before.at or self.cpu < before.cpu:
            return None
        cpu = round(1000 * (self.cpu - before.cpu) / (self.at - before.at))
        return {CPU: cpu, MEMORY: self.memory // _MIB * _MIB}


class UsageMeter:
    """Keeps the reading before of each cgroup; nothing stays open between two measurements.

    mounts: as layout.of() takes them; ValueError as there. clock: monotonic, wall: since the epoch.
    """

    def __init__(
        self,
        mounts: Mapping[str, str],
        proc: str,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        here = layout.of(mounts)
        self._unified_memory = here.v2_memory
        self._cpu = "cpu.stat" if here.v2_cpu else "cpuacct.usage"
        self._memory = "memory.current" if here.v2_memory else "memory.usage_in_bytes"
        self._meters = tuple(_only((self._cpu, self._memory, "memory.stat"), here))
        self._proc = proc
        self._clock, self._wall = clock, wall
        self._node: _Reading | None = None
        self._pods: dict[str, _Reading] = {}
        self.latest: UsageState | None = None

    async def measure(self, pods: Mapping[str, str]) -> None:
        """Read the node and these pods, namespace/name -> cgroup, into `latest`; others have their turn."""
        found: dict[str, Resources] = {}
        readings: dict[str, _Reading] = {}
        for key, path in pods.items():
            reading = self._read(path)
            if reading is not None:
                readings[path] = reading
                used = reading.since(self._pods.get(path))
                found |= {key: used} if used else {}
            await asyncio.sleep(0)  # each takes a tenth of a millisecond
        self._pods = readings
        before, self._node = self._node, self._read_node()
        of_node = self._node.since(before) if self._node else None
        if of_node is not None:
            self.latest = UsageState(self._wall(), of_node, found)

    def _read(self, path: str) -> _Reading | None:
        """One pod; None where its cgroup is gone, or has not all that is needed."""
        texts: dict[str, bytes] = {}
        try:
            for mountpoint, names in self._meters:
                opened = meters.of_cgroup(mountpoint, path, names)
                try:
                    texts |= {name: opened.read(name) for name in opened.names}
                finally:
                    opened.close()
        except Refused:
            return None
        if not {self._cpu, self._memory, "memory.stat"} <= texts.keys():
            return None
        idle = b"\ninactive_file " if self._unified_memory else b"\ntotal_inactive_file "
        memory = int(texts[self._memory]) - samples.named(b"\n" + texts["memory.stat"], idle)
        return _Reading(self._clock(), self._cpu_seconds(texts[self._cpu]), max(0, memory))

    def _cpu_seconds(self, text: bytes) -> float:
        if self._cpu == "cpu.stat":
            return samples.named(text, b"usage_usec ") / 1e6
        return int(text) / 1e9

    def _read_node(self) -> _Reading | None:
        """The whole machine; None where /proc does not say it."""
        opened = meters.of_machine(self._proc, ("stat", "meminfo"))
        try:
            if not {"stat", "meminfo"} <= opened.names:
                return None
            busy, _, _ = samples.cpu_times(opened.read("stat"))
            return _Reading(self._clock(), busy, samples.working_set(opened.read("meminfo")))
        finally:
            opened.close()


def _only(names: Iterable[str], here: layout.Layout) -> Iterable[tuple[str, tuple[str, ...]]]:
    """Where these meters are: mountpoint, and which of them it has."""
    for mountpoint, there in (*here.each_second, *here.seldom):
        if wanted := tuple(name for name in there if name in names):
            yield mountpoint, wanted
