"""What a node's network shall look like: what is planned from, and what comes out.

Rates are bytes a second; bursts, quanta and queues bytes. Egress is what a pod or a node sends, ingress what
it receives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from qos.bandwidth import Band, Bounds, BytesPerSecond

__all__ = [
    "MAJOR",
    "Band",
    "Bounds",
    "BytesPerSecond",
    "Direction",
    "HtbClass",
    "HtbTree",
    "Link",
    "PodTraffic",
    "Policer",
    "Shortfall",
    "Standing",
    "Tbf",
    "Unkept",
    "UnkeptLimit",
    "Wanted",
    "class_id",
    "mapped",
]

MAJOR: Final = 0x10CE
"""The handle of every queueing discipline of ours is 10ce:."""


def class_id(minor: int) -> int:
    """The class 10ce:minor (1 to 0xffff) as the u32 that skb->priority and BPF maps hold."""
    return MAJOR << 16 | minor


def mapped(address: bytes) -> bytes:
    """An address as Wanted.by_address has it: 16 bytes, an IPv4 address as ::ffff:a.b.c.d."""
    return address if len(address) == 16 else bytes(10) + b"\xff\xff" + address


class Direction(Enum):
    """As the pod sees it: egress is what it sends, ingress what it receives."""

    EGRESS = "egress"
    INGRESS = "ingress"


@dataclass(frozen=True, slots=True)
class PodTraffic:
    """What one pod may expect of the network of its node.

    addresses: packed, 4 or 16 bytes each; () with the host's network.
    cgroup_ids: of a pod with the host's network, whose sockets are known by their cgroup.
    interface: ifindex of the host's end of the pod's veth; 0: none, or not known yet.
    priority: the pod's priority; where floors exceed the link, the higher is granted first.
    """

    uid: str
    band: Band
    egress: Bounds
    ingress: Bounds
    addresses: tuple[bytes, ...] = ()
    cgroup_ids: tuple[int, ...] = ()
    interface: int = 0
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Link:
    """What all pods together may send and receive through one NIC, headroom taken off; 0: not known.

    ifb: ifindex of the IFB that what the NIC receives is redirected to; 0: what is received is not shaped.
    """

    index: int
    name: str
    egress: BytesPerSecond
    ingress: BytesPerSecond
    ifb: int = 0


@dataclass(frozen=True, slots=True)
class HtbClass:
    """One class of an HTB tree.

    minor: 1 to 0xffff, its class is 10ce:minor. parent: another class's minor; 0: the qdisc itself.
    priority: 0 (first) to 7. rate <= ceil. leaf: the qdisc below it, "fq_codel" or "bfifo"; "": none, because
    it has children. burst: at rate; ceil_burst: at ceil; 0: as burst.
    """

    minor: int
    parent: int
    priority: int
    rate: BytesPerSecond
    ceil: BytesPerSecond
    quantum: int
    burst: int
    leaf: str
    ceil_burst: int = 0


@dataclass(frozen=True, slots=True)
class HtbTree:
    """The HTB qdisc 10ce: at one interface, and its classes by minor: parents come before children.

    default: minor of the class that takes what nobody classified.
    """

    interface: int
    default: int
    classes: tuple[HtbClass, ...]


@dataclass(frozen=True, slots=True)
class Tbf:
    """A token bucket at the host's end of a pod's veth: what the pod receives. queue: bytes that may wait."""

    interface: int
    rate: BytesPerSecond
    burst: int
    queue: int


@dataclass(frozen=True, slots=True)
class Policer:
    """A limit that is kept by dropping, where nothing waits: at the host's end of a pod's veth."""

    interface: int
    class_id: int
    direction: Direction
    rate: BytesPerSecond


class Unkept(Enum):
    """Why a floor or a limit is not kept, for conditions and messages."""

    LINK_UNKNOWN = "LinkUnknown"
    LINK_EXCEEDED = "LinkExceeded"
    BAND_EXCEEDED = "BandExceeded"
    RECEIVING_NOT_SHAPED = "ReceivingNotShaped"
    HOST_NETWORK = "HostNetwork"
    NO_CLASS_FREE = "NoClassFree"
    NOT_IDENTIFIED = "NotIdentified"
    LIMITED = "Limited"


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A floor that is not kept, or not whole. missing: bytes a second of it that are not kept."""

    uid: str
    direction: Direction
    missing: BytesPerSecond
    reason: Unkept


@dataclass(frozen=True, slots=True)
class UnkeptLimit:
    """A limit that is not kept."""

    uid: str
    direction: Direction
    reason: Unkept


@dataclass(frozen=True, slots=True)
class Standing:
    """What a pod has in a plan: the minor of its own class, the same in all trees, and the granted floors."""

    minor: int
    egress: BytesPerSecond
    ingress: BytesPerSecond


@dataclass(frozen=True, slots=True)
class Wanted:
    """All of a node's network. Where nobody asked for anything, everything is empty.

    by_address: 16 bytes (an IPv4 address as ::ffff:a.b.c.d) to the id of the class that the pod's packets go
    to, in every tree: by their source at a NIC, by their destination at the IFB of what it receives.
    by_cgroup: cgroup id to the same, of pods with the host's network: only at a NIC's egress is it known.
    by_interface: the host's end of a pod's veth to the same; what comes in there is the pod's, whatever
    source address it has.
    policers: of what pods send in the place of trees that cannot be made, of what they receive in the place
    of buckets. standing: by uid, of the pods that have a class of their own; the next plan is given it.
    """

    trees: tuple[HtbTree, ...] = ()
    buckets: tuple[Tbf, ...] = ()
    policers: tuple[Policer, ...] = ()
    by_address: Mapping[bytes, int] = field(default_factory=dict)
    by_cgroup: Mapping[int, int] = field(default_factory=dict)
    by_interface: Mapping[int, int] = field(default_factory=dict)
    shortfalls: tuple[Shortfall, ...] = ()
    unkept_limits: tuple[UnkeptLimit, ...] = ()
    standing: Mapping[str, Standing] = field(default_factory=dict)
