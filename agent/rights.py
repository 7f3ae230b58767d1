"""What this process may do: a capability that is not needed any more is given up (capabilities(7))."""

from __future__ import annotations

import ctypes
import os
from typing import Final

SYS_PTRACE: Final = 19
"""Number of CAP_SYS_PTRACE."""
_VERSION: Final = 0x20080522
"""_LINUX_CAPABILITY_VERSION_3 of linux/capability.h: two words of 32 bits."""


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Words(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def give_up(capability: int) -> None:
    """Take it out of the effective, permitted and inheritable set, for good.

    For the calling thread and those that it starts: before there are others. What it executes gets it back
    where the process is root's and may gain privileges (no_new_privs is not set). Nothing happens where it
    is not there. OSError where the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    header, words = _Header(_VERSION, 0), (_Words * 2)()
    _checked(libc.capget(ctypes.byref(header), words))
    word, kept = words[capability // 32], ~(1 << capability % 32)
    word.effective &= kept
    word.permitted &= kept
    word.inheritable &= kept
    _checked(libc.capset(ctypes.byref(header), words))


def _checked(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"capabilities of this process: {os.strerror(number)}")
