"""Pods told apart by u32 filters at our HTB, one an address: where no BPF program can name the class. Pure.

A class to which a filter leads cannot be deleted, and one that is not there cannot be led to: what goes is
done before the classes are changed, what comes after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent.network import messages
from agent.network.netlink import Request
from agent.network.records import HANDLE, Filter, Found, is_ours


@dataclass(frozen=True, slots=True)
class Changes:
    """before, after: the operations on the classes of the same interface."""

    before: tuple[Request, ...]
    after: tuple[Request, ...]


def changes(interface: int, by_address: Mapping[bytes, int], found: Found) -> Changes:
    """What is to be done so that these sources (16 bytes), and no others, lead to these class ids.

    found: with the filters of the interface, before anything is changed. Each packet is compared with each
    of them, some 5 ns a filter: 250 pods cost a packet more than a microsecond.
    """
    there = any(is_ours(qdisc) and qdisc.interface == interface for qdisc in found.qdiscs)
    wanted = {messages.source_key(address): (address, one) for address, one in by_address.items()}
    going: list[Request] = []
    staying: set[tuple[int, bytes]] = set()
    for one in found.filters if there else ():
        if one.interface != interface or one.parent != HANDLE:
            continue
        key = (one.protocol, one.key)
        if one.kind == "u32" and key not in staying and wanted.get(key, (b"", -1))[1] == one.class_id:
            staying.add(key)
        else:
            going.append(_without(one))
    coming = [messages.from_source(interface, *wanted[key]) for key in wanted if key not in staying]
    return Changes(tuple(going), tuple(coming))


def _without(one: Filter) -> Request:
    return messages.no_filter(one.interface, one.parent, one.priority, one.protocol, one.handle, one.kind)
