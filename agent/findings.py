"""What the doctor finds: one thing looked at, how good it is, and what to do."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Grade(Enum):
    """How good a finding is."""

    WORKS = "works"
    LIMITED = "limited"
    """Floors are kept; something beside them is not, or costs more."""
    BROKEN = "broken"
    """A floor is not kept, or nothing is."""


class Finding(NamedTuple):
    """One thing looked at: how it is, and what to do about it ("" nothing)."""

    subject: str
    grade: Grade
    text: str
    do: str = ""
