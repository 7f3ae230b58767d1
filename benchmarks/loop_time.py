"""How long each pass holds an event loop: the CPU time of every callback, by the task that it belongs to.

CPU time, because a busy machine makes wall time say nothing. What a stand-in for the API server takes is left
out: in a cluster that is another process.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from asyncio.events import Handle
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

IGNORED: Final = "bench"
"""Tasks whose names begin so are the benchmark's own."""


@dataclass(frozen=True, slots=True)
class Pause:
    """One callback: in which phase, of what, how many seconds of CPU."""

    phase: str
    what: str
    seconds: float


@dataclass(slots=True)
class LoopTime:
    """Fed by `watching`; `phase` is what the benchmark does meanwhile."""

    phase: str = ""
    by_task: dict[tuple[str, str], float] = field(default_factory=dict)
    longest: dict[str, Pause] = field(default_factory=dict)
    most: dict[str, float] = field(default_factory=dict)
    _left_out: float = 0.0

    def note(self, what: str, seconds: float) -> None:
        """A callback ran."""
        key = self.phase, what
        self.by_task[key] = self.by_task.get(key, 0.0) + seconds
        self.most[what] = max(self.most.get(what, 0.0), seconds)
        before = self.longest.get(self.phase)
        if before is None or seconds > before.seconds:
            self.longest[self.phase] = Pause(self.phase, what, seconds)

    def of(self, phase: str, what: str = "") -> float:
        """Seconds of a phase: of one task, or of all."""
        return sum(
            spent for (when, whose), spent in self.by_task.items() if when == phase and what in ("", whose)
        )

    def longest_of(self, task: str) -> float:
        """Seconds of the longest callback of tasks whose name's first word this is."""
        return max((seconds for what, seconds in self.most.items() if what.split()[0] == task), default=0.0)

    @contextlib.contextmanager
    def outside(self) -> Iterator[None]:
        """What runs here is another process's in a cluster."""
        began = time.thread_time()
        try:
            yield
        finally:
            self._left_out += time.thread_time() - began

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Measure callbacks of asyncio's own loop (uvloop's cannot be seen; what it runs is the same)."""
        run = Handle._run

        def timed(handle: Handle) -> None:
            left_out, began = self._left_out, time.thread_time()
            try:
                run(handle)
            finally:
                seconds = time.thread_time() - began - (self._left_out - left_out)
                what = _owner(handle)
                if not what.startswith(IGNORED):
                    self.note(what, seconds)

        Handle._run = timed  # type: ignore[assignment, method-assign]
        try:
            yield
        finally:
            Handle._run = run  # type: ignore[method-assign]


def _owner(handle: Handle) -> str:
    """The task that a callback steps, or the callback's own name."""
    callback: Any = handle._callback  # type: ignore[attr-defined]
    of = getattr(callback, "__self__", None)
    if isinstance(of, asyncio.Task):
        name = of.get_name()
        return getattr(of.get_coro(), "__qualname__", name) if name.startswith("Task-") else name
    return str(getattr(callback, "__qualname__", type(callback).__name__))
