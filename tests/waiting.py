"""What tests wait by: a condition that is asked until a deadline, and work that goes on for a block."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine

SECONDS = 60.0
_PAUSE = 0.005


async def eventually(condition: Callable[[], object], what: str = "it", seconds: float = SECONDS) -> None:
    """Let the loop go on until this is true. AssertionError names what was waited for."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(_PAUSE)


def until(
    condition: Callable[[], object], what: str, seconds: float = SECONDS, details: Callable[[], str] = str
) -> None:
    """The same where no loop runs: for what other processes do. details: why it may not have come."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what} {details()}".rstrip()
        time.sleep(_PAUSE)


@contextlib.asynccontextmanager
async def running(work: Coroutine[object, object, None]) -> AsyncIterator[None]:
    """The work goes on whenever the block waits, and is cancelled after it."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
