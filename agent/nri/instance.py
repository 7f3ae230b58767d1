"""One plugin a node: two that adjust the same container fail its creation, so the second one waits."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.asynccontextmanager
async def only_instance(
    path: Path,
    *,
    waiting: Callable[[], None] = lambda: None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    pause: float = 0.5,
) -> AsyncIterator[None]:
    """Hold the lock; `waiting` is called once if another holds it, and then it is tried every so often.

    The kernel gives it back when this process ends, however it ends. OSError: there can be no lock there.
    """
    file = os.open(path, _FLAGS, 0o600)
    try:
        while not _taken(file):
            waiting()
            waiting = _nothing
            await sleep(pause)
        yield
    finally:
        os.close(file)


def is_held(path: Path) -> bool:
    """Whether somebody holds that lock now. OSError: that cannot be seen."""
    try:
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _taken(file)
    finally:
        os.close(file)


def _nothing() -> None:
    pass


def _taken(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
