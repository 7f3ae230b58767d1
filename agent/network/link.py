"""Which interface is the node's link, and what of it pods may have together. Pure but for look()."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agent.network.interfaces import LOOPBACK, LOWER_UP, DefaultRoute, Interface, default_routes, interfaces
from agent.network.netlink import Netlink
from agent.network.speed import speed
from agent.network.told import Told
from qos import keys
from qos.network.wanted import Link

_MEASURED: Final = ("", "bond", "team", "vlan")
"""Kinds whose speed is their hardware's. A veth says 10 Gbit/s whatever it is, a bridge its fastest port's, a
tunnel nothing that is true.
"""
_SAY: Final = (
    f"label the node {keys.LINK_EGRESS_LABEL} and {keys.LINK_INGRESS_LABEL}, or start its agent with "
    "--link-egress and --link-ingress"
)


@dataclass(frozen=True, slots=True)
class Unknown:
    """Why nothing can be promised of the link. passing: it may know again in a moment, so that what was
    promised before still counts. link: where only its speed is not known; limits are kept there.
    """

    why: str
    passing: bool = False
    link: Link | None = None


def look(netlink: Netlink, told: Told) -> Link | Unknown:
    """The link as it is now. OSError where the kernel answers nothing."""
    routes = () if told.interface else default_routes(netlink)
    chosen = choose(told.interface, interfaces(netlink), routes)
    if isinstance(chosen, Unknown):
        return chosen
    return promised(chosen, speed(netlink.fileno(), chosen.name), told)


def choose(name: str, there: Sequence[Interface], routes: Sequence[DefaultRoute]) -> Interface | Unknown:
    """The interface that people name; else that of the default route: of IPv4, where there is none of IPv6,
    and of several that with the lowest metric.

    A bond or a VLAN is the link itself, and not what it is made of: what is queued there is queued once, and
    for all of it. Where one route has several interfaces (ECMP) none of them is the link.
    """
    if name:
        named = [one for one in there if one.name == name]
        return named[0] if named else Unknown(f"the node has no interface {name}: name another one")
    for version in (4, 6):
        ways = sorted(one.metric for one in routes if one.version == version)
        indexes = {
            index
            for one in routes
            if ways and (one.version, one.metric) == (version, ways[0])
            for index in one.interfaces
        }
        through = sorted((one for one in there if one.index in indexes), key=lambda one: one.name)
        if len(through) == 1:
            return through[0]
        if through:
            names = ", ".join(one.name for one in through)
            return Unknown(
                f"the default route goes through {names} at once, and floors are kept at one alone: "
                f"name it by the label {keys.LINK_INTERFACE_LABEL} or by --link-interface"
            )
    return Unknown(
        "the node has no default route that would show its link: name it by --link-interface", True
    )


def promised(interface: Interface, measured: int | None, told: Told) -> Link | Unknown:
    """What pods together may send and receive; measured: what the interface says, in bytes a second.

    A direction that nobody knows is 0; Unknown where none is known, and where a carrier may bring it back.
    """
    name = interface.name
    if interface.flags & LOOPBACK:
        return Unknown(f"{name} is the loopback, which leads nowhere: name another one")
    if measured is not None and interface.kind not in _MEASURED:
        measured, why = None, f"{name} is a {interface.kind}, whose speed is made up"
    elif not interface.flags & LOWER_UP:
        why = f"{name} has no carrier"
    else:
        why = f"{name} does not say how fast it is, as virtual machines' often do not"
    egress, ingress = told.egress or measured or 0, told.ingress or measured or 0
    passing = not interface.flags & LOWER_UP and interface.kind in _MEASURED
    if not (egress or ingress) or (passing and not (egress and ingress)):
        return Unknown(f"{why}: {_SAY}", passing, Link(interface.index, name, 0, 0))
    return Link(
        index=interface.index,
        name=name,
        egress=int(egress * told.egress_share),
        ingress=int(ingress * told.ingress_share),
    )
