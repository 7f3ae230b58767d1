"""What the kernel has at interfaces, read by netlink into records."""

from __future__ import annotations

import errno
import socket
import struct
import sys
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

from agent.network import messages
from agent.network.netlink import Netlink, NetlinkError, attributes, string
from agent.network.records import (
    EGRESS,
    HANDLE,
    INGRESS,
    Counters,
    Device,
    Fifo,
    Filter,
    Found,
    FoundClass,
    Htb,
    Other,
    Qdisc,
    Rates,
    Settings,
    TokenBucket,
)

_TC: Final = struct.Struct("=B3xiIII")
_LINK: Final = struct.Struct("=BxHiII")
_STATS: Final = struct.Struct("=QIIIIIII")
_RATE_AT: Final = 8
"""Of the 32 bit rate in a struct tc_ratespec of 12 bytes."""
_UP: Final = 1
_KIND, _OPTIONS, _STATS_OLD = 1, 2, 3
_GONE: Final = (errno.ENODEV, errno.EINVAL, errno.ENOENT)
"""Of a dump: the interface, its qdisc or its clsact is not there."""


def found(netlink: Netlink, interfaces: Iterable[int]) -> Found:
    """All interfaces and qdiscs; classes and filters of these interfaces alone, of which a node has few.

    Raises NetlinkError. 250 pods with a class and a bucket each: some 20 ms.
    """
    asked = tuple(interfaces)
    return Found(
        devices=devices(netlink),
        qdiscs=qdiscs(netlink),
        classes=tuple(one for interface in asked for one in classes(netlink, interface)),
        filters=tuple(one for interface in asked for one in filters(netlink, interface)),
    )


def devices(netlink: Netlink) -> dict[int, Device]:
    """Every interface of the namespace, by its index."""
    found = map(_device, netlink.dump(messages.GET_LINK, messages.all_links()))
    return {device.index: device for device in found}


def qdiscs(netlink: Netlink) -> tuple[Qdisc, ...]:
    """Those of all interfaces; what the kernel puts below classes by itself is not among them."""
    return tuple(map(_qdisc, netlink.dump(messages.GET_QDISC, messages.traffic())))


def classes(netlink: Netlink, interface: int) -> tuple[FoundClass, ...]:
    """The HTB classes of one interface; none where it is gone."""
    bodies = _there(netlink, messages.GET_CLASS, messages.traffic(interface))
    return tuple(one for one in map(_class, bodies) if one is not None)


def filters(
    netlink: Netlink, interface: int, parents: Iterable[int] = (INGRESS, EGRESS, HANDLE)
) -> tuple[Filter, ...]:
    """Those at clsact, or at the ingress qdisc, in both directions, and at our own qdisc. 20 us a parent."""
    return tuple(
        one
        for parent in parents
        for one in map(
            _filter, _there(netlink, messages.GET_FILTER, messages.traffic(interface, parent=parent))
        )
        if one is not None and one.interface == interface
    )


def _there(netlink: Netlink, type_: int, body: bytes) -> list[bytes]:
    try:
        return netlink.dump(type_, body)
    except NetlinkError as refused:
        if refused.errno in _GONE:
            return []
        raise


@lru_cache(maxsize=1024)  # an interface that has not changed is told in the same bytes
def _device(body: bytes) -> Device:
    _, _, index, flags, _ = _LINK.unpack_from(body)
    fields = attributes(body, 16)
    information = attributes(fields.get(18, b""))
    kind = string(information.get(1, b""))
    peer = _u32(fields.get(5)) if kind == "veth" else 0
    return Device(index, string(fields.get(3, b"")), kind, bool(flags & _UP), peer)


def _qdisc(body: bytes) -> Qdisc:
    _, interface, handle, parent, _ = _TC.unpack_from(body)
    fields = attributes(body, 20)
    kind = string(fields[_KIND])
    settings = _SETTINGS.get(kind, _other)(fields.get(_OPTIONS, b""))
    return Qdisc(interface, kind, handle, parent, settings, _counters(fields))


def _class(body: bytes) -> FoundClass | None:
    _, interface, class_id, parent, leaf = _TC.unpack_from(body)
    fields = attributes(body, 20)
    if fields.get(_KIND) != b"htb\0" or _OPTIONS not in fields:
        return None
    options = attributes(fields[_OPTIONS])
    parameters = options[1]
    buffer, ceil_buffer, quantum, _, priority = struct.unpack_from("=IIIII", parameters, 24)
    rates = Rates(
        rate=_exact(options.get(6), parameters, 0),
        ceil=_exact(options.get(7), parameters, 12),
        buffer=buffer,
        ceil_buffer=ceil_buffer,
        quantum=quantum,
        priority=priority,
    )
    return FoundClass(interface, class_id, parent, leaf, rates, _counters(fields))


def _filter(body: bytes) -> Filter | None:
    """None: no filter, but the head of a list of them, or a table of u32."""
    _, interface, handle, parent, information = _TC.unpack_from(body)
    fields = attributes(body, 20)
    kind = string(fields.get(_KIND, b""))
    if not handle or _OPTIONS not in fields:
        return None
    options = attributes(fields[_OPTIONS])
    if kind == "u32" and 5 not in options:
        return None
    return Filter(
        interface, parent, information >> 16, socket.ntohs(information & 0xFFFF), handle, kind,
        name=string(options.get(7, b"")) if kind == "bpf" else "",
        program=_u32(options.get(11)) if kind == "bpf" else 0,
        target=_target(options) if kind == "u32" else 0,
        class_id=_u32(options.get(1)) if kind == "u32" else 0,
        key=options[5][16:] if kind == "u32" else b"",
    )  # fmt: skip


def _target(options: dict[int, bytes]) -> int:
    """The interface to which a filter's mirred action redirects, 0: none."""
    for action in attributes(options.get(7, b"")).values():
        fields = attributes(action)
        if fields.get(1) == b"mirred\0":
            parameters = attributes(fields.get(2, b"")).get(2, b"")
            return _u32(parameters[24:28])
    return 0


def _htb(options: bytes) -> Settings:
    return Htb(struct.unpack_from("=III", attributes(options)[2])[2])


def _tbf(options: bytes) -> Settings:
    fields = attributes(options)
    limit, buffer = struct.unpack_from("=II", fields[1], 24)
    return TokenBucket(_exact(fields.get(4), fields[1], 0), buffer, limit)


def _bfifo(options: bytes) -> Settings:
    return Fifo(_u32(options))


def _other(_: bytes) -> Settings:
    return Other()


_SETTINGS: Final[dict[str, Callable[[bytes], Settings]]] = {"htb": _htb, "tbf": _tbf, "bfifo": _bfifo}


def _exact(wide: bytes | None, parameters: bytes, at: int) -> int:
    """A rate: of 64 bits where it does not fit into the tc_ratespec that is there."""
    narrow = parameters[at + _RATE_AT :]
    return int.from_bytes(wide if wide else narrow[:4], sys.byteorder)


def _counters(fields: dict[int, bytes]) -> Counters | None:
    stats = fields.get(_STATS_OLD)
    if stats is None or len(stats) < 36:
        return None
    size, packets, drops, overlimits, _, _, queued, backlog = _STATS.unpack_from(stats)
    return Counters(size, packets, drops, overlimits, queued, backlog)


def _u32(payload: bytes | None) -> int:
    return int.from_bytes(payload[:4], sys.byteorder) if payload else 0
