"""The BPF classifier as a filter of clsact, where the kernel has no TCX. Others' filters stay as they are.

A filter is ours by its priority and its name together.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import Final

from agent.network import dump, messages
from agent.network.netlink import Netlink, NetlinkError
from agent.network.records import EGRESS, NAME, PRIORITY, Filter

_PROTOCOL: Final = messages.ALL_PROTOCOLS


class Occupied(Exception):  # noqa: N818 - reads as what happened
    """Another's filter has our priority; the message names it."""


def query(netlink: Netlink, interface: int, parent: int = EGRESS) -> Filter | None:
    """Our filter, with the id of the program that is in it; None: there is none. parent: EGRESS or INGRESS.

    Raises Occupied, NetlinkError.
    """
    return ours(dump.filters(netlink, interface, (parent,)), interface)


def ours(there: Iterable[Filter], interface: int) -> Filter | None:
    """That of these filters, of one interface and direction, that is ours. Raises Occupied. Pure."""
    for one in there:
        if one.priority == PRIORITY:
            if one.kind == "bpf" and one.name.startswith(NAME):
                return one
            raise Occupied(
                f"filter {one.kind} {one.name!r} at interface {interface} has priority {PRIORITY}, which is "
                f"that of {NAME}: give it another"
            )
    return None


def attach(netlink: Netlink, interface: int, program: int, name: str, parent: int = EGRESS) -> bool:
    """Hangs in a program (its descriptor), in place of the one that we have there: no packet passes between.

    name: begins with records.NAME. Returns whether a clsact had to be made for it, which uninstalling has to
    remember. Raises Occupied, NetlinkError.
    """
    query(netlink, interface, parent)
    made = True
    try:
        netlink.one(messages.clsact(interface))
    except NetlinkError as refused:
        if refused.errno != errno.EEXIST:
            raise
        made = False
    netlink.one(messages.bpf_filter(interface, parent, program, name))
    return made


def detach(netlink: Netlink, interface: int, parent: int = EGRESS) -> bool:
    """Takes ours out; False: there was none. Raises Occupied, NetlinkError."""
    have = query(netlink, interface, parent)
    if have is None:
        return False
    netlink.one(messages.no_filter(interface, parent, PRIORITY, _PROTOCOL, have.handle, "bpf"))
    return True
