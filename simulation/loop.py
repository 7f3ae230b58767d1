"""An event loop whose time is virtual: when nothing is ready it jumps to the next timer. No I/O, no threads.

Every task belongs to a part (the extender, a scheduler, the world); to kill a part is to cancel its tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar, copy_context
from typing import Any

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


class _Clockwork:
    """In a selector's place: waiting is letting time pass."""

    def __init__(self) -> None:
        self.now = 0.0

    def select(self, timeout: float | None) -> list[Any]:
        """No file is ever ready."""
        if timeout is None:
            raise Stuck("nothing is ready and no timer is set")
        self.now += timeout
        return []

    def close(self) -> None:
        """Nothing to close."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Seconds from 0; deterministic if what runs on it is. `failed`: exceptions of tasks that died."""

    def __init__(self) -> None:
        super().__init__()
        self._clockwork = _Clockwork()
        self._selector = self._clockwork
        self._clock_resolution = 1e-9
        self.failed: list[BaseException | None] = []
        self.set_task_factory(_adopted)

    def time(self) -> float:
        """Virtual seconds since the beginning."""
        return self._clockwork.now

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
