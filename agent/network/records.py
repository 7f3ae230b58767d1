"""What the kernel has at interfaces, as small records, and what of it is ours.

Rates are bytes a second; a burst is kept as the kernel does it, as its time at
the rate in ticks of 64 ns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from qos.network.wanted import MAJOR

ROOT: Final = 0xFFFFFFFF
"""The parent of the qdisc through which an interface sends."""
CLSACT: Final = 0xFFFFFFF1
INGRESS: Final = 0xFFFFFFF2
EGRESS: Final = 0xFFFFFFF3
"""Parents: of clsact and of the older ingress qdisc; of their filters in each direction."""
CLSACT_HANDLE: Final = 0xFFFF0000
HANDLE: Final = MAJOR << 16
"""Of our qdisc at an interface."""
PRIORITY: Final = MAJOR
"""Of our filters: a high number, so that others' filters are asked before them."""
REDIRECTS: Final = MAJOR + 2
"""The same of those that lead to an IFB: one priority holds one kind of filter."""
NAME: Final = "j10ce"
"""What names of ours begin with: filters, interfaces."""
NANOSECONDS: Final = 64
"""In a tick."""
_MOST_TICKS: Final = 0xFFFFFFFF // NANOSECONDS


class Counters(NamedTuple):
    """Since it was made: bytes and packets that went through, drops, times that it was over its rate. queued,
    backlog: packets and bytes that wait now. All but bytes wrap at 2**32.
    """

    bytes: int
    packets: int
    drops: int
    overlimits: int
    queued: int
    backlog: int


class Htb(NamedTuple):
    """An htb qdisc's setting. default: minor of the class for what nobody classified."""

    default: int


class TokenBucket(NamedTuple):
    """A tbf qdisc's settings. buffer: ticks; limit: bytes that may wait."""

    rate: int
    buffer: int
    limit: int


class Fifo(NamedTuple):
    """A bfifo's setting: bytes that may wait."""

    limit: int


class Other(NamedTuple):
    """The settings of a qdisc that we do not make, or that has none of which we know."""


Settings = Htb | TokenBucket | Fifo | Other


class Qdisc(NamedTuple):
    """interface: its index. handle: 0 where the kernel made it by itself."""

    interface: int
    kind: str
    handle: int
    parent: int
    settings: Settings
    counters: Counters | None


class Rates(NamedTuple):
    """What an HTB class has. buffer, ceil_buffer: ticks."""

    rate: int
    ceil: int
    buffer: int
    ceil_buffer: int
    quantum: int
    priority: int


class FoundClass(NamedTuple):
    """One HTB class. parent: the class id of the one above, ROOT: the qdisc. leaf: its qdisc's handle."""

    interface: int
    class_id: int
    parent: int
    leaf: int
    rates: Rates
    counters: Counters | None


class Filter(NamedTuple):
    """One filter. name, program: a bpf filter's, with the id of its program. key: what a u32 filter compares,
    as the kernel writes it. target: the interface to which it redirects. class_id: where it puts packets.
    """

    interface: int
    parent: int
    priority: int
    protocol: int
    handle: int
    kind: str
    name: str = ""
    program: int = 0
    target: int = 0
    class_id: int = 0
    key: bytes = b""


@dataclass(frozen=True, slots=True)
class Device:
    """A network interface. kind: "veth", "ifb" ...; "" for hardware. peer: the other end's index, 0: none."""

    index: int
    name: str
    kind: str
    up: bool
    peer: int


class Found(NamedTuple):
    """A node's traffic control as it is; classes and filters of those interfaces that were asked for."""

    devices: Mapping[int, Device]
    qdiscs: tuple[Qdisc, ...]
    classes: tuple[FoundClass, ...]
    filters: tuple[Filter, ...]


def ticks(size: int, rate: int) -> int:
    """How long size bytes take at the rate, as the kernel wants it: at most 4.3 s, which is what it keeps.

    Rounded up, for a packet of that very size must pass.
    """
    return min(-(-size * 1_000_000_000 // (rate * NANOSECONDS)), _MOST_TICKS) if rate else _MOST_TICKS


def is_ours(qdisc: Qdisc) -> bool:
    """Whether it is the qdisc that we put at an interface."""
    return qdisc.parent == ROOT and qdisc.handle == HANDLE


def roots(found: Found) -> dict[int, Qdisc]:
    """Interface -> the qdisc through which it sends."""
    return {qdisc.interface: qdisc for qdisc in found.qdiscs if qdisc.parent == ROOT}
