"""A rtnetlink socket, and how its messages are framed: requests many at a time, dumps, attributes.

pyroute2 would cost 11 MB of the agent's 80 and 0.4 ms for each change; `tc -batch` a process each time, and
a package in the image. Source: linux/netlink.h, linux/rtnetlink.h.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Self

REQUEST: Final = 0x1
ACK: Final = 0x4
DUMP: Final = 0x300
REPLACE: Final = 0x100
EXCLUSIVE: Final = 0x200
CREATE: Final = 0x400

_ERROR: Final = 2
_DONE: Final = 3
_FLAG_INTERRUPTED: Final = 0x10
_FLAG_CAPPED: Final = 0x100
_FLAG_TEXT: Final = 0x200
_TEXT: Final = 1

_ROUTE: Final = 0
_SOL_NETLINK: Final = 270
_CAP_ACK: Final = 10
_EXT_ACK: Final = 11
_STRICT_CHECK: Final = 12
_RCVBUFFORCE: Final = 33

_HEADER: Final = struct.Struct("=IHHII")
_ATTRIBUTE: Final = struct.Struct("=HH")
_I32: Final = struct.Struct("=i")
_NESTED: Final = 0x8000
_TYPE_MASK: Final = 0x3FFF

_BATCH: Final = 100
"""Requests in one system call: their answers must fit into the socket's buffer."""
_RECEIVE: Final = 1 << 16
_BUFFER: Final = 1 << 20
_TRIES: Final = 5
_SECONDS: Final = 30.0


class NetlinkError(OSError):
    """What the kernel refused: errno, and its own words where it has any."""


class Request(NamedTuple):
    """type: RTM_*. flags: beside REQUEST and ACK. body: the family's struct, then attributes."""

    type: int
    flags: int
    body: bytes


class Netlink:
    """A socket of the network namespace in which the calling thread is. For one thread at a time.

    Raises OSError where it cannot be had. Calls block while the kernel works: microseconds a request.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _ROUTE)
        try:
            for option in (_CAP_ACK, _EXT_ACK, _STRICT_CHECK):
                self._socket.setsockopt(_SOL_NETLINK, option, 1)
            enlarge(self._socket, _BUFFER)
            self._socket.settimeout(_SECONDS)
            self._socket.bind((0, 0))
            self.port: int = self._socket.getsockname()[0]
            """What the kernel's notifications of our own changes carry."""
        except BaseException:
            self._socket.close()
            raise
        self._sequence = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing more is asked."""
        self._socket.close()

    def apply(self, requests: Sequence[Request]) -> list[NetlinkError | None]:
        """Each request's outcome, in order; those after one that is refused are tried all the same."""
        outcomes: list[NetlinkError | None] = []
        for start in range(0, len(requests), _BATCH):
            outcomes += self._apply(requests[start : start + _BATCH])
        return outcomes

    def one(self, request: Request) -> None:
        """Raises NetlinkError when it is refused."""
        [refused] = self.apply([request])
        if refused is not None:
            raise refused

    def ask(self, requests: Sequence[Request]) -> list[bytes | NetlinkError]:
        """The body of each one's only answer, or why there is none, in order."""
        answers: list[bytes | NetlinkError] = []
        for start in range(0, len(requests), _BATCH):
            bodies: dict[int, bytes] = {}
            outcomes = self._apply(requests[start : start + _BATCH], bodies)
            answers += [refused or bodies.get(at, b"") for at, refused in enumerate(outcomes)]
        return answers

    def fileno(self) -> int:
        """For ioctls on interfaces of its namespace."""
        return self._socket.fileno()

    def dump(self, type_: int, body: bytes) -> list[bytes]:
        """The bodies of all answers. Raises NetlinkError."""
        try:
            return self._whole(type_, body)
        except NetlinkError as refused:
            if refused.errno != errno.EBUSY:
                raise
        self._drain()  # one before was given up half read, and goes on
        return self._whole(type_, body)

    def _whole(self, type_: int, body: bytes) -> list[bytes]:
        for _ in range(_TRIES):
            interrupted, bodies = self._dump(type_, body)
            if not interrupted:
                break
        return bodies  # changed while it was read each time: the next check reads it anew

    def _drain(self) -> None:
        """Read all that is there: the kernel makes the next part of a dump when one is read."""
        self._socket.settimeout(0)
        try:
            while True:
                self._socket.recv(_RECEIVE)
        except BlockingIOError:
            return
        finally:
            self._socket.settimeout(_SECONDS)

    def _apply(
        self, requests: Sequence[Request], bodies: dict[int, bytes] | None = None
    ) -> list[NetlinkError | None]:
        """bodies: what is answered beside that it was done, by position."""
        first = self._sequence + 1
        self._sequence += len(requests)
        data = b"".join(
            _HEADER.pack(16 + len(body), type_, REQUEST | ACK | flags, first + at, 0) + body
            for at, (type_, flags, body) in enumerate(requests)
        )
        self._socket.send(data)
        outcomes: dict[int, NetlinkError | None] = {}
        while len(outcomes) < len(requests):
            for type_, flags, sequence, body in _messages(self._socket.recv(_RECEIVE)):
                if not first <= sequence <= self._sequence:
                    continue
                if type_ == _ERROR:
                    outcomes[sequence - first] = _refusal(flags, body)
                elif bodies is not None:
                    bodies[sequence - first] = body
        return [outcomes[at] for at in range(len(requests))]

    def _dump(self, type_: int, body: bytes) -> tuple[bool, list[bytes]]:
        self._sequence += 1
        self._socket.send(_HEADER.pack(16 + len(body), type_, REQUEST | DUMP, self._sequence, 0) + body)
        bodies: list[bytes] = []
        interrupted = False
        while True:
            for kind, flags, sequence, answer in _messages(self._socket.recv(_RECEIVE)):
                if sequence != self._sequence:
                    continue
                interrupted |= bool(flags & _FLAG_INTERRUPTED)
                if kind in (_DONE, _ERROR):
                    refused = _refusal(flags, answer)
                    if refused is not None:
                        raise refused
                    return interrupted, bodies
                bodies.append(answer)


