"""What the kernel says of interfaces, default routes and network namespaces, by rtnetlink(7). Reads only.

A socket of our own and not pyroute2, which takes more memory than all of the agent's other modules for these
four questions. Nothing here needs a capability: a namespace is asked for by a process that is in it, which,
unlike opening /proc/PID/ns/net, is allowed to everybody.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

UP: Final = 0x1
LOOPBACK: Final = 0x8
LOWER_UP: Final = 0x10000
"""IFF_UP, IFF_LOOPBACK and IFF_LOWER_UP of linux/if.h: the last one is the carrier."""

_ERROR, _DONE = 2, 3
_GETLINK, _GETROUTE, _GETNSID = 18, 26, 90
_REQUEST, _DUMP, _INTERRUPTED = 0x1, 0x300, 0x10
_IFNAME, _LINK, _MASTER, _LINKINFO, _EXT_MASK, _LINK_NETNSID = 3, 5, 10, 18, 29, 37
_INFO_KIND: Final = 1
_SKIP_STATISTICS: Final = 1 << 3
_OIF, _PRIORITY, _MULTIPATH, _TABLE = 4, 6, 9, 15
_NSID, _PID = 1, 2
_TYPE: Final = 0x3FFF
"""NLA_TYPE_MASK: the two bits above say how a value is written."""
_MAIN_TABLE: Final = 254
_UNICAST: Final = 1

_HEADER: Final = struct.Struct("=IHHII")
_LINK_BODY: Final = struct.Struct("=BxHiII")
_ROUTE_BODY: Final = struct.Struct("=BBBBBBBBI")
_ATTRIBUTE: Final = struct.Struct("=HH")
_U32: Final = struct.Struct("=I")
_I32: Final = struct.Struct("=i")
_NEXT_HOP: Final = struct.Struct("=HBBi")

_BUFFER: Final = 256 * 1024
_SECONDS: Final = 5.0
"""For one part of an answer: the kernel has it at once, unless another holds its lock."""
_TRIES: Final = 5
_TOGETHER: Final = 64
"""Questions sent at once: their answers fit into a socket's buffer."""

_Attributes: TypeAlias = dict[int, memoryview]


@dataclass(frozen=True, slots=True)
class Interface:
    """An interface. kind: as its driver calls itself (veth, bond, vlan); "": hardware, and loopback.

    master: index of its bridge or bond, 0 none. peer: index of what it leads to (the other end of a veth, the
    parent of a VLAN), 0 none; namespace: that one's number as ours knows it, None where it is in ours.
    """

    index: int
    name: str
    flags: int = UP | LOWER_UP
    kind: str = ""
    master: int = 0
    peer: int = 0
    namespace: int | None = None


class DefaultRoute(NamedTuple):
    """A way to everywhere, of the main table. version: of IP. interfaces: indexes; several with ECMP."""

    version: int
    metric: int
    interfaces: tuple[int, ...]


