"""Work in another network namespace: in a thread that ends with it, never in one that goes on.

A socket stays in the namespace in which it was made, whoever uses it later.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

_CLONE_NEWNET: Final = 0x40000000

T = TypeVar("T")


def in_new(work: Callable[[], T]) -> T:
    """The work's result, done in a namespace of its own, which is gone with the last of its sockets.

    Raises what the work raises; OSError where no namespace can be made: that needs CAP_SYS_ADMIN.
    """
    return _in_thread(lambda: _call("unshare", _CLONE_NEWNET), work)


def inside(path: Path, work: Callable[[], T]) -> T:
    """The same in the namespace of a file, such as /run/netns/NAME or /proc/PID/ns/net."""

    def enter() -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _call("setns", fd, _CLONE_NEWNET)
        finally:
            os.close(fd)

    return _in_thread(enter, work)


def _call(name: str, *arguments: int) -> None:
    """unshare and setns are not in Python 3.11's os."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _in_thread(enter: Callable[[], None], work: Callable[[], T]) -> T:
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            enter()
            results.append(work())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, name="network-namespace")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]
