"""From what interfaces have to what they shall have: changes, in order, losing no packet where that can be.

Pure. What exists is changed in place; qdiscs of others are left alone, and that is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from typing import Final

from agent.network.records import (
    HANDLE,
    ROOT,
    Device,
    Fifo,
    Found,
    FoundClass,
    Htb,
    Qdisc,
    Rates,
    TokenBucket,
    is_ours,
    roots,
    ticks,
)
from qos.network.wanted import HtbClass, HtbTree, Tbf

_PACES: Final = frozenset({"mq", "fq"})
"""Whoever puts these at an interface sends by time stamps, which an HTB would not heed."""
_LEAST_QUEUE: Final = 256 << 10
_MOST_QUEUE: Final = 4 << 20


class Verb(Enum):
    """What is done. REPLACE takes the place of another's qdisc; ADD is refused where one is."""

    ADD = "add"
    REPLACE = "replace"
    CHANGE = "change"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Root:
    """The qdisc 10ce: through which an interface sends. settings: None where it is deleted."""

    verb: Verb
    interface: int
    settings: Htb | Tbf | None


@dataclass(frozen=True, slots=True)
class Class:
    """One class of our HTB; of one that is deleted only its minor counts."""

    verb: Verb
    interface: int
    settings: HtbClass


@dataclass(frozen=True, slots=True)
class Leaf:
    """The qdisc below the class 10ce:minor. handle: of the one to change, 0: the kernel chooses one."""

    verb: Verb
    interface: int
    minor: int
    kind: str
    limit: int
    handle: int = 0


Operation = Root | Class | Leaf


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why an interface is left alone. qdisc: what is there, None where the interface is gone."""

    interface: int
    qdisc: Qdisc | None
    message: str


@dataclass(frozen=True, slots=True)
class Difference:
    """Operations of one interface stand together, in the order in which they are done."""

    operations: tuple[Operation, ...]
    conflicts: tuple[Conflict, ...]


def difference(
    trees: tuple[HtbTree, ...], buckets: tuple[Tbf, ...], found: Found, held: AbstractSet[int] = frozenset()
) -> Difference:
    """What is to be done so that these trees and buckets are there, and no others of ours.

    found: with the classes of the trees' interfaces. held: interfaces at which ours was put before and not
    taken away by us: what somebody put there since is drift, unless it paces.
    """
    operations: list[Operation] = []
    conflicts: list[Conflict] = []
    at, foreign = roots(found), others(found)
    classes: dict[int, list[FoundClass]] = {}
    for there in found.classes:
        classes.setdefault(there.interface, []).append(there)
    below = {(qdisc.interface, qdisc.handle): qdisc for qdisc in found.qdiscs if qdisc.handle}
    wanted: dict[int, HtbTree | Tbf] = {tree.interface: tree for tree in trees}
    wanted |= {bucket.interface: bucket for bucket in buckets}
    unwanted = sorted({root.interface for root in at.values() if is_ours(root)} - wanted.keys())
    operations += [Root(Verb.DELETE, interface, None) for interface in unwanted]
    for interface, one in wanted.items():
        conflict = _conflict(found.devices.get(interface), interface, foreign.get(interface), held)
        if conflict is not None:
            conflicts.append(conflict)
        elif isinstance(one, Tbf):
            operations += _bucket(one, at.get(interface))
        else:
            operations += _tree(one, at.get(interface), classes.get(interface, []), below)
    return Difference(tuple(operations), tuple(conflicts))


def occupied(interfaces: Iterable[int], found: Found, held: AbstractSet[int] = frozenset()) -> dict[int, str]:
    """Of these the ones at which ours cannot be put because somebody else's is there, and whose it may be."""
    foreign = others(found)
    conflicts = (_conflict(found.devices.get(one), one, foreign.get(one), held) for one in interfaces)
    return {one.interface: one.message for one in conflicts if one is not None and one.qdisc is not None}


def others(found: Found) -> dict[int, Qdisc]:
    """Interface -> a qdisc through which it sends, and that neither the kernel made by itself nor we did.

    The kernel's own have no handle; below its mq a handle tells that somebody has put another there.
    """
    ours = {qdisc.interface for qdisc in found.qdiscs if is_ours(qdisc)}
    return {
        qdisc.interface: qdisc
        for qdisc in reversed(found.qdiscs)  # the first of each counts: its root
        if qdisc.handle and qdisc.interface not in ours and qdisc.kind not in ("clsact", "ingress")
    }


