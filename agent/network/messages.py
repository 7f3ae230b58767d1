"""Requests about qdiscs, classes, filters and interfaces, as the kernel reads them.

Source: linux/pkt_sched.h, linux/pkt_cls.h, linux/if_link.h.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

from agent.network.netlink import CREATE, EXCLUSIVE, REPLACE, Request, attribute, nested, text
from agent.network.records import CLSACT, CLSACT_HANDLE, HANDLE, INGRESS, PRIORITY, REDIRECTS, ticks
from qos.network.wanted import HtbClass, Tbf

NEW_LINK: Final = 16
DEL_LINK: Final = 17
GET_LINK: Final = 18
NEW_QDISC: Final = 36
DEL_QDISC: Final = 37
GET_QDISC: Final = 38
NEW_CLASS: Final = 40
DEL_CLASS: Final = 41
GET_CLASS: Final = 42
NEW_FILTER: Final = 44
DEL_FILTER: Final = 45
GET_FILTER: Final = 46

ALL_PROTOCOLS: Final = 0x0003
IPV4: Final = 0x0800
IPV6: Final = 0x86DD

_TC: Final = struct.Struct("=B3xiIII")
_LINK: Final = struct.Struct("=BxHiII")
_HTB_ROOT: Final = struct.Struct("=IIIII")
_RATE: Final = struct.Struct("=BBHhHI")
_U32: Final = struct.Struct("=I")
_U64: Final = struct.Struct("=Q")
_BIG_U16: Final = struct.Struct("!H")
_MOST_U32: Final = 0xFFFFFFFF
_ETHERNET: Final = 1
_HTB_VERSION: Final = 3
_HTB_R2Q: Final = 10
_UP: Final = 1

_KIND, _OPTIONS = 1, 2
_EXT_MASK: Final = 29
"""An attribute of requests for links; and what it leaves out (RTEXT_FILTER_SKIP_STATS)."""
_SKIP_STATISTICS: Final = 1 << 3
_FLOWS: Final = 256
_FLOW_MEMORY: Final = 4 << 20
"""Of an fq_codel at a pod's class: the kernel's own defaults would take 70 kB a pod, and let 32 MB wait."""
_STOLEN: Final = 4
_EGRESS_REDIRECT: Final = 1
_DIRECT_ACTION: Final = 1
_TERMINAL: Final = 1
_ANYTHING: Final = bytes(16)
_SOURCE_4, _SOURCE_6 = 12, 8
"""Where a packet's source address is in its IP header."""


def traffic(interface: int = 0, handle: int = 0, parent: int = 0, info: int = 0) -> bytes:
    """The struct with which messages about qdiscs, classes and filters begin."""
    return _TC.pack(socket.AF_UNSPEC, interface, handle, parent, info)


def link(index: int = 0, flags: int = 0, change: int = 0) -> bytes:
    """The same of messages about interfaces."""
    return _LINK.pack(socket.AF_UNSPEC, 0, index, flags, change)


def all_links() -> bytes:
    """Asks for all interfaces, without the statistics that are most of such an answer."""
    return link() + attribute(_EXT_MASK, _U32.pack(_SKIP_STATISTICS))


def qdisc(flags: int, interface: int, parent: int, handle: int, kind: str, options: bytes = b"") -> Request:
    """Makes or changes one. options: its attribute, b"" for none. handle 0: as the kernel chooses."""
    return Request(NEW_QDISC, flags, traffic(interface, handle, parent) + text(_KIND, kind) + options)


def no_qdisc(interface: int, parent: int, handle: int) -> Request:
    """Removes one, with all below it."""
    return Request(DEL_QDISC, 0, traffic(interface, handle, parent))


def clsact(interface: int) -> Request:
    """Makes the place where filters see what an interface receives, and what it sends."""
    return qdisc(CREATE | EXCLUSIVE, interface, CLSACT, CLSACT_HANDLE, "clsact")


def htb(default: int) -> bytes:
    """Options of an htb qdisc. What it cannot change later: default."""
    return nested(_OPTIONS, attribute(2, _HTB_ROOT.pack(_HTB_VERSION, _HTB_R2Q, default, 0, 0)))


def tbf(bucket: Tbf) -> bytes:
    """Options of a token bucket."""
    rate = _rate(bucket.rate)
    parameters = rate + _rate(0) + struct.pack("=III", bucket.queue, ticks(bucket.burst, bucket.rate), 0)
    exact = attribute(4, _U64.pack(bucket.rate)) if bucket.rate > _MOST_U32 else b""
    return nested(_OPTIONS, attribute(1, parameters), exact)


def bfifo(limit: int) -> bytes:
    """Options of a queue of so many bytes."""
    return attribute(_OPTIONS, _U32.pack(limit))


def fq_codel() -> bytes:
    """Options of an fq_codel for one pod."""
    return nested(_OPTIONS, attribute(5, _U32.pack(_FLOWS)), attribute(9, _U32.pack(_FLOW_MEMORY)))


