"""What the kernel says of interfaces, default routes and network namespaces. Reads only.

Nothing here needs a capability: a namespace is asked for by a process that is in it, which, unlike opening
/proc/PID/ns/net, is allowed to everybody. Source: linux/if_link.h, linux/rtnetlink.h, linux/net_namespace.h.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from agent.network.netlink import Netlink, Request, attribute, attributes, nested, string, text

UP: Final = 0x1
LOOPBACK: Final = 0x8
LOWER_UP: Final = 0x10000
"""IFF_UP, IFF_LOOPBACK and IFF_LOWER_UP of linux/if.h: the last one is the carrier."""
VETH: Final = "veth"

_GETLINK, _GETROUTE, _GETNSID = 18, 26, 90
_IFNAME, _LINK, _MASTER, _LINKINFO, _EXT_MASK, _LINK_NETNSID = 3, 5, 10, 18, 29, 37
_INFO_KIND: Final = 1
_SKIP_STATISTICS: Final = 1 << 3
_OIF, _PRIORITY, _MULTIPATH, _TABLE = 4, 6, 9, 15
_NSID, _PID = 1, 2
_MAIN_TABLE: Final = 254
_UNICAST: Final = 1

_ANY: Final = bytes(4)
"""struct rtgenmsg, of any family."""
_LINK_BODY: Final = struct.Struct("=BxHiII")
_ROUTE_BODY: Final = struct.Struct("=BBBBBBBBI")
_U32: Final = struct.Struct("=I")
_I32: Final = struct.Struct("=i")
_NEXT_HOP: Final = struct.Struct("=HBBi")


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


def interfaces(netlink: Netlink, kind: str = "") -> tuple[Interface, ...]:
    """All interfaces, or those of a kind. OSError.

    Asking gives the namespaces at the other ends their numbers.
    """
    body = _LINK_BODY.pack(socket.AF_UNSPEC, 0, 0, 0, 0) + attribute(_EXT_MASK, _U32.pack(_SKIP_STATISTICS))
    if kind:
        body += nested(_LINKINFO, text(_INFO_KIND, kind))
    found = map(_interface, netlink.dump(_GETLINK, body))
    return tuple(one for one in found if kind in ("", one.kind))  # older kernels do not choose


def default_routes(netlink: Netlink) -> tuple[DefaultRoute, ...]:
    """Of both versions of IP, in the kernel's order. OSError."""
    found = []
    for version, family in ((4, socket.AF_INET), (6, socket.AF_INET6)):
        body = _ROUTE_BODY.pack(family, 0, 0, 0, 0, 0, 0, 0, 0)
        routes = (_default_route(version, one) for one in netlink.dump(_GETROUTE, body))
        found += [route for route in routes if route is not None]
    return tuple(found)


def namespaces_of(netlink: Netlink, pids: Iterable[int]) -> dict[int, int]:
    """The number of the network namespace of each process. OSError.

    None for one that has ended, or whose namespace no interface here leads to. Only what interfaces() has
    numbered has a number, and numbers are given again when a namespace is gone: ask for both at once.
    """
    wanted = list(pids)
    requests = [Request(_GETNSID, 0, _ANY + attribute(_PID, _U32.pack(pid))) for pid in wanted]
    found: dict[int, int] = {}
    for pid, answer in zip(wanted, netlink.ask(requests), strict=True):
        if isinstance(answer, OSError):
            if answer.errno not in _ENDED:
                raise answer
            continue
        [number] = _I32.unpack(attributes(answer, len(_ANY))[_NSID])
        if number >= 0:
            found[pid] = number
    return found


_ENDED: Final = (errno.ESRCH, errno.ENOENT)
"""No such process, and one that is ending."""


def _interface(message: bytes) -> Interface:
    _, _, index, flags, _ = _LINK_BODY.unpack_from(message)
    found = attributes(message, _LINK_BODY.size)
    return Interface(
        index,
        string(found.get(_IFNAME, b"")),
        flags,
        string(attributes(found.get(_LINKINFO, b"")).get(_INFO_KIND, b"")),
        _U32.unpack(found[_MASTER])[0] if _MASTER in found else 0,
        _U32.unpack(found[_LINK])[0] if _LINK in found else 0,
        _I32.unpack(found[_LINK_NETNSID])[0] if _LINK_NETNSID in found else None,
    )


def _default_route(version: int, message: bytes) -> DefaultRoute | None:
    _, length, _, _, table, _, _, kind, _ = _ROUTE_BODY.unpack_from(message)
    if length or kind != _UNICAST:
        return None
    found = attributes(message, _ROUTE_BODY.size)
    if (_U32.unpack(found[_TABLE])[0] if _TABLE in found else table) != _MAIN_TABLE:
        return None
    metric = _U32.unpack(found[_PRIORITY])[0] if _PRIORITY in found else 0
    if _MULTIPATH in found:
        return DefaultRoute(version, metric, tuple(_next_hops(found[_MULTIPATH])))
    return DefaultRoute(version, metric, (_U32.unpack(found[_OIF])[0],)) if _OIF in found else None


def _next_hops(data: bytes) -> Iterator[int]:
    offset = 0
    while offset + _NEXT_HOP.size <= len(data):
        length, _, _, index = _NEXT_HOP.unpack_from(data, offset)
        yield index
        offset += max(length + 3 & ~3, _NEXT_HOP.size)
