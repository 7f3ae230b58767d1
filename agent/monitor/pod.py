"""One pod's meters: open while its cgroup is there, each read as a sample."""

from __future__ import annotations

from typing import Final

from agent.monitor import samples
from agent.monitor.delays import MOST_OF_A_POD, Counts
from agent.monitor.layout import Layout
from agent.monitor.samples import MemoryDetail, PodSample
from kernel import meters
from kernel.meters import Meters
from kernel.refused import Refused
from kernel.threads import Threads

_BLKIO: Final = ("blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_service_bytes", "io.stat")
"""The first that there is: what is written through to disks, by all cgroups below too."""
_LIMIT: Final = ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us")
"""The files of a limit: v2's; v1's, the quota first, as v2 has it."""


class PodMeters:
    """Open meters of the cgroup at `path`. Raises Gone where it is not there, and Refused.

    `made`: which cgroup of that path it is; a sample of another one cannot be compared.
    """

    __slots__ = (
        "_below",
        "_held",
        "_io_stalled",
        "_layout",
        "_limit",
        "_meters",
        "_path",
        "_threads",
        "_throttled",
        "_throttled_below",
        "detail",
        "made",
    )

    def __init__(self, layout: Layout, path: str, made: int) -> None:
        self._layout, self._path, self.made = layout, path, made
        self.detail: MemoryDetail | None = None
        self._io_stalled: float | None = None
        self._meters: dict[str, Meters] = {}
        self._threads: Threads | None = None
        self._held = 0
        self._throttled = 0.0
        self._throttled_below: dict[str, float] = {}
        self._below = 0.0
        self._limit: float | None = None
        try:
            for mountpoint, names in (*layout.each_second, *layout.seldom):
                opened = meters.of_cgroup(mountpoint, path, names)
                self._meters.update(dict.fromkeys(opened.names, opened))
            if ("cpu.stat" if layout.v2_cpu else "cpuacct.usage") not in self._meters:
                raise Refused("nothing counts its CPU time", path)
        except Refused:
            self.close()
            raise

    def sample(self, at: float, *, settling: bool) -> PodSample:
        """What is read each second. Raises Gone when the cgroup was removed, and Refused.

        Without PSI the memory is as it was when the details were read, for it is not judged more often, and
        the CPU is not settled (agent/monitor/delays.py). settling: it may be now.
        """
        cpu = self._cpu(throttled=settling)
        memory_stalled = self._stalled("memory.pressure")
        cpu_stalled, cpu_full = self._cpu_stalled()
        if memory_stalled is not None:
            self._held = self._memory()
        return PodSample(
            at,
            self.made,
            cpu,
            max(self._throttled, self._below),
            self._held,
            cpu_stalled,
            memory_stalled,
            self._io_stalled,
            None,
            cpu_stalled is not None,
            self.detail,
            cpu_full,
            self._limit,
        )

    def look_closer(self, at: float, *, limited: bool = True) -> None:
        """Read what is read each ten seconds into `detail`; limited: a container has a limit that throttles.

        Raises Gone, Refused.
        """
        texts = {name: one.read(name) for name, one in self._meters.items() if name in self._layout.closer}
        self._held = self._memory()
        if limited:
            self._look_below()
        if "io.pressure" in texts:
            self._io_stalled = samples.stalled(texts["io.pressure"])
        self.detail = samples.detail(
            at,
            texts.get("memory.stat", b""),
            texts.get("memory.events"),
            next((texts[name] for name in _BLKIO if name in texts), b""),
            unified=self._layout.v2_memory,
        )

    def delays(self, proc: str) -> Counts:
        """Nanoseconds that each thread has run and has waited for a CPU, by its id. Raises Gone, Refused.

        What this needs is opened when it is asked first: with PSI it never is.
        """
        if self._threads is None:
            self._threads = Threads(self._layout.threads, self._path)
        return self._threads.delays(proc, MOST_OF_A_POD)

    def close(self) -> None:
        """Close them all; once is enough."""
        if self._threads is not None:
            self._threads.close()
            self._threads = None
        for one in self._meters.values():
            one.close()
        self._meters = {}

    def _cpu(self, *, throttled: bool) -> float:
        """CPU time used. How long it was throttled v1 tells in another file, which is read when needed."""
        stat = self._meters.get("cpu.stat")
        if stat is not None and self._layout.v2_cpu:
            text = stat.read("cpu.stat")
            self._throttled_now(samples.named(text, b"throttled_usec ") / 1e6)
            return samples.named(text, b"usage_usec ") / 1e6
        if stat is not None and throttled:
            self._throttled_now(samples.named(stat.read("cpu.stat"), b"throttled_time ") / 1e9)
        return int(self._meters["cpuacct.usage"].read("cpuacct.usage")) / 1e9

    def _look_below(self) -> None:
        """How long its containers' own limits throttled them: the pod's counter has only that of its own."""
        name, unit = (b"throttled_usec ", 1e6) if self._layout.v2_cpu else (b"throttled_time ", 1e9)
        texts = meters.below(self._layout.threads, self._path, "cpu.stat")
        now = {child: samples.named(text, name) / unit for child, text in texts.items()}
        before = self._throttled_below
        self._below += sum(max(0.0, seconds - before.get(child, 0.0)) for child, seconds in now.items())
        self._throttled_below = now

    def _throttled_now(self, seconds: float) -> None:
        """Where it was throttled again, its limit is read: whether that is below the floor matters."""
        again, self._throttled, self._limit = seconds != self._throttled, seconds, None
        if not again:
            return
        opened = meters.of_cgroup(self._layout.threads, self._path, _LIMIT)
        try:
            self._limit = samples.limit(
                b" ".join(opened.read(name) for name in _LIMIT if name in opened.names)
            )
        finally:
            opened.close()

    def _memory(self) -> int:
        name = "memory.current" if self._layout.v2_memory else "memory.usage_in_bytes"
        opened = self._meters.get(name)
        return int(opened.read(name)) if opened else 0

    def _cpu_stalled(self) -> tuple[float | None, float | None]:
        opened = self._meters.get("cpu.pressure")
        if opened is None:
            return None, None
        text = opened.read("cpu.pressure")
        return samples.stalled(text), samples.stalled_fully(text)

    def _stalled(self, name: str) -> float | None:
        opened = self._meters.get(name)
        return samples.stalled(opened.read(name)) if opened else None
