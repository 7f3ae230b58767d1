"""An event loop whose time is virtual: when nothing is ready it jumps to the next timer. No I/O, no threads.

Every task belongs to a part (the extender, a scheduler, the world); to kill a part is to cancel its tasks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from typing import Any, TypeVarTuple

Args = TypeVarTuple("Args")
_RESOLUTION = 1e-9
"""Seconds: timers so close are due together."""
_PART: ContextVar[Part] = ContextVar("part")


class Stuck(Exception):  # noqa: N818 - what happened
    """Nothing is ready and no timer is set: nothing will ever happen again."""


class Part:
    """The tasks of one process, wherever they were started from within it."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._context = copy_context()
        self._context.run(_PART.set, self)
        self.alive = True

    def start(self, work: Coroutine[Any, Any, Any], name: str = "") -> asyncio.Task[Any]:
        """Run this as one of the part's tasks."""
        return self._loop.create_task(work, name=name or None, context=self._context)

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run this within the part: tasks that it starts are the part's."""
        return self._context.run(function, *args)

    def kill(self) -> None:
        """End the process at once."""
        self.alive = False
        for task in list(self._tasks):
            task.cancel()
        self._tasks.clear()

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Count a task in until it is done."""
        self._tasks[task] = None
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            self._loop.failed.append(task.exception())


class _Call(asyncio.TimerHandle):
    """A callback, and nothing else: asyncio's own take longer to make than most take to run."""

    __slots__ = ("args", "callback", "context", "over")

    def __init__(self, callback: Callable[..., Any], args: tuple[Any, ...], context: Context | None) -> None:
        self.callback, self.args = callback, args
        self.context = copy_context() if context is None else context
        self.over = False

    def cancel(self) -> None:
        """Do not call it; it stays where it waits."""
        self.over = True

    def cancelled(self) -> bool:
        """Whether it will not be called."""
        return self.over

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __lt__(self, _other: object) -> bool:
        """None comes before another of the same time."""
        return False


class VirtualLoop(asyncio.BaseEventLoop):
    """Seconds from 0; deterministic if what runs on it is. `failed`: exceptions of tasks that died."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._stopping = False
        self._calls: deque[_Call] = deque()
        self._timers: list[tuple[float, _Call]] = []
        self.failed: list[BaseException | None] = []
        self.set_task_factory(_adopted)

    def time(self) -> float:
        """Virtual seconds since the beginning."""
        return self._now

    def call_soon(
        self, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.Handle:
        """As asyncio's."""
        call = _Call(callback, args, context)
        self._calls.append(call)
        return call

    def call_later(
        self, delay: float, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As asyncio's."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As asyncio's."""
        call = _Call(callback, args, context)
        heappush(self._timers, (when, call))
        return call

    def _run_once(self) -> None:
        """Until it is stopped: call what is ready, then let time pass to the next timer."""
        calls, timers = self._calls, self._timers
        while not self._stopping:
            while timers and timers[0][1].over:
                heappop(timers)
            if not calls:
                if not timers:
                    raise Stuck("nothing is ready and no timer is set")
                self._now += max(0.0, timers[0][0] - self._now)
            end = self._now + _RESOLUTION
            while timers and timers[0][0] < end:
                calls.append(heappop(timers)[1])
            self._call_all(len(calls))

    def _call_all(self, count: int) -> None:
        """Call the next so many."""
        take = self._calls.popleft
        for _ in range(count):
            call = take()
            if call.over:
                continue
            try:
                call.context.run(call.callback, *call.args)
            except (Exception, asyncio.CancelledError) as error:
                self.call_exception_handler({"message": "a callback failed", "exception": error})

    def close(self) -> None:
        """Nothing is called any more."""
        super().close()
        self._calls.clear()
        self._timers.clear()

    def _process_events(self, event_list: Any) -> None:
        """Nothing comes from outside."""

    def _write_to_self(self) -> None:
        """Nobody calls from another thread."""


def _adopted(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
    **options: Any,
) -> asyncio.Task[Any]:
    task = asyncio.Task(work, loop=loop, **options)
    context = options.get("context")
    part = context.get(_PART) if context is not None else _PART.get(None)
    if part is not None:
        part.adopt(task)
    return task