class Netlink:
    """Questions to the kernel about the network namespace that the socket was opened in; OSError.

    opened: a NETLINK_ROUTE socket, taken over; None: one in the namespace of the calling thread.
    """

    def __init__(self, opened: socket.socket | None = None) -> None:
        self._socket = opened or open_socket()
        self._socket.settimeout(_SECONDS)
        self._number = 0

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def fileno(self) -> int:
        """Its file descriptor, for ioctls on interfaces of the same namespace."""
        return self._socket.fileno()

    def interfaces(self, kind: str = "") -> tuple[Interface, ...]:
        """All interfaces, or those of a kind; older kernels do not choose, so others may be among them.

        Asking gives the namespaces at the other ends their numbers.
        """
        attributes = _attribute(_EXT_MASK, _U32.pack(_SKIP_STATISTICS))
        if kind:
            attributes += _attribute(_LINKINFO, _attribute(_INFO_KIND, kind.encode()))
        body = _LINK_BODY.pack(socket.AF_UNSPEC, 0, 0, 0, 0) + attributes
        return tuple(map(_interface, self._dump(_GETLINK, body)))

    def interface(self, index: int) -> Interface | None:
        """One interface; None: there is no such."""
        body = _LINK_BODY.pack(socket.AF_UNSPEC, 0, index, 0, 0)
        (answer,) = self._ask(_GETLINK, [body + _attribute(_EXT_MASK, _U32.pack(_SKIP_STATISTICS))])
        return _interface(answer) if isinstance(answer, memoryview) else None

    def default_routes(self) -> tuple[DefaultRoute, ...]:
        """Of both versions of IP, in the kernel's order."""
        found = []
        for version, family in ((4, socket.AF_INET), (6, socket.AF_INET6)):
            body = _ROUTE_BODY.pack(family, 0, 0, 0, 0, 0, 0, 0, 0)
            routes = (_default_route(version, one) for one in self._dump(_GETROUTE, body))
            found += [route for route in routes if route is not None]
        return tuple(found)

    def namespaces_of(self, pids: Iterable[int]) -> dict[int, int]:
        """The number of the network namespace of each process; none for one that has ended, or whose
        namespace no interface here leads to. Only what interfaces() has numbered has a number.

        Numbers are given again when a namespace is gone: ask for both at once.
        """
        wanted = list(pids)
        bodies = [b"\0\0\0\0" + _attribute(_PID, _U32.pack(pid)) for pid in wanted]
        found: dict[int, int] = {}
        for start in range(0, len(bodies), _TOGETHER):
            answers = self._ask(_GETNSID, bodies[start : start + _TOGETHER])
            for pid, answer in zip(wanted[start:], answers, strict=False):
                if isinstance(answer, memoryview):
                    number = _I32.unpack(_attributes(answer[4:])[_NSID])[0]
                    found |= {pid: number} if number >= 0 else {}
        return found

    def _ask(self, kind: int, bodies: list[bytes]) -> list[memoryview | int]:
        """The answer to each, or the number of its error: such as say that something is not there."""
        first = self._number + 1
        self._socket.send(b"".join(self._message(kind, _REQUEST, body) for body in bodies))
        answers: dict[int, memoryview | int] = {}
        while len(answers) < len(bodies):
            for what, _, number, body in self._received():
                if number < first:
                    continue  # the rest of a question that was given up
                answers[number] = -_I32.unpack_from(body)[0] if what == _ERROR else body
        for answer in answers.values():
            if isinstance(answer, int) and answer not in _ABSENT:
                raise OSError(answer, f"rtnetlink: {os.strerror(answer)}")
        return [answers[number] for number in sorted(answers)]

    def _dump(self, kind: int, body: bytes) -> list[memoryview]:
        """All of a kind, as they were at one moment."""
        for _ in range(_TRIES):
            found, whole = self._dumped(kind, body)
            if whole:
                return found
        raise OSError(errno.EAGAIN, "rtnetlink: interfaces or routes change faster than they can be read")

    def _dumped(self, kind: int, body: bytes) -> tuple[list[memoryview], bool]:
        self._socket.send(self._message(kind, _REQUEST | _DUMP, body))
        asked, found, whole = self._number, list[memoryview](), True
        while True:
            for what, flags, number, part in self._received():
                if number != asked:
                    continue
                whole = whole and not flags & _INTERRUPTED
                if what == _ERROR and (code := -_I32.unpack_from(part)[0]):
                    raise OSError(code, f"rtnetlink: {os.strerror(code)}")
                if what in (_DONE, _ERROR):
                    return found, whole
                found.append(part)

    def _message(self, kind: int, flags: int, body: bytes) -> bytes:
        self._number += 1
        return _HEADER.pack(_HEADER.size + len(body), kind, flags, self._number, 0) + body

    def _received(self) -> Iterator[tuple[int, int, int, memoryview]]:
        """Type, flags, number and body of the messages that come next; one at least."""
        data = memoryview(self._socket.recv(_BUFFER))
        while len(data) >= _HEADER.size:
            length, kind, flags, number, _ = _HEADER.unpack_from(data)
            yield kind, flags, number, data[_HEADER.size : length]
            data = data[(length + 3) & ~3 :]


_ABSENT: Final = (errno.ENODEV, errno.ESRCH, errno.ENOENT)
"""No such interface, no such process, and a process that is ending."""


def open_socket() -> socket.socket:
    """A socket for Netlink in the network namespace of the calling thread. OSError."""
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)


def _attribute(kind: int, value: bytes) -> bytes:
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)


def _attributes(data: memoryview) -> _Attributes:
    found: _Attributes = {}
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        found[kind & _TYPE] = data[_ATTRIBUTE.size : length]
        data = data[max((length + 3) & ~3, _ATTRIBUTE.size) :]
    return found


def _text(value: memoryview | None) -> str:
    return bytes(value or b"").rstrip(b"\0").decode(errors="replace")


def _interface(message: memoryview) -> Interface:
    _, _, index, flags, _ = _LINK_BODY.unpack_from(message)
    found = _attributes(message[_LINK_BODY.size :])
    info = _attributes(found[_LINKINFO]) if _LINKINFO in found else {}
    return Interface(
        index,
        _text(found.get(_IFNAME)),
        flags,
        _text(info.get(_INFO_KIND)),
        _U32.unpack(found[_MASTER])[0] if _MASTER in found else 0,
        _U32.unpack(found[_LINK])[0] if _LINK in found else 0,
        _I32.unpack(found[_LINK_NETNSID])[0] if _LINK_NETNSID in found else None,
    )


def _default_route(version: int, message: memoryview) -> DefaultRoute | None:
    _, length, _, _, table, _, _, kind, _ = _ROUTE_BODY.unpack_from(message)
    if length or kind != _UNICAST:
        return None
    found = _attributes(message[_ROUTE_BODY.size :])
    if (_U32.unpack(found[_TABLE])[0] if _TABLE in found else table) != _MAIN_TABLE:
        return None
    metric = _U32.unpack(found[_PRIORITY])[0] if _PRIORITY in found else 0
    if _MULTIPATH in found:
        return DefaultRoute(version, metric, tuple(_next_hops(found[_MULTIPATH])))
    return DefaultRoute(version, metric, (_U32.unpack(found[_OIF])[0],)) if _OIF in found else None


def _next_hops(data: memoryview) -> Iterator[int]:
    while len(data) >= _NEXT_HOP.size:
        length, _, _, index = _NEXT_HOP.unpack_from(data)
        yield index
        data = data[max((length + 3) & ~3, _NEXT_HOP.size) :]
