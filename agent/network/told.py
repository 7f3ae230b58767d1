"""What people say of a node's link: the agent's options, and over them the labels of the Node. Pure.

Labels and not annotations, because what makes nodes (a cloud's node group, an autoscaler) can label them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from qos import keys
from qos.bandwidth import BITS, BytesPerSecond
from qos.cluster.network_state import INTERFACE, LABEL, OPTION
from qos.network.wanted import Direction
from qos.quantity import MAXIMUM, QuantityError, is_whole, parse

EGRESS_SHARE: Final = Fraction(94, 100)
INGRESS_SHARE: Final = Fraction(90, 100)
"""Of the line rate; the rest are frames' headers and gaps, and keeps queues with us and out of the card."""
_SLOWEST: Final = 1_000_000
"""Bits a second: no link is slower, so whoever says less has left out a suffix."""
_LONGEST_NAME: Final = 15
"""IFNAMSIZ of linux/if.h, without the zero at its end."""


class ToldWrongError(ValueError):
    """What is said cannot be so; the message names where it is said, the value, and what is expected."""


@dataclass(frozen=True, slots=True)
class Told:
    """What people say of a link. interface: its name, "": that of the default route.

    egress, ingress: bytes a second; 0: what the interface says. The shares: above 0, at most 1, of what pods
    may have.
    """

    interface: str = ""
    egress: BytesPerSecond = 0
    ingress: BytesPerSecond = 0
    egress_share: Fraction = EGRESS_SHARE
    ingress_share: Fraction = INGRESS_SHARE


NOTHING_TOLD: Final = Told()


def rate(where: str, text: str) -> BytesPerSecond:
    """A quantity of bits a second, such as 10G, in bytes a second; "": 0. ToldWrongError."""
    if not text:
        return 0
    expected = "expected bits a second, such as 10G"
    try:
        bits = parse(where, text)
        if not is_whole(where, text):
            why = f"{expected}: m is milli, M is a million"
            raise ToldWrongError(f"{where} {text}: {why}")
    except QuantityError:
        raise ToldWrongError(f"{where} {text}: {expected}") from None
    if not _SLOWEST <= bits < MAXIMUM:
        raise ToldWrongError(f"{where} {text}: {expected}, at least 1M")
    return bits // BITS


def share(where: str, text: str) -> Fraction:
    """A part of the link, above 0 and at most 1, such as 0.94. ToldWrongError."""
    try:
        part = Fraction(text)
    except (ValueError, ZeroDivisionError):
        part = Fraction(0)
    if not 0 < part <= 1:
        raise ToldWrongError(f"{where} {text}: expected a part above 0 and at most 1, such as 0.94")
    return part


def interface(where: str, text: str) -> str:
    """The name of an interface; "": none is named. ToldWrongError."""
    if len(text.encode()) > _LONGEST_NAME or "/" in text or any(one.isspace() for one in text):
        raise ToldWrongError(f"{where} {text}: expected the name of an interface, such as eth0")
    return text


def told(named: str, egress: str, ingress: str, egress_share: str, ingress_share: str) -> Told:
    """What the agent's options say of a link, as they are written. ToldWrongError names the option."""
    return Told(
        interface("--link-interface", named),
        rate("--link-egress", egress),
        rate("--link-ingress", ingress),
        share("--link-egress-share", egress_share),
        share("--link-ingress-share", ingress_share),
    )


def sources(options: Told, labels: Mapping[str, str]) -> dict[Direction, str]:
    """Who says how fast the link is, each direction by itself: one of qos.cluster.network_state.SOURCES."""
    return {
        direction: LABEL if labels.get(label) else OPTION if option else INTERFACE
        for direction, label, option in (
            (Direction.EGRESS, keys.LINK_EGRESS_LABEL, options.egress),
            (Direction.INGRESS, keys.LINK_INGRESS_LABEL, options.ingress),
        )
    }


def over(options: Told, labels: Mapping[str, str]) -> Told:
    """With what the Node's labels say, each in the place of its option. ToldWrongError."""
    said = {
        "interface": interface(keys.LINK_INTERFACE_LABEL, labels.get(keys.LINK_INTERFACE_LABEL, "")),
        "egress": rate(keys.LINK_EGRESS_LABEL, labels.get(keys.LINK_EGRESS_LABEL, "")),
        "ingress": rate(keys.LINK_INGRESS_LABEL, labels.get(keys.LINK_INGRESS_LABEL, "")),
    }
    return replace(options, **{field: value for field, value in said.items() if value})  # type: ignore[arg-type]
