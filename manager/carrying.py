"""Carries migrations out: holds a place, evicts, follows, and lets the place go where it fails.

What is under way is in the Reservations alone. Whoever leads goes on from what is there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from adapters.api import PODS, RESERVATIONS, APIError, Conflict, EvictingAPI, NotFound, Unreachable
from adapters.kubernetes.events import EventWriter, Regarding
from adapters.kubernetes.migrating import Kept, Outcome, ended, kept, name_of, reservation_for
from adapters.kubernetes.reflector import Reflector
from manager.loads import LoadSource
from manager.metrics import Metrics
from qos.cluster.running import Moved
from rescheduling.records import Failure, Migration
from rescheduling.settings import DAY, MINUTE
from rescheduling.steps import Action, Seen, Step, next_step

log = logging.getLogger(__name__)

EVICT_AGAIN_SECONDS: Final = 5.0
"""Until an eviction that was refused is asked for again."""
UNSEEN_SECONDS: Final = 30.0
"""For which a Reservation counts that the watch has not shown yet."""
MIGRATING: Final = "Migrating"
MIGRATED: Final = "Migrated"
MIGRATION_FAILED: Final = "MigrationFailed"


class Carrier:
    """All migrations of this cluster. `ttl`: seconds until a pod must have come to its place, and as long
    again until it must be ready. `wall`: seconds since the epoch.
    """

    def __init__(
        self,
        api: EvictingAPI,
        source: LoadSource,
        events: EventWriter,
        metrics: Metrics,
        *,
        ttl: float,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._api = api
        self._source = source
        self._events = events
        self._metrics = metrics
        self._ttl = ttl
        self._clock, self._wall = clock, wall
        self._unseen: dict[str, tuple[float, Migration]] = {}
        self._refused: dict[str, float] = {}
        self.kept: dict[str, Kept] = {}
        self.refusal = ""
        self.watch = Reflector(
            api,
            RESERVATIONS,
            self._set,
            self._remove,
            on_listed=self._on_listed,
            on_refused=self._on_refused,
            clock=clock,
        )

    @property
    def problem(self) -> str:
        """Why no place can be held, "" if one can."""
        if self.watch.synced.is_set() and not self.refusal:
            silent = self.watch.stale(self._clock())
            return "Reservations cannot be read: no contact with the API server" if silent else ""
        return f"Reservations cannot be read: {self.refusal or 'they are not listed yet'}"

    # --- what the world knows of it ---

    def under_way(self) -> list[Migration]:
        """Migrations that have begun and not ended."""
        now = self._wall()
        seen = [
            one.migration if one.migration.target else replace(one.migration, target=one.node)
            for one in self.kept.values()
            if one.outcome is None
        ]
        self._unseen = {
            name: (at, one)
            for name, (at, one) in self._unseen.items()
            if name not in self.kept and now - at < UNSEEN_SECONDS
        }
        return [*seen, *(one for _, one in self._unseen.values())]

    def failures(self) -> list[Failure]:
        """Those of the last day."""
        now = self._wall()
        return [
            Failure(one.migration.workload, one.outcome.at)
            for one in self.kept.values()
            if one.outcome and one.outcome.failed and now - one.outcome.at < DAY
        ]

    def begun(self) -> list[float]:
        """When those of the last minute began."""
        now = self._wall()
        times = [one.created for one in self.kept.values()] + [at for at, _ in self._unseen.values()]
        return [at for at in times if now - at < MINUTE]

    def is_begun(self, job: str) -> bool:
        """Whether a job's migration has begun, by the UID."""
        return any(one.job == job for one in self.under_way())

    def moved(self) -> dict[str, Moved]:
        """Pods that came in another's place, by UID."""
        found = {}
        for one in self.kept.values():
            if one.outcome and one.outcome.came and not one.outcome.failed:
                said = one.migration
                found[one.outcome.came] = Moved(
                    one.outcome.at, said.times, said.usage, said.expected, said.at
                )
        return found

    # --- what it does ---

    async def begin(self, one: Migration) -> None:
        """Have a place held on the target."""
        running = self._source.pod(one.uid)
        if running is None or running.pod.deleting:
            return
        now = self._wall()
        body = reservation_for(one, running, one.ttl or self._ttl, now)
        name = name_of(one, now)
        self._unseen[name] = now, one
        try:
            await self._api.create(RESERVATIONS, "", body)
        except Unreachable as error:
            log.warning("perhaps no place is held pod=%s error=%s", one.pod, error)  # the watch will say
        except APIError as error:
            self._unseen.pop(name, None)
            log.warning("no place is held pod=%s error=%s", one.pod, error)
            return
        self._metrics.migration("begun")
        to = one.target or "another node"
        note = f"goes from {one.source} to {to}, where Reservation {name} holds its place: {one.why}"
        self._events.say(_pod(one, one.pod, one.uid), "Normal", MIGRATING, note)

    async def run_once(self) -> None:
        """One step of each migration, and away with what is over."""
        now = self._wall()
        open_ = [one for one in [*self.kept.values()] if one.outcome is None]
        await asyncio.gather(*(self._step(one, now) for one in open_))
        for one in [one for one in [*self.kept.values()] if self._is_over(one, now)]:
            try:
                await self._api.delete(RESERVATIONS, "", one.name)
            except NotFound:
                pass
            except (APIError, Unreachable) as error:
                log.warning("reservation not deleted name=%s error=%s", one.name, error)

    def forget(self) -> None:
        """Another one leads."""
        self._unseen.clear()
        self._refused.clear()

    async def _step(self, one: Kept, now: float) -> None:
        step = next_step(self._seen(one), now)
        try:
            if step.action is Action.EVICT:
                await self._evict(one, now)
            elif step.action in (Action.FINISH, Action.FAIL):
                await self._end(one, step, now)
        except (APIError, Unreachable) as error:
            log.warning("migration waits pod=%s step=%s error=%s", one.name, step.action.value, error)

    def _seen(self, one: Kept) -> Seen:
        return Seen(
            target=one.migration.target,
            phase=one.phase,
            node=one.node,
            leaves=self._source.pod(one.migration.uid),
            came=one.came,
            comer=self._source.pod(one.came),
            bound_by=one.created + (one.migration.ttl or self._ttl),
            ready_by=one.created + 2 * (one.migration.ttl or self._ttl),
        )

    async def _evict(self, one: Kept, now: float) -> None:
        """A PodDisruptionBudget may refuse; the pod is asked for again until its time is over."""
        if self._refused.get(one.name, 0.0) > now:
            return
        said = one.migration
        self._refused[one.name] = now + EVICT_AGAIN_SECONDS
        try:
            await self._api.evict(said.namespace, said.pod.partition("/")[2], said.uid)
        except (NotFound, Conflict):
            return  # it is gone, and the watch will say so
        log.info("evicted pod=%s from=%s to=%s", said.pod, said.source, said.target)

    async def _end(self, one: Kept, step: Step, now: float) -> None:
        said = one.migration
        outcome = Outcome(now, step.reason, one.came)
        await self._api.patch(RESERVATIONS, "", one.name, ended(outcome))
        self._refused.pop(one.name, None)
        if step.reason:
            self._metrics.migration("failed")
            note = f"stays, or goes where it may ({step.reason}): {step.why}"
            self._events.say(_pod(said, said.pod, said.uid), "Warning", MIGRATION_FAILED, note)
            log.warning("migration failed pod=%s reason=%s", said.pod, step.reason)
            return
        self._metrics.migration("succeeded")
        comer = self._source.pod(one.came)
        if comer is not None:
            note = f"came to {one.node} in the place of {said.pod}, which left {said.source}"
            self._events.say(_pod(said, comer.pod.key, comer.pod.uid), "Normal", MIGRATED, note)

    def _is_over(self, one: Kept, now: float) -> bool:
        """A failure counts for a day; what was moved, as long as its pod is there."""
        if one.outcome is None:
            return False
        if one.outcome.failed:
            return now - one.outcome.at >= DAY
        return self._source.pod(one.outcome.came) is None and now - one.outcome.at >= MINUTE

    def _set(self, raw: bytes) -> str | None:
        found = kept(raw)
        if found is None:
            return None
        self.kept[found.name] = found
        return found.name

    def _remove(self, name: str) -> None:
        self.kept.pop(name, None)

    def _on_listed(self, _began: float) -> None:
        self.refusal = ""

    def _on_refused(self, error: APIError) -> None:
        self.refusal = str(error)


def _pod(one: Migration, key: str, uid: str) -> Regarding:
    return Regarding("v1", PODS.kind, one.namespace, key.partition("/")[2], uid)
