"""Whether the verbs may answer: every list is in, and no watch has been silent for too long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol


class Source(Protocol):
    """What feeds the ledger; adapters.kubernetes.reflector.Reflector is one."""

    synced: asyncio.Event

    def stale(self, now: float) -> bool:
        """True when there was no contact for longer than the bound; `now` by the source's clock."""
        ...


class Readiness:
    """One answer for all sources, by name. `clock` is the sources' clock."""

    def __init__(self, sources: Mapping[str, Source], clock: Callable[[], float]) -> None:
        self._sources = dict(sources)
        self._clock = clock
        self._open = False
        self._draining = False

    async def wait_synced(self) -> None:
        """Return when every list is in."""
        for source in self._sources.values():
            await source.synced.wait()

    def open(self) -> None:
        """The ledger stands: the verbs may answer from now on."""
        self._open = True

    def drain(self) -> None:
        """Report not ready from now on; verbs that still come are answered."""
        self._draining = True

    def problem(self) -> str:
        """Empty when the verbs may answer; else why not, the same words for the same cause."""
        if not self._open:
            missing = sorted(name for name, source in self._sources.items() if not source.synced.is_set())
            return f"not listed yet: {', '.join(missing)}" if missing else "starting"
        now = self._clock()
        stale = [name for name, source in self._sources.items() if source.stale(now)]
        return f"no contact with the API server: {', '.join(sorted(stale))}" if stale else ""

    def report(self) -> str:
        """As `problem`; not ready while draining either, so that nobody sends new work here."""
        return "shutting down" if self._draining else self.problem()
