"""One of our processes at a time raises what containers share: between reading and writing no other may."""

import posix
import time

from kernel.refused import Refused

NAME = "hook.lock"
_FLAGS = posix.O_WRONLY | posix.O_CREAT | posix.O_NOFOLLOW | posix.O_CLOEXEC
_SHORTEST_PAUSE = 0.0005
_LONGEST_PAUSE = 0.005


def take(run: str, deadline: float) -> int:
    """Take RUN/hook.lock, until release() of what is answered or the end of this process.

    deadline: of time.monotonic(), seconds. Refused when another process holds it past the deadline. A process
    that takes it twice has it twice, and loses it with the first release: fcntl(2) says so.
    """
    path = f"{run}/{NAME}"
    pause = _SHORTEST_PAUSE
    file = -1
    try:
        file = posix.open(path, _FLAGS, 0o600)
        while not _taken(file):
            if time.monotonic() > deadline:
                raise Refused(f"{path} was held by another hook until the budget was used up")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
    except OSError as error:
        release(file)
        raise Refused(f"{path} cannot be locked: {error.strerror}") from None
    except Refused:
        release(file)
        raise
    return file


def release(file: int) -> None:
    """Let it go; -1: it was not taken."""
    if file >= 0:
        posix.close(file)


def _taken(file: int) -> bool:
    try:
        posix.lockf(file, posix.F_TLOCK, 0)
    except (BlockingIOError, PermissionError):  # EAGAIN or EACCES, as POSIX lets a system choose
        return False
    return True
