"""What a pod sends and receives: bands, floors and limits.

Bytes a second everywhere; what people write in bits a second is turned once, where it is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

BytesPerSecond: TypeAlias = int

BITS: Final = 8
"""In a byte."""


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
