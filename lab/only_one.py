"""One process at a time does a long thing; whoever has to wait hears of it."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Report = Callable[[str, int, int], None]
"""Called with what is under way, how many parts of it are done, and of how many (0: unknown)."""


@contextmanager
def only_one(lock: Path, waiting: str, report: Report) -> Iterator[None]:
    """Hold a lock file, made where it is missing; `waiting` is reported when another process holds it."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(waiting, 0, 0)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
