"""A node's network as `j10ce network status` shows it: what the agent says of it, and what is in the kernel.

Pure. Of an agent that has ended the kernel's part goes on to be true.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from agent.network.counting import NO_COUNTERS, Counts
from agent.network.records import Counters, FoundClass
from agent.network.seen import Bounded, SeenNetwork, SeenPod
from qos.bandwidth import BITS
from qos.network.minors import BANDS, FIRST, HOST, ROOT, SHARED
from qos.network.wanted import MAJOR, Direction

_NAMES: Final[Mapping[int, str]] = {
    ROOT: "all",
    HOST: "the host",
    **{minor: band.name for band, minor in BANDS.items()},
    **{minor: f"{band.name}, shared" for band, minor in SHARED.items()},
}
_WRAPS: Final = 1 << 32
_MINOR: Final = 0xFFFF


class Flow(msgspec.Struct, frozen=True):
    """What went through a class or a bucket. now: bits a second in the interval; bytes, packets, dropped:
    since it was made; dropped_now: packets in the interval; waiting: bytes in its queue.
    """

    now: int
    bytes: int
    packets: int
    dropped: int
    dropped_now: int
    waiting: int


class ShownClass(msgspec.Struct, frozen=True, rename="camel"):
    """A class of a tree. rate, ceil: bits a second. of: whose it is."""

    class_id: str
    of: str
    rate: int
    ceil: int
    flow: Flow


class ShownTree(msgspec.Struct, frozen=True):
    """An HTB tree of ours. direction: as the pods see it."""

    interface: str
    direction: str
    classes: tuple[ShownClass, ...]


class ShownWay(msgspec.Struct, frozen=True):
    """One direction of a pod. place: the class, bucket or policer, "" none of its own; flow: None there."""

    place: str
    bounds: Bounded
    flow: Flow | None


class ShownPod(msgspec.Struct, frozen=True):
    """A pod, as the agent knows it and the kernel counts it."""

    namespace: str
    pod: str
    band: str
    egress: ShownWay
    ingress: ShownWay
    problems: tuple[str, ...]


class ShownNetwork(msgspec.Struct, frozen=True):
    """shaping: whether an agent is at it. seen: what it said last, None: nothing is known of one."""

    shaping: bool
    seen: SeenNetwork | None
    trees: tuple[ShownTree, ...]
    pods: tuple[ShownPod, ...]


@dataclass(frozen=True, slots=True)
class Kernel:
    """What is in the kernel. names: of interfaces, by index. The counts are `seconds` apart (above 0)."""

    names: Mapping[int, str]
    classes: tuple[FoundClass, ...]
    before: Counts
    after: Counts
    seconds: float


def shown(seen: SeenNetwork | None, kernel: Kernel, *, shaping: bool) -> ShownNetwork:
    """All of it."""
    pods = () if seen is None else tuple(_pod(one, seen, kernel) for one in seen.pods)
    return ShownNetwork(shaping, seen, tuple(_trees(seen, kernel)), pods)


def _trees(seen: SeenNetwork | None, kernel: Kernel) -> Iterator[ShownTree]:
    owners = {one.minor: f"{one.namespace}/{one.pod}" for one in seen.pods if one.own} if seen else {}
    for interface in kernel.after.classes:
        direction = "ingress" if seen and interface == seen.ifb else "egress"
        there = [one for one in kernel.classes if one.interface == interface]
        there.sort(key=lambda one: one.class_id)
        classes = tuple(
            ShownClass(
                _class(one.class_id & _MINOR),
                _owner(one.class_id & _MINOR, owners),
                one.rates.rate * BITS,
                one.rates.ceil * BITS,
                _class_flow(interface, one.class_id & _MINOR, kernel),
            )
            for one in there
        )
        yield ShownTree(kernel.names.get(interface, str(interface)), direction, classes)


def _owner(minor: int, owners: Mapping[int, str]) -> str:
    if minor >= FIRST:
        return owners.get(minor, "a pod that no agent has told of")
    return _NAMES.get(minor, "nobody")


def _pod(one: SeenPod, seen: SeenNetwork, kernel: Kernel) -> ShownPod:
    egress = _own(one, Direction.EGRESS, seen.index, one.egress, kernel)
    ingress = _own(one, Direction.INGRESS, seen.ifb, one.ingress, kernel)
    if one.interface in kernel.after.buckets and one.ingress.limit is not None:
        flow = _flow(
            kernel.before.buckets.get(one.interface, NO_COUNTERS),
            kernel.after.buckets[one.interface],
            kernel.seconds,
        )
        ingress = ShownWay(f"tbf at {kernel.names.get(one.interface, one.interface)}", one.ingress, flow)
    return ShownPod(one.namespace, one.pod, one.band, egress, ingress, one.problems)


def _own(one: SeenPod, direction: Direction, interface: int, bounds: Bounded, kernel: Kernel) -> ShownWay:
    if one.own and one.minor in kernel.after.classes.get(interface, {}):
        return ShownWay(_class(one.minor), bounds, _class_flow(interface, one.minor, kernel))
    key = one.minor, direction
    if one.own and key in kernel.after.policers:
        before = kernel.before.policers.get(key, NO_COUNTERS)
        flow = _flow(before, kernel.after.policers[key], kernel.seconds)
        return ShownWay(f"policer {_class(one.minor)}", bounds, flow)
    return ShownWay("", bounds, None)


def _class_flow(interface: int, minor: int, kernel: Kernel) -> Flow:
    before = kernel.before.classes.get(interface, {}).get(minor, NO_COUNTERS)
    return _flow(before, kernel.after.classes.get(interface, {}).get(minor, NO_COUNTERS), kernel.seconds)


def _flow(before: Counters, after: Counters, seconds: float) -> Flow:
    """A class that was made anew meanwhile has counted from 0."""
    since = after.bytes - before.bytes if after.bytes >= before.bytes else after.bytes
    dropped = (after.drops - before.drops) % _WRAPS if after.bytes >= before.bytes else after.drops
    return Flow(
        round(since * BITS / seconds), after.bytes, after.packets, after.drops, dropped, after.backlog
    )


def _class(minor: int) -> str:
    return f"{MAJOR:x}:{minor:x}"
