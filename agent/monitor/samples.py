"""What was read at one moment, as numbers, and how they are parsed from the kernel's text. Pure.

Times are seconds, sizes bytes. None: this kernel or this moment does not say it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

SOME: Final = b"some"
FULL: Final = b"full"
USER_HZ: Final = 100
"""Ticks a second of /proc/stat: the same on every architecture that Kubernetes runs on (proc_stat(5))."""


@dataclass(frozen=True, slots=True)
class MemoryDetail:
    """Every ten seconds, at monotonic time `at`: of memory.stat, memory.events, io.stat.

    `refaults`: pages that were reclaimed and needed again, counted since the cgroup was made, as `scanned`
    (pages that reclaim looked at; v2 only), `oom_kills` (v2 only), `read`, `written` (disks, bytes) are.
    """

    at: float
    anonymous: int = 0
    file: int = 0
    refaults: int = 0
    scanned: int | None = None
    oom_kills: int | None = None
    read: int = 0
    written: int = 0


class PodSample(NamedTuple):
    """A pod at monotonic time `at`. Counters run since its cgroup was made: `made` differs for each such
    cgroup.

    `cpu`: CPU time used. `throttled`: by limits, summed over CPUs: its own, or together its containers',
    whichever is more. `cpu_stalled`, `memory_stalled`, `io_stalled`: time in which a thread waited for it
    (PSI "some"). `cpu_delayed`: time that others kept its threads waiting for a CPU, of each CPU of the
    floor, from schedstat (agent/monitor/delays.py); without PSI for cgroups. `settled`: whether the CPU can
    be judged here; with PSI always. `memory`: what it holds, page cache included. `cpu_full`: time in which
    threads waited for a CPU and none ran there (PSI "full"; from Linux 5.13). `limit`: the pod's own limit in
    CPUs, where it has throttled since the sample before; else None.
    """

    at: float
    made: int = 0
    cpu: float = 0.0
    throttled: float = 0.0
    memory: int = 0
    cpu_stalled: float | None = None
    memory_stalled: float | None = None
    io_stalled: float | None = None
    cpu_delayed: float | None = None
    settled: bool = True
    detail: MemoryDetail | None = None
    cpu_full: float | None = None
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class Pressure:
    """PSI of one resource: shares of the last ten seconds, 0 to 1, and seconds since boot."""

    some: float = 0.0
    full: float = 0.0
    some_total: float = 0.0
    full_total: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeSample:
    """The machine at monotonic time `at`. `busy`, `idle`, `stolen`: CPU time since boot, of all CPUs.

    `memory_total`, `memory_available`: /proc/meminfo. `read`, `written`: disks, since boot; every ten
    seconds. `pressure`: by cpu, memory, io; empty where the kernel has no PSI.
    """

    at: float
    busy: float = 0.0
    idle: float = 0.0
    stolen: float = 0.0
    memory_total: int = 0
    memory_available: int = 0
    read: int = 0
    written: int = 0
    pressure: Mapping[str, Pressure] = field(default_factory=dict)


def integers(text: bytes) -> dict[bytes, int]:
    """NAME NUMBER lines, as cpu.stat, memory.stat, memory.events and vmstat have them."""
    words = text.split()
    return dict(zip(words[::2], map(int, words[1::2]), strict=True))


def named(text: bytes, name: bytes) -> int:
    """The number behind `name`, which ends with a blank; 0 where it is not there."""
    begin = text.find(name)
    if begin < 0:
        return 0
    begin += len(name)
    return int(text[begin : text.index(b"\n", begin)])


def stalled(text: bytes) -> float:
    """Seconds of the "some" line of a pressure file: it is the first."""
    begin = text.index(b"total=") + 6
    return int(text[begin : text.index(b"\n", begin)]) / 1e6


def stalled_fully(text: bytes) -> float | None:
    """Seconds of the "full" line; None where there is none, as for the CPU before Linux 5.13."""
    begin = text.find(b"full")
    return None if begin < 0 else stalled(text[begin:])


def limit(text: bytes) -> float | None:
    """CPUs, of `QUOTA PERIOD` in microseconds: cpu.max, or both files of v1; None no limit."""
    words = text.split()
    if len(words) != 2 or words[0] in (b"max", b"-1"):
        return None
    return int(words[0]) / int(words[1])


def pressure(text: bytes) -> Pressure:
    """A pressure file: `some avg10=0.12 avg60=0.05 avg300=0.01 total=123456`, and `full ...` (psi.rst)."""
    lines = {words[0]: dict(word.split(b"=") for word in words[1:]) for words in _lines(text)}
    some, full = lines[SOME], lines.get(FULL, {})
    return Pressure(
        some=float(some[b"avg10"]) / 100,
        full=float(full.get(b"avg10", 0)) / 100,
        some_total=int(some[b"total"]) / 1e6,
        full_total=int(full.get(b"total", 0)) / 1e6,
    )


def transferred(text: bytes) -> tuple[int, int]:
    """Bytes read and written, over all disks: of io.stat (v2) or blkio.throttle.io_service_bytes (v1)."""
    read = written = 0
    for words in _lines(text):
        if len(words) == 3 and words[1] == b"Read":
            read += int(words[2])
        elif len(words) == 3 and words[1] == b"Write":
            written += int(words[2])
        else:
            for word in words[1:]:
                name, _, value = word.partition(b"=")
                read += int(value) if name == b"rbytes" else 0
                written += int(value) if name == b"wbytes" else 0
    return read, written


def cpu_times(text: bytes) -> tuple[float, float, float]:
    """Seconds busy, idle (with waiting for disks) and stolen, from the first line of /proc/stat."""
    fields = [int(word) for word in text[: text.index(b"\n")].split()[1:]]
    user, nice, system, idle, waiting, irq, softirq, steal = (*fields, 0, 0, 0, 0)[:8]
    busy = user + nice + system + irq + softirq
    return busy / USER_HZ, (idle + waiting) / USER_HZ, steal / USER_HZ


def meminfo(text: bytes) -> tuple[int, int]:
    """MemTotal and MemAvailable in bytes."""
    found = _meminfo(text)
    return found.get(b"MemTotal:", 0), found.get(b"MemAvailable:", 0)


def working_set(text: bytes) -> int:
    """What is neither free nor page cache that was not used lately, bytes: as cAdvisor has it of a node."""
    found = _meminfo(text)
    idle = found.get(b"MemFree:", 0) + found.get(b"Inactive(file):", 0)
    return max(0, found.get(b"MemTotal:", 0) - idle)


def _meminfo(text: bytes) -> dict[bytes, int]:
    return {words[0]: int(words[1]) * 1024 for words in _lines(text) if len(words) > 1}


def paged(text: bytes) -> tuple[int, int]:
    """Bytes read from and written to block devices: pgpgin and pgpgout of /proc/vmstat, in KiB there."""
    found = {words[0]: int(words[1]) for words in _lines(text) if words[0] in (b"pgpgin", b"pgpgout")}
    return found.get(b"pgpgin", 0) * 1024, found.get(b"pgpgout", 0) * 1024


def detail(at: float, stat: bytes, events: bytes | None, io: bytes, *, unified: bool) -> MemoryDetail:
    """The details in memory.stat, memory.events and the disks' file; unified: as cgroup v2 writes them."""
    values = integers(stat)
    names = _V2_MEMORY if unified else _V1_MEMORY
    read, written = transferred(io)
    return MemoryDetail(
        at=at,
        anonymous=values.get(names[0], 0),
        file=values.get(names[1], 0),
        refaults=_sum(values, names[2:]),
        scanned=values.get(b"pgscan") if unified else None,
        oom_kills=integers(events).get(b"oom_kill") if events is not None else None,
        read=read,
        written=written,
    )


_V2_MEMORY: Final = (
    *(b"anon", b"file"),
    *(b"workingset_refault_anon", b"workingset_refault_file", b"workingset_refault"),
)
_V1_MEMORY: Final = (
    *(b"total_rss", b"total_cache"),
    *(b"total_workingset_refault_anon", b"total_workingset_refault_file", b"total_workingset_refault"),
)
"""Anonymous memory, page cache, and refaults, which kernels before 5.9 count as one."""


def _lines(text: bytes) -> Iterator[list[bytes]]:
    return (words for words in map(bytes.split, text.split(b"\n")) if words)


def _sum(values: Mapping[bytes, int], names: Iterable[bytes]) -> int:
    return sum(values.get(name, 0) for name in names)
