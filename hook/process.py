"""This process: whether it is root's, when it began, and its line on stderr."""

import posix
import time

STDERR = 2
KILLED_AFTER = 2.0
"""Seconds from the start of the process to the runtime's kill: the `timeout` in the hooks.d file."""
RESERVE = 0.3
"""Seconds of those that are left for putting back, the marker and the line."""

_READ = posix.O_RDONLY | posix.O_CLOEXEC
_AGAIN = posix.O_WRONLY | posix.O_APPEND | posix.O_NONBLOCK | posix.O_CLOEXEC | posix.O_NOCTTY
_KIND, _PIPE = 0o170000, 0o010000
_ALL_USERS = [b"0", b"0", b"4294967295"]
_START = 19
"""Where in /proc/PID/stat, counted from after the name, the start is: field 22 of proc(5)."""


def is_roots(proc: str) -> bool:
    """False in a user namespace, as of a rootless podman: the settings and cgroups there are not ours.

    True also where the kernel knows no user namespaces.
    """
    try:
        return _read(f"{proc}/self/uid_map").split() == _ALL_USERS
    except OSError:
        return True


def deadline(proc: str, budget: float) -> float:
    """On time.monotonic(): after the budget, but well before the runtime kills us.

    That one counts from the start of the process: in a throttled cgroup Python alone can take a second.
    """
    now = time.monotonic()
    try:
        age = _age(_read(f"{proc}/self/stat"))
    except (OSError, ValueError, IndexError):
        age = 0.0
    return now + min(budget, KILLED_AFTER - RESERVE - age)


def _age(stat: bytes) -> float:
    """Seconds since the process began; the kernel counts them in ticks of 10 ms."""
    ticks = int(stat.rpartition(b")")[2].split()[_START])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / posix.sysconf("SC_CLK_TCK")


def _read(path: str) -> bytes:
    file = posix.open(path, _READ)
    try:
        return posix.read(file, 4096)
    finally:
        posix.close(file)


def say(text: str) -> None:
    """One line on stderr, or nothing where it is closed, or is a pipe that nobody empties."""
    data = f"j10ce hook: {text}\n".encode()
    try:
        if posix.fstat(STDERR).st_mode & _KIND != _PIPE:
            posix.write(STDERR, data)
            return
        # Opened anew: the runtime has this pipe, too, and must not find it changed.
        pipe = posix.open(f"/proc/self/fd/{STDERR}", _AGAIN)
        try:
            posix.write(pipe, data)
        finally:
            posix.close(pipe)
    except OSError:
        pass
