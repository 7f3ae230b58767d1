"""The ledger's account for those that only look: scrapers and readers of /holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from adapters.loops import last_of
from ledger.decisions import DemandReport
from ledger.ledger import Ledger

FRESH_SECONDS: Final = 1.0
SHARE: Final = 0.05
"""The part of the time that looking may take from the verbs: the ledger settles before it reports."""


class Snapshot(NamedTuple):
    """What the ledger said: each policy's account, by key, and totals under Ledger.gauges' names."""

    reports: Mapping[str, DemandReport]
    gauges: Mapping[str, float]


class Snapshots:
    """What the ledger said at most a second ago; longer only where asking took over 50 ms.

    However many look, and however often, the verbs' event loop works for them once, in steps. `clock`:
    seconds, monotonic.
    """

    def __init__(self, ledger: Ledger, clock: Callable[[], float]) -> None:
        self._ledger = ledger
        self._clock = clock
        self._until = float("-inf")
        self._one_at_a_time = asyncio.Lock()
        self.latest = Snapshot({}, {})
        """Empty before the first look."""

    async def take(self) -> Snapshot:
        """The latest one, or a new one when that is old."""
        async with self._one_at_a_time:
            began = self._clock()
            if began >= self._until:
                reports = await last_of(self._ledger.gather_report())
                self.latest = Snapshot(reports, self._ledger.gauges())
                ended = self._clock()
                self._until = ended + max(FRESH_SECONDS, (ended - began) / SHARE)
            return self.latest

    def renew(self) -> None:
        """The next look asks the ledger."""
        self._until = float("-inf")
