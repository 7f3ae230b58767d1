"""What the installation depends on: who we are, who else installs, which hooks run."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hook.installation.errors import InstallationError


def refuse_unprivileged(what: str) -> None:
    """InstallationError for anyone but root: the runtime runs the hook as root, so root must own it."""
    if os.geteuid() != 0:
        raise InstallationError(
            f"`j10ce hook {what}` is for root (you are uid {os.geteuid()}): the hook runs as root, "
            f"so root alone may own it. Try it with sudo"
        )


@contextmanager
def alone(home: Path) -> Iterator[None]:
    """Nobody else installs or uninstalls during the block; InstallationError when somebody does."""
    file = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise InstallationError(
            f"{home}: another `j10ce hook` is at work; try again when it has ended"
        ) from error
    finally:
        os.close(file)


def users(path: Path, proc: Path = Path("/proc")) -> list[int]:
    """Processes that name the path in their command line: hooks that run from it."""
    word = os.fsencode(path)
    return [pid for pid, words in command_lines(proc) if pid != os.getpid() and word in words]


def command_lines(proc: Path = Path("/proc")) -> Iterator[tuple[int, list[bytes]]]:
    """Every process' pid and words; those that end meanwhile are left out."""
    for entry in proc.iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            yield int(entry.name), words.split(b"\0")
