"""What a pod sends and receives: bands, floors and limits.

Bytes a second everywhere; what people write in bits a second is turned once, where it is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

from qos.quantity import MAXIMUM, QuantityError, parse

BytesPerSecond: TypeAlias = int

BITS: Final = 8
"""In a byte."""
LEAST_BITS: Final = 1000
"""A second, of what can be asked for; Kubernetes refuses less, too."""


class Band(IntEnum):
    """Whose traffic goes first, L0 before L1 before L2; terway-qos' names and numbers."""

    L0 = 0
    L1 = 1
    L2 = 2


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and the most of one direction, bytes a second; floor 0: none; limit None: none."""

    floor: BytesPerSecond = 0
    limit: BytesPerSecond | None = None


NO_BOUNDS: Final = Bounds()


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that may be sent and received, bytes a second; None: no limit."""

    egress: BytesPerSecond | None = None
    ingress: BytesPerSecond | None = None

    def of(self, direction: str) -> BytesPerSecond | None:
        """Of "egress" or "ingress"."""
        return self.egress if direction == "egress" else self.ingress


UNLIMITED: Final = Limits()


def from_bits(bits: int) -> BytesPerSecond:
    """Bits a second as bytes a second, rounded down: floors never exceed what was published in bits."""
    return bits // BITS


def from_quantity(name: str, text: str | float) -> BytesPerSecond:
    """A Kubernetes quantity in bits a second (10M, 2.5G, 1000000), 1k to 281T. QuantityError names `name`.

    Kubernetes takes up to 1P; no link is faster than 281T (2**48).
    Source: k8s.io/kubernetes pkg/util/bandwidth.
    """
    bits = parse(name, text)
    if bits < LEAST_BITS:
        milli = ": m means thousandths, M millions" if str(text).endswith("m") else ""
        raise QuantityError(name, text, f"less than 1k bits a second{milli}")
    if bits >= MAXIMUM:
        raise QuantityError(name, text, "more bits a second than any link has")
    return from_bits(bits)
