"""Pods told apart by u32 filters at our HTB, one an address: where no BPF program can name the class. Pure.

A class to which a filter leads cannot be deleted, and one that is not there cannot be led to: what goes is
done before the classes are changed, what comes after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from agent.network import messages
from agent.network.netlink import Request
from agent.network.records import HANDLE, Filter, Found, is_ours

NOTHING: Final[Mapping[bytes, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Changes:
    """before, after: the operations on the classes of the same interface. undone: whether another changed
    what was wanted the last time.
    """

    interface: int
    before: tuple[Request, ...]
    after: tuple[Request, ...]
    undone: bool = False


def changes(
    interface: int, by_address: Mapping[bytes, int], found: Found, last: Mapping[bytes, int] = NOTHING
) -> Changes:
    """What is to be done so that these sources (16 bytes), and no others, lead to these class ids.

    found: with the filters of the interface, before anything is changed. last: what was made the last time.
    Each packet is compared with each of them, some 5 ns a filter: 250 pods cost a packet more than a
    microsecond.
    """
    there = any(is_ours(qdisc) and qdisc.interface == interface for qdisc in found.qdiscs)
    wanted = {messages.source_key(address): (address, one) for address, one in by_address.items()}
    ours = {messages.source_key(address): one for address, one in last.items()}
    going: list[Request] = []
    foreign = False
    staying: set[tuple[int, bytes]] = set()
    for one in found.filters if there else ():
        if one.interface != interface or one.parent != HANDLE:
            continue
        key = (one.protocol, one.key)
        if one.kind == "u32" and key not in staying and wanted.get(key, (b"", -1))[1] == one.class_id:
            staying.add(key)
        else:
            going.append(_without(one))
            foreign |= key in staying or ours.get(key) != one.class_id
    coming = [key for key in wanted if key not in staying]
    undone = bool(ours) and (foreign or any(ours.get(key) == wanted[key][1] for key in coming))
    after = tuple(messages.from_source(interface, *wanted[key]) for key in coming)
    return Changes(interface, tuple(going), after, undone)


def _without(one: Filter) -> Request:
    return messages.no_filter(one.interface, one.parent, one.priority, one.protocol, one.handle, one.kind)
