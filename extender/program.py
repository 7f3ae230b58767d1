"""The process: what it is made of, in what order it starts, and how it stops."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from typing import Any, Final

from adapters import garbage
from adapters.api import EvictingAPI
from adapters.kubernetes.events import EventWriter
from adapters.kubernetes.lease import LeaseElector
from adapters.kubernetes.reflector import Reflector
from adapters.loops import Changes, forever, only_while, when_due
from adapters.serving.readiness import Readiness
from adapters.serving.server import Serving, serve_until
from adapters.serving.server import server as server_of
from extender import rest, server
from extender.awaiting import Awaiting
from extender.binder import Binder
from extender.budget_status import BudgetStatus
from extender.buffers import Buffers
from extender.catalog import Catalog
from extender.config import ExtenderConfig
from extender.evictions import Evictions
from extender.expiry import Expiry
from extender.gang_parts import GangParts
from extender.giving_back import GivingBack
from extender.guarding import Guarding
from extender.hearing import Hearing
from extender.ingest import Ingest
from extender.installation import installed_at
from extender.keeper import Cluster, PlaceholderKeeper
from extender.metrics import Metrics
from extender.node_reports import NodeReports
from extender.owners import Owners
from extender.policy_status import PolicyStatus
from extender.quota_status import QuotaStatus
from extender.reservation_status import ReservationStatus
from extender.reservations import Reservations
from extender.scale_down import ScaleDownGuard
from extender.scale_targets import ScaleTargets
from extender.slot_marks import SlotMarks
from extender.snapshots import Snapshots
from extender.unasking import Unasking
from extender.view import View
from extender.waking import Waker
from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos.cluster.objects import Demand, Keeper, Pod
from qos.cluster.policy import Policy
from quota.limits import Limits

log = logging.getLogger(__name__)

STATUS_SECONDS: Final = 1.0
"""The shortest time between two looks at all policies."""
IDLE_SECONDS: Final = 5.0
"""The longest: time itself changes conditions."""
HOLDS_SECONDS: Final = 0.1
"""Between two looks whether missing holds are to be placed that the verbs had no time for."""
WAKE_SECONDS: Final = 0.1
"""Right after each of them: what an idle process costs is how often it wakes."""
LOOK_SECONDS: Final = 0.5
"""The longest between two of them that do more than ask whether anything is due: so late is seen what time
alone has changed.
"""
GARBAGE_SECONDS: Final = 2.0
EVENT_SECONDS: Final = 0.5
NODE_SECONDS: Final = 2.0
MARK_SECONDS: Final = 1.0
EXPIRY_SECONDS: Final = 10.0
GIVE_BACK_SECONDS: Final = 1.0
QUOTA_SECONDS: Final = 2.0
BUFFER_SECONDS: Final = 0.5
INSTALLATION_SECONDS: Final = 0.5
RESTART_SECONDS: Final = 1.0
"""Until a watch or the election goes on after a bug; they handle what the API server does themselves."""


class Program:
    """One extender, assembled; `api` is the real API server or one in memory. `config` is named().

    `clock`: seconds, monotonic: durations, the ledger's `now` among them. `wall`: seconds since the epoch,
    only for what is written and for what is compared with times that Kubernetes wrote.
    """

    def __init__(
        self,
        config: ExtenderConfig,
        api: EvictingAPI,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.config = config
        self._api = api
        self._clock, self._wall = clock, wall
        self._changes = Changes(IDLE_SECONDS)
        self._tended = Changes(2 * LOOK_SECONDS)
        self._garbage = garbage.Keeper()
        keepers = config.keepers
        asked = keepers.runs(Keeper.EXTENDER)
        self.metrics = Metrics()
        self.limits = Limits() if config.quotas.enabled else None
        self.ledger = Ledger(
            config.mode if asked else _of_placeholders(config.mode),
            cap_percent=config.cap_percent,
            pool_labels=config.cap_pool_labels,
            binds=config.binds and asked,
            settle_seconds=config.settle_seconds,
            warmup_until=clock() + config.warmup,
            not_ready_seconds=config.not_ready_seconds,
            most_nodes=config.most_nodes if config.keeper is Keeper.EXTENDER else 0,
            reservations=config.koordinator.reservations,
            answers=asked,
            quotas=self.limits,
        )
        self.ledger.advance(clock())  # what is listed first comes now
        self.snapshots = Snapshots(self.ledger, clock)
        self.owners = Owners()
        self.view = View()
        self.events = EventWriter(api, self.metrics.event, identity=config.identity, clock=clock, wall=wall)
        self.gangs = GangParts(config, api, self.ledger, self.view, self.events, self.metrics, clock=clock)
        self.keeper = self._placeholders() if keepers.runs(Keeper.PLACEHOLDERS) else None
        self._note = self._changes.note if self.keeper is None else self.keeper.note
        self.catalog = Catalog(
            self.ledger,
            self._note,
            self.owners,
            clock=clock,
            wall=wall,
            grace=config.reference_grace_seconds,
            highest_priority=config.max_policy_priority,
            placed=(lambda _policy: []) if self.keeper is None else self.keeper.standing.nodes,
            keepers=keepers,
        )
        self.reservations = Reservations(
            self.ledger, self._note, wall=wall, highest_priority=config.max_policy_priority
        )
        verbs = Guarding(
            config.mode,
            binds=config.binds,
            schedulers=config.scheduler_names,
            window=config.guard_window_seconds,
        )
        self.guarding = verbs if self.keeper is None else self.keeper.guards(verbs)
        self.reports = NodeReports(self.ledger, clock=clock, changed=self._note)

        def standing(policy: Policy) -> bool:
            return keepers.of(policy) is Keeper.PLACEHOLDERS

        self.awaiting = None if self.keeper is None else Awaiting(standing=standing, changed=self._note)
        self.buffers = (
            Buffers(
                api,
                self.metrics,
                asking=config.mode is not Mode.OBSERVE,
                standing=standing,
                awaiting=self.awaiting,
                changed=self._note,
                clock=clock,
            )
            if config.autoscaling.buffers
            else None
        )
        self.writer = PolicyStatus(
            api,
            self.ledger,
            self.catalog,
            self.view,
            self.guarding,
            self.events,
            self.metrics,
            reports=self.reports,
            buffers=self.buffers,
            awaiting=self.awaiting,
            owner_priority=(lambda _demand: None) if self.keeper is None else self.keeper.owner_priority,
            owner_wait=config.owner_wait_seconds,
            clock=clock,
            wall=wall,
        )
        self.budget_status = BudgetStatus(
            api, self.ledger, self.catalog, self.events, self.metrics, clock=clock, wall=wall
        )
        self.reservation_status = ReservationStatus(
            api,
            self.ledger,
            self.reservations,
            self.view,
            self.events,
            self.metrics,
            clock=clock,
            wall=wall,
        )
        self.targets = ScaleTargets(api, self.catalog, failed=self.metrics.loop_error, clock=clock)
        self.reflectors = self._reflectors()
        self.hearing = Hearing(self.reflectors, self.catalog, self.targets, clock=clock)
        self.readiness = Readiness(self.hearing.needed, clock)
        self.binder = Binder(
            api,
            self.ledger,
            self.metrics,
            identity=config.identity,
            deadline=config.bind_deadline_seconds,
            clock=clock,
            apart=self._apart,
        )
        self.elector = LeaseElector(
            api, config.lease_namespace, config.lease_name, config.identity, on_started=self._changes.note
        )
        told = (lambda _pods: None) if self.keeper is None else self.keeper.refused.again
        self.waker = Waker(api, self.ledger, self.metrics, clock=clock, wall=wall, told=told)
        self.failed = False
        self._show_gauges()

    def _placeholders(self) -> PlaceholderKeeper:
        cluster = Cluster(
            self.view,
            ordinary=lambda: self.catalog.ordinary,
            demands=lambda: [one for one in self.catalog.resolved.values() if isinstance(one, Demand)],
            class_value=lambda name: self.catalog.class_value(name),  # noqa: PLW0108 - it comes later
            kept=lambda key: self.catalog.keeper(key) is Keeper.PLACEHOLDERS,
            away=lambda: self.guarding.recent(self._wall()).away,
            namespaces=self._with_placeholders,
            complete=lambda: not self.readiness.problem(),
            awaited=lambda key: self.awaiting.wanted(key) if self.awaiting is not None else 0,
        )
        return PlaceholderKeeper(
            self.config,
            self._api,
            self.ledger,
            self.metrics,
            cluster,
            changed=self._changes.note,
            clock=self._clock,
            evictions=Evictions(
                self._api,
                self.ledger,
                self.metrics,
                self.events,
                lambda key: self.catalog.policies.get(key) if cluster.kept(key) else None,
                scheduler=self.config.binds_placeholders,
                wall=self._wall,
            ),
        )

    def _with_placeholders(self) -> set[str]:
        """Namespaces of the policies that placeholders keep."""
        of = self.catalog.keepers.of
        return {one.namespace for one in self.catalog.policies.values() if of(one) is Keeper.PLACEHOLDERS}

    def _reflectors(self) -> dict[str, Reflector]:
        ingest = Ingest(
            self.ledger,
            self.catalog,
            self.view,
            self.guarding,
            self.events,
            self.metrics,
            reports=self.reports,
            owners=self.owners,
            reservations=self.reservations if self.config.koordinator.reservations else None,
            quotas=self.config.quotas.enabled,
            gangs=self.gangs.book,
            grouped=self.gangs.looks,
            standing=None if self.keeper is None else self.keeper.standing,
            changed=self._note,
            gone=self._forget,
        )
        rest = None if self.keeper is None else self.keeper.rest
        return {
            one.resource.plural: Reflector(
                self._api,
                one.resource,
                one.set,
                one.remove,
                on_listed=one.listed,
                stale_after=self.config.stale_seconds,
                clock=self._clock,
                rest=rest,
            )
            for one in ingest.handlers()
        }

    def _forget(self, key: str) -> None:
        """A policy, a budget, or a Reservation is gone; no key is of two."""
        self.writer.forget(key)
        self.budget_status.forget(key)
        self.reservation_status.forget(key)

    def _show_gauges(self) -> None:
        gauge, hearing = self.metrics.gauge, self.hearing
        self.metrics.watch_ledger(lambda: self.snapshots.latest)
        gauge("ready", "1 when the verbs answer.", lambda: not self.readiness.problem())
        gauge("leader", "1 when this extender writes the policies' status.", lambda: self.elector.is_leader)
        gauge("policies", "Policies that are known.", lambda: len(self.catalog.policies))
        gauge("agents", "Nodes whose agent's report (NodeQoS) is fresh.", lambda: self.reports.agents)
        gauge("node_reports_heard", "1 while NodeQoS is listed and watched.", lambda: hearing.reports)
        gauge("budgets_heard", "1 while budgets and Namespaces are listed.", lambda: hearing.budgets)
        if self.config.koordinator.reservations:
            gauge("reservations", "Reservations that are known.", lambda: len(self.reservations.known))
            gauge("reservations_heard", "1 while Reservations are listed.", lambda: hearing.reservations)
        if self.config.quotas.enabled:
            gauge("quotas_heard", "1 while ElasticQuotas are listed.", lambda: hearing.quotas)
        if self.buffers is not None:
            gauge("buffers_heard", "1 while CapacityBuffers are served and listed.", self._hears_buffers)
        gauge("unsettled_binds", "Bindings whose outcome is not known yet.", lambda: self.binder.unsettled)
        gauge(
            "unguarded_pods",
            "Pods of the last window that were bound without the extender.",
            lambda: self.guarding.count(self._wall()),
        )

    def _hears_buffers(self) -> bool:
        return self.buffers is not None and self.buffers.heard

    async def run(self, stop: asyncio.Event, sockets: server.Sockets | None = None) -> None:
        """Serve until `stop` is set; then finish what is under way. OSError when an address cannot be had.

        `sockets`: those of the configuration's addresses, where the caller has opened them already. `failed`
        says that it stopped by itself, because the ledger could not be built.
        """
        sockets = sockets or server.open_sockets(self.config)
        more = [] if self.keeper is None else await self.keeper.servers()
        tasks = [asyncio.create_task(work, name=name) for name, work in self._tasks()]
        tasks.append(asyncio.create_task(self._start(stop), name="start"))
        try:
            await self._serve(stop, sockets, more)
            await self.binder.drain()
            if self.keeper is not None:
                await self.keeper.drain()
            await self.gangs.drain()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _apart(self, pod: Pod) -> bool:
        """A placeholder is the hold itself, and in no account."""
        return self.keeper is not None and self.keeper.standing.is_placeholder(pod)

    async def _serve(
        self, stop: asyncio.Event, sockets: server.Sockets, more: list[tuple[Serving, socket.socket]]
    ) -> None:
        verbs = server.VerbsApp(
            self.ledger, self.binder, self.readiness, self.metrics, self._clock, self._apart
        )
        others = rest.app(self.config.mode, self.snapshots, self.readiness, self.metrics)
        verbs_socket, socket_of_others = sockets
        log.info(
            "serving mode=%s verbs=%s other=%s identity=%s",
            self.config.mode.value,
            self.config.verbs_address,
            self.config.address,
            self.config.identity,
        )
        await serve_until(
            stop,
            [
                (server.verbs_server(verbs, self.config.tls), verbs_socket),
                (server_of(others), socket_of_others),
                *more,
            ],
            draining=self.readiness.drain,
        )

    def _tasks(self) -> Iterable[tuple[str, Coroutine[Any, Any, None]]]:
        for name, reflector in self.reflectors.items():
            yield f"watch {name}", self._loop("watch", RESTART_SECONDS, self.hearing.run_of(reflector))
        yield "scale targets", self._loop("scale targets", RESTART_SECONDS, self.targets.run)
        yield "lease", self._loop("lease", RESTART_SECONDS, self.elector.run)
        expiry = Expiry(self._api, self.ledger, settles=self.binder.settles, clock=self._clock)
        yield "holds", self._loop("holds", HOLDS_SECONDS, self._tend_when_due())
        if self.config.keepers.runs(Keeper.EXTENDER):
            yield "wake", self._loop("wake", WAKE_SECONDS, self.waker.run_once, sleep=self._until_tended)
        yield "events", self._loop("events", EVENT_SECONDS, self._say)
        yield "expiry", self._loop("expiry", EXPIRY_SECONDS, expiry.run_once)
        yield "garbage", self._loop("garbage", GARBAGE_SECONDS, self._keep)
        yield "reports", self._loop("reports", EXPIRY_SECONDS, self._expire)
        yield "installation", self._loop("installation", INSTALLATION_SECONDS, self._learn_installation)
        yield "status", self._loop("status", STATUS_SECONDS, self._leading(self._status))
        marks = SlotMarks(self._api, self.ledger, self.metrics, clock=self._clock)
        yield "slots", self._loop("slots", MARK_SECONDS, self._leading(marks.run_once))
        for name, seconds, once in self._led():
            yield name, self._loop(name, seconds, self._leading(once))
        yield from self._autoscaling()
        yield from self._quoting()
        if self.config.annotate_held_nodes:
            guard = ScaleDownGuard(self._api, self.ledger, self.view, clock=self._clock)
            yield "nodes", self._loop("nodes", NODE_SECONDS, self._leading(guard.run_once))

    def _led(self) -> Iterable[tuple[str, float, Callable[[], Awaitable[object]]]]:
        yield from () if self.keeper is None else self.keeper.loops()
        yield from self.gangs.loops()

    def _quoting(self) -> Iterable[tuple[str, Coroutine[Any, Any, None]]]:
        settings = self.config.quotas.give_back
        if self.limits is None:
            return
        status = QuotaStatus(self._api, self.ledger, self.limits, self.metrics, clock=self._clock)
        yield "quota status", self._loop("quota status", QUOTA_SECONDS, self._leading(status.run_once))
        if not settings.enabled or self.config.mode is Mode.OBSERVE:
            return
        giving = GivingBack(
            self._api,
            self.ledger,
            self.limits,
            self.view,
            self.events,
            self.metrics,
            settings,
            schedulers=self.config.scheduler_names,
            clock=self._clock,
            wall=self._wall,
            leads=lambda: self.elector.is_leader,
        )
        yield "give back", self._loop("give back", GIVE_BACK_SECONDS, self._leading(giving.run_once))

    def _autoscaling(self) -> Iterable[tuple[str, Coroutine[Any, Any, None]]]:
        if self.buffers is None:
            unasking = Unasking(self._api, count=self.metrics.buffer_write)
            leads = self._leading(unasking.run_once)
            yield "buffers", unasking.until_done(leads, self.metrics.loop_error)
        else:
            yield "watch buffers", self._loop("buffers", RESTART_SECONDS, self.buffers.watch)
            yield "buffers", self._loop("buffers", BUFFER_SECONDS, self._leading(self.buffers.run_once))

    def _loop(
        self,
        name: str,
        seconds: float,
        once: Callable[[], Awaitable[object]],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> Coroutine[Any, Any, None]:
        return forever(name, seconds, once, self.metrics.loop_error, sleep=sleep)

    def _leading(self, once: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[object]]:
        """Only the leader writes, and only from a complete and fresh account (trap T13)."""
        return only_while(lambda: self.elector.is_leader and not self.readiness.problem(), once)

    async def _until_tended(self, _: float) -> None:
        await self._tended.wait()

    def _tend_when_due(self) -> Callable[[], Awaitable[object]]:
        """Ten times a second it is asked whether anything is due, which costs next to nothing."""
        wakes = self.config.keepers.runs(Keeper.EXTENDER)

        def due() -> bool:
            self.ledger.advance(self._clock())
            look = wakes and self.waker.due
            return look or self.catalog.due or self.reservations.due or self.ledger.unsettled

        return when_due(due, LOOK_SECONDS, self._tend, self._clock)

    async def _tend(self) -> None:
        """Who waits is looked after right after it; while it takes long, meanwhile as well."""
        told = self._clock()
        try:
            for _ in self._tend_in_steps():
                await asyncio.sleep(0)
                if self._clock() - told >= 2 * WAKE_SECONDS:
                    told = self._clock()
                    self._tended.note()
        finally:
            self._tended.note()

    def _tend_in_steps(self) -> Iterator[None]:
        """No holds before the lists are in: until then each node would be a reason to place all anew."""
        yield from self.catalog.catch_up()
        yield from self.reservations.catch_up()
        if not self.readiness.problem():
            for _ in iter(self.ledger.tend, False):
                yield

    async def _keep(self) -> None:
        if not self.readiness.problem():  # a start looks after itself
            self._garbage.keep()

    async def _say(self) -> None:
        """Events are the leader's too; what is said before anyone leads waits."""
        if self.elector.is_leader:
            await self.events.run_once()
        elif self.elector.holder not in ("", self.config.identity):
            self.events.leave_to_another()

    async def _expire(self) -> None:
        self.catalog.expire()
        self.catalog.follow_owners()
        self.reports.expire(self.hearing.last_report)

    async def _learn_installation(self) -> None:
        """Leader or not: a standby shows pods that went by as well."""
        if self.guarding.installed is None:
            self.guarding.installed = await installed_at(self._api, self.config)

    async def _status(self) -> None:
        if self.guarding.installed is None:
            return  # what a predecessor said of Guarded stays until there is something to judge it by
        await self._changes.wait()
        await self._tend()  # else what has just changed is told as it was, until the next look
        waiting = 0
        for one in (self.writer, self.budget_status, self.reservation_status):
            waiting += await one.run_once() if self.elector.is_leader else 0
        if waiting:
            self._changes.note()

    async def _start(self, stop: asyncio.Event) -> None:
        """Once every list is in: resolve the policies, then answer."""
        with garbage.only_young():
            await self.readiness.wait_synced()
            await self.hearing.all()
            try:
                for _ in iter(self.ledger.tend, False):
                    await asyncio.sleep(0)  # the room of DaemonSets is known before holds are placed
                for _ in self.catalog.open_in_steps():
                    await asyncio.sleep(0)
                for _ in self.reservations.open_in_steps():
                    await asyncio.sleep(0)
                for _ in iter(self.ledger.tend, False):
                    await asyncio.sleep(0)
            except Exception:
                log.exception("the ledger cannot be built")
                self.failed = True
                stop.set()
                return
        self.snapshots.renew()  # ready goes with an account of all that was listed
        self.readiness.open()
        log.info("ready policies=%d nodes=%d", len(self.catalog.policies), len(self.view.nodes))
        self._wake_who_waited()

    def _wake_who_waited(self) -> None:
        """Only the earlier process knew which pods it had refused (trap T21): all that wait are to ask again,
        once.
        """
        ours = self.config.scheduler_names
        self.waker.add(pod for pod in self.view.unschedulable.values() if pod.scheduler_name in ours)


def _of_placeholders(mode: Mode) -> Mode:
    """Nobody asks the verbs: Strict has nothing to refuse."""
    return mode if mode is Mode.OBSERVE else Mode.GUARD
