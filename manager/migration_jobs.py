"""PodMigrationJobs: has each carried out as any migration, and writes its status."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from adapters.api import MIGRATION_JOBS, APIError, Conflict, EvictingAPI, NotFound, Unreachable
from adapters.kubernetes.migrating import Kept
from adapters.kubernetes.migration_jobs import job_status, migration_job
from adapters.kubernetes.reflector import Reflector
from manager.carrying import Carrier
from manager.loads import LoadSource
from qos.cluster.running import PROD, RunningPod
from rescheduling.jobs import Answer, Ask, Carried, Job, answer
from rescheduling.records import Migration
from rescheduling.settings import Limits

log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 5.0
"""Until an eviction that was refused is asked for again."""


class Jobs:
    """All PodMigrationJobs. skipped(resource): one cannot be read. `wall`: seconds since the epoch."""

    def __init__(
        self,
        api: EvictingAPI,
        source: LoadSource,
        carrier: Carrier,
        limits: Limits,
        *,
        skipped: Callable[[str], None],
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._api = api
        self._source, self._carrier, self._limits = source, carrier, limits
        self._skipped = skipped
        self._wall = wall
        self._status: dict[str, Mapping[str, Any]] = {}
        self._again: dict[str, float] = {}
        self.known: dict[str, Job] = {}
        self.watch = Reflector(api, MIGRATION_JOBS, self._set, self._remove, clock=clock)

    async def run_once(self) -> None:
        """One step of each job that is not over."""
        open_ = [job for job in [*self.known.values()] if not job.over]
        if not open_ or self._carrier.problem:
            return
        pods = self._source.by_key(self._carrier.moved())
        carried = {one.migration.job: one for one in self._carrier.kept.values() if one.migration.job}
        for job in open_:
            try:
                await self._step(job, pods.get(job.pod), carried.get(job.uid))
            except (APIError, Unreachable) as error:
                log.warning("job waits job=%s error=%s", job.name, error)

    async def _step(self, job: Job, running: RunningPod | None, kept: Kept | None) -> None:
        now = self._wall()
        if kept is not None:
            running = self._source.pod(kept.migration.uid)
        elif running is not None and job.pod_uid not in ("", running.pod.uid):
            running = None  # another one has its name by now
        if kept is None and self._carrier.is_begun(job.uid):
            return  # the watch will show it
        said = answer(job, running, _carried(kept), self._busy(running), now)
        if said.ask is Ask.RESERVE and running is not None:
            await self._carrier.begin(_migration(job, running, now))
        await self._say(job, said, now)
        if said.ask is Ask.EVICT and running is not None and self._again.get(job.uid, 0.0) <= now:
            self._again[job.uid] = now + AGAIN_SECONDS
            try:
                await self._api.evict(running.pod.namespace, running.pod.name, running.pod.uid)
            except (NotFound, Conflict):
                return  # it is gone, and the watch will say so

    def _busy(self, running: RunningPod | None) -> str:
        """Budgets of nodes and of a minute hold for jobs, too."""
        if len(self._carrier.begun()) >= self._limits.minute:
            return f"{self._limits.minute} migrations began in the last minute"
        node = running.pod.node_name if running is not None else ""
        if sum(one.source == node for one in self._carrier.under_way()) >= self._limits.node:
            return f"{self._limits.node} migrations of node {node} are under way"
        return ""

    async def _say(self, job: Job, said: Answer, now: float) -> None:
        comer = self._source.pod(said.came)
        came = (comer.pod.namespace, comer.pod.name) if comer is not None else None
        before = self._status.get(job.name, {})
        status = job_status(job, said, came, before.get("conditions"), now)
        if all(before.get(name) == value for name, value in status.items()):
            return
        raw = await self._api.patch(MIGRATION_JOBS, "", job.name, {"status": status}, subresource="status")
        self._set(raw)

    def _set(self, raw: bytes) -> str:
        try:
            job = migration_job(raw)
        except ValueError:
            self._skipped(MIGRATION_JOBS.plural)
            raise  # the reflector logs it
        self.known[job.name] = job
        self._status[job.name] = orjson.loads(raw).get("status") or {}
        return job.name

    def _remove(self, name: str) -> None:
        self.known.pop(name, None)
        self._status.pop(name, None)


def _carried(kept: Kept | None) -> Carried | None:
    if kept is None:
        return None
    failed = kept.outcome.failed if kept.outcome else ""
    return Carried(kept.phase, kept.node, kept.came, kept.outcome is not None, failed)


def _migration(job: Job, running: RunningPod, now: float) -> Migration:
    """Where it goes the extender decides: anywhere its pod may run, but there."""
    pod = running.pod
    return Migration(
        pod=pod.key,
        uid=pod.uid,
        workload=running.workload,
        source=pod.node_name,
        target="",
        usage={},
        requests=pod.requests,
        expected={},
        why=f"PodMigrationJob {job.name} asks for it",
        prod=running.band == PROD,
        at=now,
        job=job.uid,
        ttl=job.ttl,
    )
