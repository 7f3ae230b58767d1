"""How the demonstration waits."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Final

from lab.cluster import LabError

SECONDS: Final = 240.0
"""The longest wait for one thing, where the processor is emulated."""


def answers(url: str) -> bool:
    """Whether it answers with 200."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 - our own http URL
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def until(condition: Callable[[], bool], what: str, details: Callable[[], str] = str) -> None:
    """Wait; LabError names what did not come true."""
    if not comes_true(condition):
        raise LabError(f"not within {SECONDS:g} s: {what} {details()}".rstrip())


def comes_true(condition: Callable[[], bool]) -> bool:
    """Wait for it; False when it did not come."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
