"""Rounds of rescheduling: who leads looks, decides, and says what it would do, or has it done."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from adapters.api import NODES, PODS
from adapters.kubernetes.events import EventWriter, Regarding
from manager.carrying import Carrier
from manager.loads import LoadSource
from manager.metrics import Metrics
from manager.rescheduling_config import Rescheduling
from rescheduling.records import Migration, Round, World
from rescheduling.rescheduler import Rescheduler

log = logging.getLogger(__name__)

WOULD_MIGRATE: Final = "WouldMigrate"
STAYS_HOT: Final = "StaysHot"
TELL_AGAIN_SECONDS: Final = 3600.0
"""Until it is said again that a node stays hot."""
MOST_TOLD: Final = 10
"""Nodes of which that is said in a round."""


class Rounds:
    """Mode Preview (without a carrier): an Event at each pod that would be moved; Active: each is begun.

    In both an Event at each node that stays hot, with why. `latest`: the last round. `clock`: monotonic, for
    durations; `wall`: since the epoch.
    """

    def __init__(
        self,
        config: Rescheduling,
        source: LoadSource,
        carrier: Carrier | None,
        events: EventWriter,
        metrics: Metrics,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._config = config
        self._settings = config.read()
        self._source, self._carrier = source, carrier
        self._events = events
        self._metrics = metrics
        self._clock, self._wall = clock, wall
        self._due = clock()
        self._decider = Rescheduler(self._settings)
        self._told: dict[str, float] = {}
        self.latest = Round()

    @property
    def problem(self) -> str:
        """Why nothing is known, "" if something is."""
        return self._source.usage.problem or (self._carrier.problem if self._carrier else "")

    @property
    def sources(self) -> Mapping[str, int]:
        """How many nodes' usage was known from where at the last look: NodeQoS, metrics.k8s.io, unknown."""
        return self._source.usage.sources

    async def run_when_due(self) -> None:
        """A round, if the last one is long enough ago."""
        if self._clock() >= self._due:
            self._due = self._clock() + self._config.interval_seconds
            await self.run_once()

    async def run_once(self) -> None:
        """Look, decide, say."""
        await self._source.look()
        if self.problem:
            self.latest = Round()
            return
        world = await self._world(self._carrier)
        # Another thread: with 5,000 nodes it is a while, and the Lease must be renewed.
        self.latest = await asyncio.to_thread(self._decider.decide, world, self._wall())
        for one in self.latest.migrations:
            await self._begin(one)
        self._tell_hot(world)

    def _tell_hot(self, world: World) -> None:
        """Each node once in a while: its figures change all the time, and there may be many."""
        now, left = self._clock(), MOST_TOLD
        self._told = {node: at for node, at in self._told.items() if now - at < TELL_AGAIN_SECONDS}
        for node, why in self.latest.hot.items():
            if node in self._told or not left:
                continue
            self._told[node], left = now, left - 1
            about = Regarding("v1", NODES.kind, "", node, world.nodes[node].uid)
            self._events.say(about, "Normal", STAYS_HOT, why)

    def forget(self) -> None:
        """Another one leads, and shows it; who leads again begins anew."""
        self.latest = Round()
        self._decider = Rescheduler(self._settings)
        self._source.usage.forget()
        self._due = self._clock()

    async def _world(self, carrier: Carrier | None) -> World:
        if carrier is None:
            return await self._source.world()
        return await self._source.world(
            carrier.moved(), carrier.under_way(), carrier.failures(), carrier.begun()
        )

    async def _begin(self, one: Migration) -> None:
        if self._carrier is None:
            self._preview(one)
        else:
            await self._carrier.begin(one)

    def _preview(self, one: Migration) -> None:
        self._metrics.migration("previewed")
        namespace, _, name = one.pod.partition("/")
        note = f"would go from {one.source} to {one.target}: {one.why}"
        self._events.say(Regarding("v1", PODS.kind, namespace, name, one.uid), "Normal", WOULD_MIGRATE, note)
        log.info("would migrate pod=%s from=%s to=%s", one.pod, one.source, one.target)
