"""What starts gangs, assembled: what it sees, what the leader does for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from adapters.api import ClusterAPI
from adapters.kubernetes.events import EventWriter
from adapters.loops import Changes
from extender.config import ExtenderConfig
from extender.gang_book import GangBook
from extender.gang_calls import GangCalls
from extender.gang_status import GangStatus
from extender.gangs import LOOK_SECONDS, Gangs
from extender.metrics import Metrics
from extender.view import View
from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos.cluster.objects import Pod

SECONDS: Final = 0.05
"""Between two looks whether gangs have changed, which wait for a change."""
IDLE_SECONDS: Final = 5.0
STATUS_SECONDS: Final = 1.0


class GangParts:
    """Gangs of one program. Where they are not wanted, or in Observe, all of their gates are lifted at once:
    one that is there must not stay. `looks`: whether gangs are looked at.
    """

    def __init__(
        self,
        config: ExtenderConfig,
        api: ClusterAPI,
        ledger: Ledger,
        view: View,
        events: EventWriter,
        metrics: Metrics,
        *,
        clock: Callable[[], float],
    ) -> None:
        wanted = config.quotas
        self.looks = wanted.enabled and wanted.gangs and config.mode is not Mode.OBSERVE
        self._schedulers = frozenset(config.scheduler_names)
        changes = Changes(LOOK_SECONDS if self.looks else IDLE_SECONDS)
        self.book = GangBook(changes.note, self._ours)
        self._gangs = Gangs(GangCalls(api), ledger, self.book, changes, view, events, metrics, clock=clock)
        self._status = GangStatus(api, self.book, metrics, self._gangs.starting, clock=clock)
        if self.looks:
            metrics.gauge(
                "gangs_waiting", "Gangs without places, a group as one.", lambda: self._gangs.waiting
            )

    def _ours(self, pod: Pod) -> bool:
        return self.looks and pod.scheduler_name in self._schedulers

    def loops(self) -> Iterator[tuple[str, float, Callable[[], Awaitable[object]]]]:
        """What the leader does: name, seconds between two rounds, a round."""
        yield "gangs", SECONDS, self._gangs.run_once
        if self.looks:
            yield "gang status", STATUS_SECONDS, self._status.run_once

    async def drain(self) -> None:
        """Finish what is under way."""
        await self._gangs.drain()
