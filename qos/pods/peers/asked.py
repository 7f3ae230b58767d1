"""What people ask of a pod's traffic, in words of other projects: its band and its limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from qos.bandwidth import UNLIMITED, Band, Limits
from qos.promises import Unsupported


@dataclass(frozen=True, slots=True)
class Asked:
    """What one annotation, or one file, says of one pod; band None: nothing of it.

    unsupported: what was understood and is not done. unknown: names that the other project has not either.
    """

    band: Band | None = None
    limits: Limits = UNLIMITED
    unsupported: tuple[Unsupported, ...] = ()
    unknown: tuple[str, ...] = ()


AskedReader: TypeAlias = Callable[[str], Asked]
"""Reads one annotation. ValueError: it cannot be understood, and has no effect."""
