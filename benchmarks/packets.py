"""Packets by the thousand, many a system call: what is measured is the kernel's part, not Python's."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import time
from collections.abc import Sequence
from typing import Final, Self

_BATCH: Final = 512
_NOBODY: Final = bytes.fromhex("020000000001")
"""Nobody's address: the other end drops what is sent to it before it looks further."""
_UDP: Final = 17


class _IoVec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_char_p), ("length", ctypes.c_size_t))


class _Header(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_void_p), ("name_length", ctypes.c_uint32), ("iov", ctypes.POINTER(_IoVec)),
        ("iov_count", ctypes.c_size_t), ("control", ctypes.c_void_p), ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )  # fmt: skip


class _Message(ctypes.Structure):
    _fields_ = (("header", _Header), ("length", ctypes.c_uint32))


class Packets:
    """UDP datagrams of IPv4 from these sources (4 bytes each) in turn, sent through an interface's qdisc.

    Made in the network namespace of the calling thread. size: of a frame, bytes.
    """

    def __init__(self, interface: str, sources: Sequence[bytes], size: int = 60) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._socket.bind((interface, 0x0800))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        frames = [_frame(source, size) for source in sources]
        vectors = (_IoVec * _BATCH)(*(_IoVec(frames[at % len(frames)], size) for at in range(_BATCH)))
        self._messages = (_Message * _BATCH)()
        for at in range(_BATCH):
            self._messages[at].header.iov = ctypes.pointer(vectors[at])
            self._messages[at].header.iov_count = 1
        self._kept = frames, vectors
        self._send = ctypes.CDLL(None, use_errno=True).sendmmsg

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self) -> int:
        """Some hundred; how many the kernel took: 0 where a queue is full."""
        sent = int(self._send(self._socket.fileno(), ctypes.byref(self._messages), _BATCH, 0))
        if sent < 0 and ctypes.get_errno() == errno.ENOBUFS:
            return 0
        if sent < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return sent

    def nanoseconds(self, count: int) -> float:
        """CPU time of one packet, of so many at least: with what the other end does, in the same thread."""
        sent, began = 0, time.thread_time_ns()
        while sent < count:
            sent += self.send()
        return (time.thread_time_ns() - began) / sent


def _frame(source: bytes, size: int) -> bytes:
    ethernet = _NOBODY + bytes(6) + b"\x08\x00"
    length = size - len(ethernet)
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, length, 0, 0, 64, _UDP, 0, source, bytes([10, 200, 0, 1]))
    udp = struct.pack("!HHHH", 9, 9, length - len(ip), 0)
    return (ethernet + ip + udp).ljust(size, b"\0")
