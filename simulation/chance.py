"""Chance from one seed, by name: what one decision draws does not depend on what others drew.

So a history that was made shorter keeps the luck of what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar
from zlib import crc32

T = TypeVar("T")

_MIX = 0x9E3779B97F4A7C15
_BITS = (1 << 64) - 1


class Chance:
    """Draws by name; the same name draws the same again."""

    def __init__(self, seed: int) -> None:
        self._prefix = f"{seed}/".encode()

    def share(self, *name: object) -> float:
        """A number from 0 up to, not including, 1."""
        text = self._prefix + "/".join(map(str, name)).encode()
        mixed = (crc32(text) + 1) * _MIX & _BITS
        mixed = (mixed ^ (mixed >> 29)) * 0xBF58476D1CE4E5B9 & _BITS
        return ((mixed ^ (mixed >> 32)) >> 11) / (1 << 53)

    def between(self, least: float, most: float, *name: object) -> float:
        """A number from `least` to `most`."""
        return least + (most - least) * self.share(*name)

    def happens(self, share: float, *name: object) -> bool:
        """True for this share of all names."""
        return share > 0 and self.share(*name) < share

    def pick(self, items: Sequence[T], *name: object) -> T:
        """One of the items."""
        return items[int(self.share(*name) * len(items))]
