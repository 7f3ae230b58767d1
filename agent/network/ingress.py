"""What an interface receives, led through an intermediate interface (IFB) that has a tree of its own.

Our filter at the interface's clsact comes after all others, and sends everything on to the IFB; from there
packets come back to where they were. A packet that another's filter keeps is never seen by ours.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, NamedTuple

from agent.network import dump, messages
from agent.network.netlink import Netlink, Request
from agent.network.originals import Originals
from agent.network.records import (
    CLSACT,
    CLSACT_HANDLE,
    EGRESS,
    INGRESS,
    NAME,
    REDIRECTS,
    Device,
    Filter,
    Found,
)

_NAME: Final = f"{NAME}-ifb"
_FILTERS: Final = frozenset({"clsact", "ingress"})
"""Qdiscs that hold filters for what is received."""


@dataclass(frozen=True, slots=True)
class Change:
    """One request, what it does in words, and the interface whose clsact it makes, or whose redirection it
    makes work, 0: none.
    """

    request: Request
    what: str
    makes_clsact: int = 0
    redirects: int = 0


class Settled(NamedTuple):
    """How many changes there were, and the interfaces that were redirected by one."""

    changes: int
    made: frozenset[int] = frozenset()


def ifb_name(interface: int) -> str:
    """The IFB of an interface, by its index."""
    return f"{_NAME}{interface}"


def is_our_ifb(device: Device) -> bool:
    """Whether we made it."""
    return device.kind == "ifb" and device.name.startswith(_NAME)


def settle(
    netlink: Netlink,
    originals: Originals,
    devices: Iterable[Device],
    redirects: Mapping[int, int],
    kept: AbstractSet[int],
) -> Settled:
    """Have the kernel so. devices: those there are. kept: as changes() has it.

    Raises NetlinkError at the first that is refused: an IFB that goes before its filter makes a NIC deaf.
    """
    ours = [one for one in devices if is_our_ifb(one)]
    if not redirects and not ours:
        return Settled(0)
    nics = {int(one.name.removeprefix(_NAME)) for one in ours if one.name.removeprefix(_NAME).isdecimal()}
    nics |= redirects.keys()
    found = dump.found(netlink, sorted(nics))
    needed = changes(redirects, found, originals.clsacts(found.devices) & nics, kept)
    originals.note_clsacts([found.devices[one.makes_clsact] for one in needed if one.makes_clsact])
    for one in needed:
        netlink.one(one.request)
    return Settled(len(needed), frozenset(one.redirects for one in needed if one.redirects))


def make_ifbs(netlink: Netlink, interfaces: AbstractSet[int]) -> dict[int, int]:
    """Interface -> its IFB, made where it is missing, and switched on. Raises NetlinkError."""
    have = {device.name: device for device in dump.devices(netlink).values()}
    missing = [name for name in map(ifb_name, sorted(interfaces)) if name not in have]
    for name in missing:
        netlink.one(messages.new_ifb(name))
    if missing:
        have = {device.name: device for device in dump.devices(netlink).values()}
    made = {interface: have[ifb_name(interface)] for interface in interfaces}
    for device in made.values():
        if not device.up:
            netlink.one(messages.link_up(device.index))
    return {interface: device.index for interface, device in made.items()}


def ifb_of(netlink: Netlink, interface: int) -> int:
    """The IFB of one interface, made where it is missing: where it is not, that costs a question. Raises
    NetlinkError.
    """
    try:
        return socket.if_nametoindex(ifb_name(interface))
    except OSError:
        return make_ifbs(netlink, {interface})[interface]


def changes(
    redirects: Mapping[int, int],
    found: Found,
    made: AbstractSet[int] = frozenset(),
    kept: AbstractSet[int] = frozenset(),
) -> tuple[Change, ...]:
    """What is to be done so that these interfaces (and no others) go through their IFBs. Pure.

    redirects: interface -> IFB. found: with the filters of these interfaces and of those redirected before.
    made: interfaces whose clsact we made: it goes when nobody's filter is in it. IFBs of ours that nobody
    needs go last, after the filters that lead to them; kept: those that stay without a redirection.
    """
    needed: list[Change] = []
    clsacts = {qdisc.interface for qdisc in found.qdiscs if qdisc.kind in _FILTERS}
    ours = {one.interface: one for one in found.filters if is_redirect(one, found)}
    for interface, one in ours.items():
        if redirects.get(interface) != one.target:
            needed.append(Change(without(one, found), f"delete redirection of interface {interface}"))
    for interface, target in redirects.items():
        if interface not in found.devices or target not in found.devices:
            continue
        if not found.devices[target].up:  # the kernel drops what is redirected there
            up = messages.link_up(target)
            needed.append(Change(up, f"set interface {target} up", redirects=interface))
        if interface not in clsacts:
            needed.append(
                Change(messages.clsact(interface), f"add clsact at interface {interface}", interface)
            )
        if interface not in ours or ours[interface].target != target:
            what = f"redirect what interface {interface} receives to interface {target}"
            needed.append(Change(messages.redirect(interface, target), what, redirects=interface))
    needed += _unneeded_clsacts(redirects, found, made & clsacts, ours)
    for device in found.devices.values():
        if is_our_ifb(device) and device.index not in {*kept, *redirects.values()}:
            needed.append(Change(messages.no_link(device.index), f"delete interface {device.name}"))
    return tuple(needed)


def is_redirect(one: Filter, found: Found) -> bool:
    """Whether it is our filter that leads to an IFB."""
    target = found.devices.get(one.target)
    at = one.parent == INGRESS and one.priority == REDIRECTS and one.kind == "u32"
    return at and (target is None or is_our_ifb(target))


def without(one: Filter, found: Found) -> Request:
    """Removes a filter; with its whole priority where that is all there is, for u32 would leave its table."""
    beside = any(
        (other.interface, other.parent, other.priority) == (one.interface, one.parent, one.priority)
        for other in found.filters
        if other is not one
    )
    handle = one.handle if beside else 0
    return messages.no_filter(one.interface, one.parent, one.priority, one.protocol, handle, one.kind)


def _unneeded_clsacts(
    redirects: Mapping[int, int], found: Found, made: AbstractSet[int], ours: Mapping[int, Filter]
) -> list[Change]:
    """Those that we made and that hold no filter but the redirection that goes."""
    used = {
        one.interface
        for one in found.filters
        if one.parent in (INGRESS, EGRESS) and ours.get(one.interface) is not one
    }
    return [
        Change(messages.no_qdisc(interface, CLSACT, CLSACT_HANDLE), f"delete clsact at interface {interface}")
        for interface in sorted(made - redirects.keys() - used)
    ]
