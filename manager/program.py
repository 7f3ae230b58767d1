"""The process: what it is made of, in what order it starts, and how it stops."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final

from adapters.api import POLICIES, VALIDATING_WEBHOOKS, EvictingAPI
from adapters.kubernetes import decode
from adapters.kubernetes.events import EventWriter
from adapters.kubernetes.lease import LeaseElector
from adapters.kubernetes.reflector import Reflector
from adapters.loops import forever, only_while
from adapters.serving.addresses import listen
from adapters.serving.readiness import Readiness
from adapters.serving.server import serve_until, server
from adapters.webhooks.registration import withdraw
from manager import rest
from manager.below_floor import BelowFloor
from manager.carrying import Carrier
from manager.config import ManagerConfig
from manager.loads import LoadSource
from manager.metrics import Metrics
from manager.migration_jobs import Jobs
from manager.quotas.hooks import NAME as QUOTA_HOOKS
from manager.quotas.webhook import QuotaWebhook
from manager.rescheduling import Rounds
from manager.rescheduling_config import RescheduleMode
from qos.cluster.policy import Policy

log = logging.getLogger(__name__)

CONTROLLER: Final = "j10ce.io/manager"
EVENT_SECONDS: Final = 0.5
LOOK_SECONDS: Final = 1.0
"""Between two looks whether what is done now and then is due."""
REGISTER_SECONDS: Final = 0.5
RESTART_SECONDS: Final = 1.0
"""Until a watch or the election goes on after a bug; they handle what the API server does themselves."""


class Program:
    """One manager, assembled; `api` is the real API server or one in memory. `config` is named().

    `clock`: seconds, monotonic, for durations; `wall`: since the epoch, only for what is written.
    """

    def __init__(
        self,
        config: ManagerConfig,
        api: EvictingAPI,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.config = config
        self.metrics = Metrics()
        self.policies: dict[str, Policy] = {}
        self.events = EventWriter(
            api, self.metrics.event, controller=CONTROLLER, identity=config.identity, clock=clock, wall=wall
        )
        self.below_floor = BelowFloor(
            api,
            self.policies,
            self.events,
            seconds=config.look_seconds,
            skipped=self.metrics.skipped,
            clock=clock,
        )
        self._watch = Reflector(
            api,
            POLICIES,
            self._set_policy,
            self._remove_policy,
            stale_after=config.stale_seconds,
            clock=clock,
        )
        self.carrier: Carrier | None = None
        self.jobs: Jobs | None = None
        self.rounds = self._rescheduling(api, clock, wall)
        self._watches = {POLICIES.plural: self._watch, **(self.loads.watches if self.rounds else {})}
        namespace, _, name = config.lease.partition("/")
        self.quotas = self._quota_webhook(api, namespace, clock)
        serving = {} if self.quotas is None else {"webhook": self.quotas}
        self.readiness = Readiness({**self._watches, **serving}, clock)
        self._api, self._withdrawn = api, False
        self.elector = LeaseElector(api, namespace, name, config.identity, on_stopped=self._forget)
        self.metrics.gauge("leader", "1 when this manager is the leader.", lambda: self.elector.is_leader)
        self.metrics.gauge("policies", "Policies that are known.", lambda: len(self.policies))
        self.metrics.show_below_floor(lambda: self.below_floor.counts)

    def _quota_webhook(
        self, api: EvictingAPI, namespace: str, clock: Callable[[], float]
    ) -> QuotaWebhook | None:
        """None where it is off."""
        if not self.config.quotas:
            return None
        return QuotaWebhook(
            api,
            self.config.webhook,
            namespace,
            reviewed=self.metrics.quota_review,
            skipped=self.metrics.skipped,
            stale_after=self.config.stale_seconds,
            clock=clock,
        )

    async def _withdraw_quotas(self) -> None:
        """Who was asked before it was switched off is asked no more: it fails closed."""
        self._withdrawn = self._withdrawn or await withdraw(self._api, VALIDATING_WEBHOOKS, QUOTA_HOOKS)

    def _rescheduling(
        self, api: EvictingAPI, clock: Callable[[], float], wall: Callable[[], float]
    ) -> Rounds | None:
        """None where it is off: then nothing is watched for it."""
        config = self.config.rescheduling
        if config.mode is RescheduleMode.OFF:
            return None
        self.loads = LoadSource(
            api,
            self.policies,
            config.read(),
            skipped=self.metrics.skipped,
            stale_after=self.config.stale_seconds,
            clock=clock,
            wall=wall,
        )
        if config.mode is RescheduleMode.ACTIVE:
            self.carrier = Carrier(
                api,
                self.loads,
                self.events,
                self.metrics,
                ttl=config.ttl_seconds,
                clock=clock,
                wall=wall,
            )
        if config.pod_migration_jobs and self.carrier is not None:
            self.jobs = Jobs(
                api,
                self.loads,
                self.carrier,
                config.read().limits,
                skipped=self.metrics.skipped,
                clock=clock,
                wall=wall,
            )
        rounds = Rounds(config, self.loads, self.carrier, self.events, self.metrics, clock=clock, wall=wall)
        self.metrics.show_pools(lambda: rounds.latest.pools)
        self.metrics.show_usage(lambda: rounds.sources)
        return rounds

    def _forget(self) -> None:
        self.below_floor.forget()
        self._withdrawn = False
        if self.rounds is not None:
            self.rounds.forget()
        if self.carrier is not None:
            self.carrier.forget()

    def _set_policy(self, raw: bytes) -> str:
        try:
            policy = decode.policy(raw)
        except decode.DecodeError:
            self.metrics.skipped(POLICIES.plural)
            raise  # the reflector logs it and keeps the last good state
        self.policies[policy.key] = policy
        return policy.key

    def _remove_policy(self, key: str) -> None:
        self.policies.pop(key, None)

    async def run(self, stop: asyncio.Event, opened: socket.socket | None = None) -> None:
        """Serve until `stop` is set. OSError when the address cannot be had; `opened`: its socket."""
        opened = opened or listen(self.config.address)
        asked = [] if self.quotas is None else [self.quotas.serve(stop, listen(self.config.webhook.address))]
        tasks = [asyncio.create_task(work, name=name) for name, work in self._tasks()]
        log.info("serving address=%s identity=%s", self.config.address, self.config.identity)
        try:
            app = rest.app(self.readiness, self.metrics, self.rounds)
            own = serve_until(stop, [(server(app), opened)], draining=self.readiness.drain)
            await asyncio.gather(own, *asked)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _tasks(self) -> Iterable[tuple[str, Coroutine[Any, Any, None]]]:
        yield "start", self._start()
        for name, watch in self._watches.items():
            yield f"watch {name}", self._loop("watch", RESTART_SECONDS, watch.run)
        yield "lease", self._loop("lease", RESTART_SECONDS, self.elector.run)
        yield "events", self._loop("events", EVENT_SECONDS, self._leading(self.events.run_once))
        yield "requests", self._loop("requests", LOOK_SECONDS, self._leading(self.below_floor.run_when_due))
        if self.quotas is not None:
            yield "watch quotas", self._loop("watch", RESTART_SECONDS, self.quotas.known.watch.run)
        hooks = self._withdraw_quotas if self.quotas is None else self.quotas.register
        yield "webhook", self._loop("webhook", REGISTER_SECONDS, self._leading(hooks))
        if self.rounds is not None:
            # Not every cluster has it, so readiness does not wait for it.
            yield "watch nodeqoses", self._loop("watch", RESTART_SECONDS, self.loads.usage.watch.run)
            rounds = self._leading(self.rounds.run_when_due)
            yield "rescheduling", self._loop("rescheduling", LOOK_SECONDS, rounds)
        if self.carrier is not None:
            steps = self._leading(self.carrier.run_once)
            yield "watch reservations", self._loop("watch", RESTART_SECONDS, self.carrier.watch.run)
            yield "migrations", self._loop("migrations", LOOK_SECONDS, steps)
        if self.jobs is not None:
            steps = self._leading(self.jobs.run_once)
            yield "watch jobs", self._loop("watch", RESTART_SECONDS, self.jobs.watch.run)
            yield "jobs", self._loop("jobs", LOOK_SECONDS, steps)

    def _loop(
        self, name: str, seconds: float, once: Callable[[], Awaitable[object]]
    ) -> Coroutine[Any, Any, None]:
        return forever(name, seconds, once, self.metrics.loop_error)

    def _leading(self, once: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[object]]:
        """Only the leader acts, and only from a complete and fresh account."""
        return only_while(lambda: self.elector.is_leader and not self.readiness.problem(), once)

    async def _start(self) -> None:
        await self.readiness.wait_synced()
        self.readiness.open()
        log.info("ready policies=%d", len(self.policies))
