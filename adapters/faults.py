"""Faults of an API server that is played from memory."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from adapters.api import Resource


@dataclass(slots=True)
class Fault:
    """What the next calls of a verb meet: an error, before or after the write took effect, or a wait."""

    verb: str
    resource: Resource | None
    error: Exception | None
    times: int
    applied: bool
    gate: asyncio.Event | None
    after: int

    def strikes(self, verb: str, resource: Resource) -> bool:
        """Whether this call meets the fault; counts the calls that it lets pass."""
        if self.times == 0 or self.verb != verb or self.resource not in (None, resource):
            return False
        if self.after > 0:
            self.after -= 1
            return False
        self.times -= 1
        return True
