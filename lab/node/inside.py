"""Programs inside a real node: in all its namespaces, and in a cgroup of its own.

nsenter stays outside as the parent: it waits for the program and ends as the program did. Signals must go to
the program, because killing nsenter does not kill its child.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.runtimes.cgroups import Scratch
from lab.runtimes.programs import require

_JOIN = 'while [ "$1" != -- ]; do echo 0 >"$1/cgroup.procs" || exit 125; shift; done; shift; exec "$@"'
"""Move this shell into each cgroup before --, then become what follows."""
_NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup")


def joining(cgroup: Scratch, argv: Sequence[str | Path]) -> list[str]:
    """A command line that joins a cgroup in every hierarchy, then becomes argv."""
    folders = [str(folder) for folder in cgroup.folders()]
    return [str(require("sh")), "-c", _JOIN, "sh", *folders, "--", *map(str, argv)]


def entering(first: int, cgroup: Scratch, argv: Sequence[str | Path]) -> list[str]:
    """A command line that runs argv in the namespaces of process `first` and in a cgroup; it begins in /."""
    nsenter = [str(require("nsenter")), "--target", str(first), *_NAMESPACES, "--"]
    return joining(cgroup, [*nsenter, *argv])


class Inside(subprocess.Popen[str]):
    """A program inside a node, as subprocess.Popen: terminate(), kill() and send_signal() reach it."""

    def __init__(self, argv: Sequence[str], **options: Any) -> None:
        super().__init__(argv, text=True, **options)

    @property
    def program(self) -> int | None:
        """Pid of the program as the machine sees it; None: it is not started yet, or gone."""
        return next(children(self.pid), None)

    def send_signal(self, sig: int) -> None:
        """Send a signal to the program."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.program or self.pid, sig)


def environment(programs: Sequence[Path], more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Our environment, with the node's programs on PATH."""
    path = ":".join([*map(str, programs), os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    return os.environ | {"PATH": path} | dict(more or {})


def children(pid: int, proc: Path = Path("/proc")) -> Iterator[int]:
    """Pids of a process's children."""
    for entry in proc.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == pid:
                    yield int(entry.name)


def end(pid: int, sig: signal.Signals, seconds: float = 30.0) -> None:
    """Send a signal to the children of an nsenter and wait until it has ended as they did. TimeoutError."""
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            for child in children(pid):
                os.kill(child, sig)
            waiting = select.poll()
            waiting.register(handle, select.POLLIN)
            if not waiting.poll(seconds * 1000):
                raise TimeoutError(f"{sig.name} did not end the child of {pid} within {seconds:g} s")
        finally:
            os.close(handle)


def members(first: int, proc: Path = Path("/proc")) -> Iterator[int]:
    """Pids, as the machine sees them, of all processes in a node's PID namespace."""
    wanted = (proc / str(first) / "ns" / "pid").readlink()
    for entry in proc.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if (entry / "ns" / "pid").readlink() == wanted:
                    yield int(entry.name)
