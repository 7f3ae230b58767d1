"""How long a pod's threads have waited for a CPU, where no PSI says it: v1, or a kernel without.

Read only where it can matter, because it costs a file a thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

from agent.monitor.samples import PodSample

SETTLE_SECONDS: Final = 5.0
"""A wait is counted when it ends, so the shares of a second mean little; of five seconds they do."""
MOST_OF_A_POD: Final = 1000
"""The most threads that are looked at; with more of them the count is a lower bound."""
MOST_AT_ONCE: Final = 600
"""The most threads a tick: some 4 ms. The remaining pods have their turn at a later tick."""
PRICE_OF_A_POD: Final = 4
"""What listing a pod's threads costs, in threads."""
QUIET: Final = 0.02
"""Where less than this share of the time was spent waiting for a CPU on a node, no pod there is kept from its
floor.
"""


class Step(Enum):
    """What is done about a pod's waiting when due. KEEP: it is as it was; FORGET: it does not matter."""

    READ = "read"
    KEEP = "keep"
    FORGET = "forget"


def step(before: PodSample | None, now: PodSample, cpus: float, *, known: bool, quiet: bool) -> Step:
    """What to do, given the sample that was settled last. Pure.

    cpus: the floor. known: whether the count up to `before` is known. quiet: nothing waits on this node. A
    pod that has not run since has not waited to its end.
    """
    if before is not None:
        if now.cpu - before.cpu >= cpus * (now.at - before.at):
            return Step.FORGET
        if known and now.cpu == before.cpu:
            return Step.KEEP
    return Step.FORGET if quiet else Step.READ


Counts = Mapping[str, tuple[int, int]]
"""Thread id -> nanoseconds that it has run, and that it has waited for a CPU."""


def waited(before: Counts, now: Counts, used: float, cpus: float, *, complete: bool = True) -> float:
    """Seconds that a pod was kept waiting by others, of each CPU of its floor, at the least. Pure.

    Between two readings, in which the pod used `used` seconds of CPU. One thread can use one CPU, so of the
    threads that ran or waited longest as many are asked as the floor has CPUs. While these waited, others of
    the pod may have run: all that others used is taken off, because threads that queue behind their own pod's
    are not kept from anything. A new thread's count is taken whole, but not where the first reading was not
    `complete`. The last waits of a thread that has ended are lost.
    """
    grown = []
    for one, (run, delay) in now.items():
        if complete or one in before:
            ran, delayed = before.get(one, (0, 0))
            grown.append((max(0, run - ran) / 1e9, max(0, delay - delayed) / 1e9))
    count = max(1, math.ceil(cpus))
    longest = sorted(grown, key=sum)[-count:]
    others = max(0.0, used - sum(run for run, _ in longest))
    return max(0.0, sum(delay for _, delay in longest) - others) / max(1.0, cpus)


class Delays:
    """One cgroup's waiting as a counter of seconds, read at `first`, then at least `seconds` apart."""

    __slots__ = ("_first", "_seconds", "_settled", "_threads", "_total", "_used")

    def __init__(self, seconds: float, first: float) -> None:
        self._seconds, self._first = seconds, first
        self._total = 0.0
        self._used = 0.0
        self._threads: Counts | None = None
        self._settled: PodSample | None = None

    def due(self, at: float) -> bool:
        """Whether it may be settled now."""
        return at - self._settled.at >= self._seconds if self._settled else at >= self._first

    def settle(
        self, now: PodSample, cpus: float, read: Callable[[], Counts | None], *, quiet: bool
    ) -> PodSample:
        """The sample, settled or as it is; when due. read: None where no more threads may be read now."""
        chosen = step(self._settled, now, cpus, known=self._threads is not None, quiet=quiet)
        if chosen is Step.READ:
            threads = read()
            if threads is None:
                return now
            self._count(threads, now.cpu, cpus)
        if chosen is Step.FORGET:
            self._threads = None
        delayed = None if self._threads is None else self._total
        self._settled = now._replace(cpu_delayed=delayed, settled=True)
        return self._settled

    def _count(self, threads: Counts, used: float, cpus: float) -> None:
        if self._threads is not None:
            complete = len(self._threads) < MOST_OF_A_POD
            self._total += waited(self._threads, threads, used - self._used, cpus, complete=complete)
        self._threads, self._used = threads, used
