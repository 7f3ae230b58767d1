"""Progress of a long build: a bar on a terminal, a line every twentieth elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from lab.only_one import Report

CONTROL_PLANE = "Building a Kubernetes control plane from Go modules: about 5 minutes on 2 cores, once. "


@contextmanager
def build_progress(
    console: Console | None = None, *, introduction: str = CONTROL_PLANE, unit: str = "packages"
) -> Iterator[Report]:
    """A reporter for lab.binaries.provide() and lab.vm.image.provide(); silent as long as nothing is made."""
    console = console or Console(stderr=True)
    reporter = _Bar(console, introduction) if console.is_terminal else _Lines(introduction, unit)
    try:
        yield reporter
    finally:
        reporter.close()


class _Bar:
    def __init__(self, console: Console, introduction: str) -> None:
        self._introduction = introduction
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console)
        self._started = False

    def __call__(self, what: str, done: int, total: int) -> None:
        if not self._started:
            self._started = True
            self._progress.console.print(self._introduction)
            self._progress.start()
            self._task = self._progress.add_task(what, total=None)
        self._progress.update(self._task, description=what, completed=done, total=total or None)

    def close(self) -> None:
        """Leave the bar as it stands."""
        if self._started:
            self._progress.stop()


class _Lines:
    def __init__(self, introduction: str, unit: str) -> None:
        self._introduction, self._unit = introduction, unit
        self._said: tuple[str, int] | None = None

    def __call__(self, what: str, done: int, total: int) -> None:
        if self._said is None:
            sys.stderr.write(self._introduction + "\n")
        part = done * 20 // total if total else done // 100
        if self._said != (what, part):
            self._said = (what, part)
            count = f": {done} of {total} {self._unit}" if total else (f": {done}" if done else "")
            sys.stderr.write(f"{what}{count}\n")
            sys.stderr.flush()

    def close(self) -> None:
        """Nothing is open."""
