"""bpf(2), by ctypes: Python has no binding of it. Commands and their attributes as in linux/bpf.h.

Attributes are packed bytes, as long as this file knows them: the kernel takes the rest of `union bpf_attr` as
0. Needs CAP_BPF and CAP_NET_ADMIN, before kernel 5.8 CAP_SYS_ADMIN.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import resource
from enum import IntEnum
from typing import Final

_NUMBERS: Final = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361}
"""The number of the system call, by machine: asm/unistd.h.
Our objects are little-endian, and so are these.
"""
_TRIES: Final = 5
"""A signal may interrupt the verifier (EAGAIN); libbpf tries as often."""


class Command(IntEnum):
    """`enum bpf_cmd` of linux/bpf.h, as far as used here."""

    MAP_CREATE = 0
    MAP_LOOKUP = 1
    MAP_UPDATE = 2
    MAP_DELETE = 3
    MAP_NEXT_KEY = 4
    PROG_LOAD = 5
    OBJ_PIN = 6
    OBJ_GET = 7
    PROG_TEST_RUN = 10
    PROG_GET_FD = 13
    OBJ_INFO = 15
    PROG_QUERY = 16
    BTF_LOAD = 18
    MAP_LOOKUP_BATCH = 24
    MAP_UPDATE_BATCH = 26
    MAP_DELETE_BATCH = 27
    LINK_CREATE = 28
    LINK_UPDATE = 29
    LINK_GET_FD = 30
    LINK_DETACH = 34


class BpfError(OSError):
    """The kernel refused a call; it names the object, and what to do where that is known."""

    def __init__(self, number: int, what: str, advice: str = "") -> None:
        super().__init__(number, f"{what}: {_meaning(number)}" + (f"; {advice}" if advice else ""))


def call(command: Command, attributes: bytes | bytearray, what: str) -> int:
    """One bpf(2); what the kernel answers in the attributes is written to a bytearray.

    what: the object, for errors. Returns a descriptor, or 0. Raises BpfError.
    """
    number = _NUMBERS.get(platform.machine())
    if number is None:
        raise BpfError(errno.ENOSYS, what, f"bpf(2) is not known here for {platform.machine()}")
    attr = attributes if isinstance(attributes, bytearray) else bytearray(attributes)
    where, size = ctypes.c_void_p(address(attr)), ctypes.c_uint(len(attr))
    raised = False
    tries = 0
    while True:
        result = int(_libc().syscall(number, int(command), where, size))
        if result >= 0:
            return result
        failed = ctypes.get_errno()
        tries += 1
        if failed == errno.EAGAIN and tries < _TRIES:
            continue
        if failed == errno.EPERM and command in (Command.MAP_CREATE, Command.PROG_LOAD) and not raised:
            raised = True
            if _lift_memory_limit():
                continue
        raise BpfError(failed, what, _advice(failed))


def address(buffer: bytearray) -> int:
    """Where a buffer begins in memory: for the attributes, as long as the buffer lives and keeps its
    length.
    """
    return ctypes.addressof((ctypes.c_char * len(buffer)).from_buffer(buffer)) if buffer else 0


def close(*descriptors: int) -> None:
    """Close them; what the kernel holds by pins and links goes on."""
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)


_cached: ctypes.CDLL | None = None


def _libc() -> ctypes.CDLL:
    global _cached  # noqa: PLW0603  (opened when it is first needed)
    if _cached is None:
        _cached = ctypes.CDLL(None, use_errno=True)
        _cached.syscall.restype = ctypes.c_long
    return _cached


def _lift_memory_limit() -> bool:
    """Before kernel 5.11 maps and programs count as locked memory. Whether a new try may do better."""
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    if resource.getrlimit(resource.RLIMIT_MEMLOCK) == unlimited:
        return False
    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, unlimited)
    except (OSError, ValueError):
        return False
    return True


def _meaning(number: int) -> str:
    return "not supported (524)" if number == ENOTSUPP else os.strerror(number)


def _advice(number: int) -> str:
    if number == errno.EPERM:
        return "it needs root, or CAP_BPF and CAP_NET_ADMIN"
    if number == errno.ENOSYS:
        return "this kernel is without CONFIG_BPF_SYSCALL"
    return ""


ENOTSUPP: Final = 524
"""The kernel's own, which some map operations answer with; errno does not know it."""
