"""Live progress: one line a step; on a terminal also what is being waited for."""

from __future__ import annotations

import time
from typing import Protocol

from rich.console import Console
from rich.markup import escape


class Progress(Protocol):
    """Shows how far a run is."""

    def step(self, text: str) -> None:
        """A step begins."""
        ...

    def waiting(self, text: str) -> None:
        """What is being waited for, and what is seen at present."""
        ...

    def close(self) -> None:
        """The run is over."""
        ...


class LiveProgress:
    """Lines on a console; where it is a terminal, a line below them that changes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._status = console.status("") if console.is_terminal else None

    def step(self, text: str) -> None:
        """A step begins."""
        if self._status is not None:
            self._status.stop()
        seconds = time.monotonic() - self._began
        self._console.print(f"{seconds:6.1f} s  {text}", highlight=False, markup=False)

    def waiting(self, text: str) -> None:
        """What is being waited for, and what is seen at present."""
        if self._status is not None:
            self._status.update(escape(text[: max(20, self._console.width - 4)]))
            self._status.start()

    def close(self) -> None:
        """Take the changing line away."""
        if self._status is not None:
            self._status.stop()
