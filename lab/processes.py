"""Processes that belong to a folder: pid files, checks that a pid still is the process it was, and their end.

Standard library only, so that the reaper (lab/reaper.py) stays small. Linux: reads /proc.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

PROC = Path("/proc")


def argv_of(pid: int) -> list[str]:
    """Command line of a running process; empty when it is gone, a zombie, or not ours to read."""
    try:
        raw = (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return []
    return [part.decode(errors="replace") for part in raw.split(b"\0") if part]


def start_time(pid: int) -> str:
    """Clock ticks after boot at which a process started, empty when gone: with the pid, a name for good."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]


def exit_on_sigterm() -> None:
    """From now on SIGTERM ends this process as sys.exit does, so that `finally` blocks undo what was made.

    The first one only: what comes while that goes on is ignored. Call it in the main thread.
    """

    def end(number: int, _: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, end)


def belongs(pid: int, folder: Path) -> bool:
    """True when one of the process's arguments lies in the folder: a pid that was used anew does not."""
    prefix = f"{folder}/"
    return any(prefix in argument for argument in argv_of(pid))


def spawn(argv: Sequence[str], *, log: Path, pid_file: Path) -> int:
    """Start a process in a session of its own; its output is appended to log, its pid written to pid_file."""
    pid_file.parent.mkdir(parents=True, exist_ok=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    pid = os.posix_spawn(argv[0], list(argv), os.environ, file_actions=actions, setsid=True)
    pid_file.write_text(str(pid))
    while not argv_of(pid) and start_time(pid):  # its arguments appear a moment after the spawn
        time.sleep(0.001)
    return pid


def recorded(pid_file: Path, folder: Path) -> int | None:
    """Pid in a pid file, if that process still runs and belongs to the folder."""
    try:
        pid = int(pid_file.read_text())
    except (OSError, ValueError):
        return None
    _reap(pid)
    return pid if belongs(pid, folder) else None


def end(pids: Iterable[int], folder: Path, sig: signal.Signals, *, seconds: float = 30.0) -> None:
    """Send a signal to those processes that belong to the folder and wait until they are gone; TimeoutError
    names the rest.

    Gone means that all threads have ended: their files, locks and ports are free again.
    """
    with contextlib.ExitStack() as stack:
        handles = _handles(pids, folder, stack)
        for handle in handles:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, sig)
        waiting = select.poll()
        for handle in handles:
            waiting.register(handle, select.POLLIN)
        deadline = time.monotonic() + seconds
        while handles:
            ready = waiting.poll(max(0.0, deadline - time.monotonic()) * 1000)
            if not ready:
                left = sorted(handles.values())
                raise TimeoutError(
                    f"{sig.name} did not end {left} within {seconds:g} s ({argv_of(left[0])[:1]})"
                )
            for handle, _ in ready:
                waiting.unregister(handle)
                _reap(handles.pop(handle))


def _handles(pids: Iterable[int], folder: Path, stack: contextlib.ExitStack) -> dict[int, int]:
    """A pidfd for each process of the folder, looked at while it is open: no pid used anew is meant."""
    handles = {}
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            stack.callback(os.close, handle)
            if belongs(pid, folder):
                handles[handle] = pid
    return handles


def started_from(folder: Path) -> Iterator[int]:
    """Pids of running processes whose program lies in the folder, pid file or not."""
    prefix = f"{folder}/"
    for entry in PROC.iterdir():
        if entry.name.isdigit() and next(iter(argv_of(int(entry.name))), "").startswith(prefix):
            yield int(entry.name)


def of_folder(folder: Path) -> list[int]:
    """All processes of a folder: those with a pid file anywhere in it, and those started from it."""
    found = {pid for file in _pid_files(folder) if (pid := recorded(file, folder)) is not None}
    return sorted(found | set(started_from(folder)))


def _pid_files(folder: Path) -> Iterator[Path]:
    """os.walk passes over what is removed meanwhile: a node's containers come and go below."""
    for at, _, names in os.walk(folder):
        yield from (Path(at, name) for name in names if name.endswith(".pid"))


def _reap(pid: int) -> None:
    """Collect the exit status if the process is our child, so that no zombie stays."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