def queue_limit(wanted: HtbClass) -> int:
    """Bytes that may wait in a bfifo: 50 ms at the most that the class may send, within bounds."""
    return min(max(wanted.ceil // 20, _LEAST_QUEUE), _MOST_QUEUE)


def rates(wanted: HtbClass) -> Rates:
    """A class as the kernel shows it once it is made."""
    return Rates(
        rate=wanted.rate,
        ceil=wanted.ceil,
        buffer=ticks(wanted.burst, wanted.rate),
        ceil_buffer=ticks(wanted.ceil_burst or wanted.burst, wanted.ceil),
        quantum=wanted.quantum,
        priority=wanted.priority,
    )


def _conflict(
    device: Device | None, interface: int, other: Qdisc | None, held: AbstractSet[int]
) -> Conflict | None:
    if device is None:
        return Conflict(interface, None, f"interface {interface} is gone")
    if other is None:
        return None
    shown = f"{other.kind} {other.handle >> 16:x}: at {device.name}"
    if interface in held and other.kind not in _PACES:
        return None
    if other.kind == "tbf":
        return Conflict(
            interface, other, f"{shown} was put there by another, as the CNI plugin bandwidth does"
        )
    return Conflict(
        interface, other, f"{shown} was put there by another, as Cilium's bandwidth manager or a person does"
    )


def _bucket(wanted: Tbf, root: Qdisc | None) -> Iterator[Operation]:
    settings = TokenBucket(wanted.rate, ticks(wanted.burst, wanted.rate), wanted.queue)
    if root is not None and is_ours(root) and root.kind == "tbf":
        if root.settings != settings:
            yield Root(Verb.CHANGE, wanted.interface, wanted)
        return
    yield from _new_root(wanted.interface, wanted, root)


def _new_root(interface: int, settings: Htb | Tbf, root: Qdisc | None) -> Iterator[Operation]:
    if root is not None and is_ours(root):  # of another kind, or with what cannot be changed
        yield Root(Verb.DELETE, interface, None)
    taken = root is not None and root.handle and not is_ours(root)
    yield Root(Verb.REPLACE if taken else Verb.ADD, interface, settings)


def _tree(
    wanted: HtbTree, root: Qdisc | None, classes: list[FoundClass], below: Mapping[tuple[int, int], Qdisc]
) -> Iterator[Operation]:
    there: dict[int, FoundClass] = {}
    if root is not None and is_ours(root) and root.settings == Htb(wanted.default):
        there = {one.class_id & 0xFFFF: one for one in classes}
    else:
        yield from _new_root(wanted.interface, Htb(wanted.default), root)
    stays = _staying(wanted, there)
    for minor in _children_first(there, there.keys() - stays):
        yield Class(Verb.DELETE, wanted.interface, HtbClass(minor, 0, 0, 0, 0, 0, 0, ""))
    for one in wanted.classes:
        have = there[one.minor] if one.minor in stays else None
        if have is None:
            yield Class(Verb.ADD, wanted.interface, one)
        elif have.rates != rates(one):
            yield Class(Verb.CHANGE, wanted.interface, one)
        if one.leaf:
            leaf = below.get((wanted.interface, have.leaf)) if have is not None else None
            yield from _leaf(wanted.interface, one, leaf)


def _leaf(interface: int, wanted: HtbClass, have: Qdisc | None) -> Iterator[Leaf]:
    limit = queue_limit(wanted) if wanted.leaf == "bfifo" else 0
    if have is None or have.kind != wanted.leaf:
        yield Leaf(Verb.REPLACE, interface, wanted.minor, wanted.leaf, limit)
    elif isinstance(have.settings, Fifo) and have.settings.limit != limit:
        yield Leaf(Verb.CHANGE, interface, wanted.minor, wanted.leaf, limit, have.handle)


def _staying(wanted: HtbTree, there: Mapping[int, FoundClass]) -> set[int]:
    """The classes that are there and need no new parent: HTB moves none, nor what is below one."""
    stays: set[int] = set()
    for one in wanted.classes:  # parents before children
        have = there.get(one.minor)
        if have is None or (one.parent and one.parent not in stays):
            continue
        if have.parent == (HANDLE | one.parent if one.parent else ROOT):
            stays.add(one.minor)
    return stays


def _children_first(there: Mapping[int, FoundClass], going: AbstractSet[int]) -> list[int]:
    """HTB removes no class that has children."""

    def depth(minor: int) -> int:
        steps, have = 0, there.get(minor)
        while have is not None and have.parent != ROOT and steps < len(there):
            steps, have = steps + 1, there.get(have.parent & 0xFFFF)
        return steps

    return sorted(going, key=lambda minor: (-depth(minor), minor))