def htb_class(interface: int, wanted: HtbClass, *, new: bool) -> Request:
    """Makes a class, or changes one in place: what waits in it stays."""
    timing = struct.pack(
        "=IIIII",
        ticks(wanted.burst, wanted.rate),
        ticks(wanted.ceil_burst or wanted.burst, wanted.ceil),
        wanted.quantum,
        0,
        wanted.priority,
    )
    parameters = _rate(wanted.rate) + _rate(wanted.ceil) + timing
    wide = [attribute(6, _U64.pack(wanted.rate))] if wanted.rate > _MOST_U32 else []
    wide += [attribute(7, _U64.pack(wanted.ceil))] if wanted.ceil > _MOST_U32 else []
    options = nested(_OPTIONS, attribute(1, parameters), *wide)
    body = traffic(interface, HANDLE | wanted.minor, HANDLE | wanted.parent) + text(_KIND, "htb") + options
    return Request(NEW_CLASS, CREATE | EXCLUSIVE if new else 0, body)


def no_class(interface: int, class_id: int) -> Request:
    """Removes one that has no children; what waits in it is lost."""
    return Request(DEL_CLASS, 0, traffic(interface, class_id))


def bpf_filter(interface: int, parent: int, program: int, name: str) -> Request:
    """Hangs a program into clsact, or swaps the one that is at our priority. program: its descriptor."""
    options = nested(
        _OPTIONS, attribute(6, _U32.pack(program)), text(7, name), attribute(8, _U32.pack(_DIRECT_ACTION))
    )
    return _filter(CREATE | REPLACE, interface, parent, PRIORITY, ALL_PROTOCOLS, "bpf", options, handle=1)


def redirect(interface: int, target: int) -> Request:
    """All that the interface receives goes through the target's qdisc before anybody else sees it."""
    mirred = struct.pack("=IIiiiiI", 0, 0, _STOLEN, 0, 0, _EGRESS_REDIRECT, target)
    action = nested(1, text(1, "mirred"), nested(2, attribute(2, mirred)))
    options = nested(_OPTIONS, attribute(5, _selector(_ANYTHING)), nested(7, action))
    return _filter(CREATE | EXCLUSIVE, interface, INGRESS, REDIRECTS, ALL_PROTOCOLS, "u32", options)


def from_source(interface: int, address: bytes, class_id: int) -> Request:
    """What has this source (16 bytes) goes to the class of our HTB: where no BPF program can say so."""
    protocol, keys = source_key(address)
    selector = _selector(keys)
    options = nested(_OPTIONS, attribute(1, _U32.pack(class_id)), attribute(5, selector))
    priority = PRIORITY + (protocol == IPV6)  # one of them has one protocol
    return _filter(CREATE | EXCLUSIVE, interface, HANDLE, priority, protocol, "u32", options)


def source_key(address: bytes) -> tuple[int, bytes]:
    """The protocol, and what u32 compares to know an address (16 bytes): mask, value, offset of each word."""
    four = address[:12] == bytes(10) + b"\xff\xff"
    start, packed = (_SOURCE_4, address[12:]) if four else (_SOURCE_6, address)
    keys = b"".join(_key(packed[at : at + 4], start + at) for at in range(0, len(packed), 4))
    return (IPV4 if four else IPV6), keys


def no_filter(interface: int, parent: int, priority: int, protocol: int, handle: int, kind: str) -> Request:
    """Removes one filter. handle 0: all of that priority and protocol."""
    info = priority << 16 | _swapped(protocol)
    return Request(DEL_FILTER, 0, traffic(interface, handle, parent, info) + text(_KIND, kind))


def new_ifb(name: str) -> Request:
    """Makes an intermediate interface, whose qdisc shapes what another one receives."""
    return Request(NEW_LINK, CREATE | EXCLUSIVE, link() + text(3, name) + nested(18, text(1, "ifb")))


def new_veth(name: str, peer: str) -> Request:
    """Makes a pair of interfaces: what one sends the other receives."""
    pair = nested(18, text(1, "veth"), nested(2, attribute(1, link() + text(3, peer))))
    return Request(NEW_LINK, CREATE | EXCLUSIVE, link() + text(3, name) + pair)


def link_up(index: int) -> Request:
    """Switches an interface on."""
    return Request(NEW_LINK, 0, link(index, _UP, _UP))


def no_link(index: int) -> Request:
    """Removes an interface."""
    return Request(DEL_LINK, 0, link(index))


def _filter(
    flags: int, interface: int, parent: int, priority: int, protocol: int, kind: str, options: bytes,
    *, handle: int = 0,
) -> Request:  # fmt: skip
    body = traffic(interface, handle, parent, priority << 16 | _swapped(protocol))
    return Request(NEW_FILTER, flags, body + text(_KIND, kind) + options)


def _swapped(protocol: int) -> int:
    """In network order, as the kernel keeps it."""
    return socket.htons(protocol)


def _rate(rate: int) -> bytes:
    return _RATE.pack(0, _ETHERNET, 0, 0, 0, min(rate, _MOST_U32))


def _selector(keys: bytes) -> bytes:
    """u32's: what is compared, 16 bytes for each word of the packet."""
    return struct.pack("=BBBxHHhhI", _TERMINAL, 0, len(keys) // 16, 0, 0, 0, 0, 0) + keys


def _key(word: bytes, offset: int) -> bytes:
    """offset: from the IP header."""
    return b"\xff" * len(word) + word + struct.pack("=ii", offset, 0)
