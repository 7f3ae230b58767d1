"""Seeing cgroups as the node does: from a container with a cgroup namespace of its own.

There every path of /proc/PID/cgroup and of mountinfo begins at the container's own cgroup
(cgroup_namespaces(7)). With hostPID process 1 is the node's, and its namespace can be entered: CAP_SYS_PTRACE
shows it, CAP_SYS_ADMIN enters it.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Final

_CLONE_NEWCGROUP: Final = 0x02000000


def enter(proc: str = "/proc") -> bool:
    """Enter the cgroup namespace of process 1; False: we are in it already.

    For the calling thread and those that it starts: before there are others. OSError: it cannot be seen, or
    not entered.
    """
    try:
        return _enter(Path(proc, "1", "ns", "cgroup"), Path(proc, "self", "ns", "cgroup"))
    except OSError as error:
        raise OSError(
            error.errno,
            f"the node's cgroup namespace cannot be entered ({error.strerror}): it takes hostPID, "
            "CAP_SYS_PTRACE and CAP_SYS_ADMIN",
        ) from error


def _enter(theirs: Path, ours: Path) -> bool:
    if theirs.readlink() == ours.readlink():
        return False
    fd = os.open(theirs, os.O_RDONLY | os.O_CLOEXEC)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(fd, _CLONE_NEWCGROUP):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(fd)
    return True