class Event(NamedTuple):
    """What the kernel tells who listens. port: of the socket that asked for the change, 0: the kernel."""

    type: int
    port: int
    body: bytes


def listen(groups: int) -> socket.socket:
    """A socket that does not block and gets events of this thread's network namespace. groups: a mask.

    Raises OSError.
    """
    listening = socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, _ROUTE
    )
    try:
        enlarge(listening, _BUFFER)
        listening.bind((0, groups))
    except BaseException:
        listening.close()
        raise
    return listening


def events(listening: socket.socket) -> list[Event]:
    """What has come, one read of it. Raises BlockingIOError: nothing; OSError ENOBUFS: some were lost."""
    data = listening.recv(_RECEIVE)
    found, offset = [], 0
    while offset + 16 <= len(data):
        length, type_, _, _, port = _HEADER.unpack_from(data, offset)
        found.append(Event(type_, port, data[offset + 16 : offset + length]))
        offset += _aligned(length)
    return found


def enlarge(of: socket.socket, size: int) -> None:
    """Its receive buffer, beyond the system's limit where we may."""
    try:
        of.setsockopt(socket.SOL_SOCKET, _RCVBUFFORCE, size)
    except PermissionError:
        of.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)


def attribute(type_: int, payload: bytes) -> bytes:
    """One attribute, padded."""
    length = 4 + len(payload)
    return _ATTRIBUTE.pack(length, type_) + payload + bytes(-length % 4)


def nested(type_: int, *attributes_: bytes) -> bytes:
    """An attribute of attributes."""
    return attribute(type_ | _NESTED, b"".join(attributes_))


def text(type_: int, value: str) -> bytes:
    """An attribute of a string, which ends with a zero."""
    return attribute(type_, value.encode() + b"\0")


def attributes(body: bytes, offset: int = 0) -> dict[int, bytes]:
    """Type -> payload of the attributes from the offset on; of those that are repeated the last."""
    found: dict[int, bytes] = {}
    end = len(body)
    while offset + 4 <= end:
        length, type_ = _ATTRIBUTE.unpack_from(body, offset)
        if length < 4:
            break
        found[type_ & _TYPE_MASK] = body[offset + 4 : offset + length]
        offset += _aligned(length)
    return found


def string(payload: bytes) -> str:
    """What an attribute of a string says."""
    return payload.rstrip(b"\0").decode(errors="replace")


def _aligned(length: int) -> int:
    return length + 3 & ~3


def _messages(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """(type, flags, sequence, body) of what one read gave."""
    offset = 0
    while offset + 16 <= len(data):
        length, type_, flags, sequence, _ = _HEADER.unpack_from(data, offset)
        yield type_, flags, sequence, data[offset + 16 : offset + length]
        offset += _aligned(max(length, 16))


def _refusal(flags: int, body: bytes) -> NetlinkError | None:
    """What an acknowledgement, or the end of a dump, says went wrong."""
    [number] = _I32.unpack_from(body) if len(body) >= 4 else (0,)
    if not number:
        return None
    words = ""
    if flags & _FLAG_TEXT:
        start = 20 if flags & _FLAG_CAPPED else 4
        words = string(attributes(body, start).get(_TEXT, b""))
    return NetlinkError(-number, words or os.strerror(-number))
