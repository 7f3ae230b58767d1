"""The ledger's account for those that only look: scrapers and readers of /holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ledger.decisions import DemandReport
from ledger.ledger import Ledger

FRESH_SECONDS: Final = 1.0
SHARE: Final = 0.05
"""The part of the time that looking may take from the verbs: the ledger settles before it reports."""


class _Look(NamedTuple):
    reports: Mapping[str, DemandReport]
    gauges: Mapping[str, float]
    until: float


class Account:
    """What the ledger said at most a second ago; longer only where asking took over 50 ms.

    However many look, and however often, the verbs' event loop works for them once. `clock`: seconds,
    monotonic.
    """

    def __init__(self, ledger: Ledger, clock: Callable[[], float]) -> None:
        self._ledger = ledger
        self._clock = clock
        self._latest: _Look | None = None

    def report(self) -> Mapping[str, DemandReport]:
        """Each policy's account, by key."""
        return self._look().reports

    def gauges(self) -> Mapping[str, float]:
        """Totals, of the same moment as the report; the names are Ledger.gauges'."""
        return self._look().gauges

    def renew(self) -> None:
        """Forget the latest look: the next one asks the ledger."""
        self._latest = None

    def _look(self) -> _Look:
        began = self._clock()
        if self._latest is None or began >= self._latest.until:
            reports, gauges = self._ledger.report(), self._ledger.gauges()
            ended = self._clock()
            self._latest = _Look(reports, gauges, ended + max(FRESH_SECONDS, (ended - began) / SHARE))
        return self._latest
