"""Ledger, catalog and ingest, as one extender has them: built empty, and fed with what is listed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from adapters.api import (
    BUDGETS,
    DAEMON_SETS,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PODS,
    POLICIES,
    PRIORITY_CLASSES,
    RESERVATIONS,
    APIError,
    ClusterAPI,
    Unreachable,
)
from adapters.kubernetes.events import EventWriter
from extender.awaiting import Awaiting
from extender.catalog import Catalog
from extender.config import ExtenderConfig, Koordinator
from extender.gang_book import GangBook
from extender.guarding import Guarding, Guards
from extender.ingest import Ingest
from extender.keeper import Cluster, PlaceholderKeeper
from extender.metrics import Metrics
from extender.node_reports import NodeReports
from extender.owners import Owners
from extender.reservations import Reservations
from extender.view import View
from ledger.decisions import BindDecision, Filtered, Mode
from ledger.demands import NO_SLOT
from ledger.ledger import Ledger
from ledger.waiting import SAMPLE
from qos.cluster.objects import Demand, Keeper, Pod, Toleration
from simulation import parsed
from simulation.history import World
from simulation.store import EPOCH, Store

WATCHED = (
    NODES,
    PODS,
    POLICIES,
    PRIORITY_CLASSES,
    DEPLOYMENTS,
    DAEMON_SETS,
    BUDGETS,
    NAMESPACES,
    RESERVATIONS,
)
"""What an extender watches; Reservations in some worlds only."""
SCHEDULER = "default-scheduler"
PLACEHOLDERS = ExtenderConfig().placeholders.namespace
"""Their namespace."""

Clock = Callable[[], float]


class Recorder(Metrics):
    """Metrics that nobody reads, but for what must never happen: bugs that the edges survive."""

    def __init__(self) -> None:
        super().__init__()
        self.bugs: list[str] = []

    def observe(self, path: str, seconds: float, status: int) -> None:
        """Nobody looks."""

    def bind_outcome(self, outcome: str) -> None:
        """A bind that crashed is a bug."""
        if outcome == "crashed":
            self.bugs.append("bind crashed")

    def crashed(self, error: Exception) -> None:
        """A verb met a bug."""
        self.bugs.append(f"verb crashed: {error!r}")

    def skipped(self, resource: str) -> None:
        """An object was not taken."""
        self.bugs.append(f"{resource} skipped")

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Nobody reads it, and every start would register it again."""

    def handed_over(self, outcome: str) -> None:
        """A hand-over that met a bug is counted as failed, like one to which the API server said no."""
        super().handed_over(outcome)
        error = sys.exception()
        if error is not None and not isinstance(error, (APIError, Unreachable)):
            self.bugs.append(f"hand-over failed: {error!r}")

    def loop_error(self, loop: str) -> None:
        """A loop met a bug."""
        self.bugs.append(f"loop {loop} failed")


RECORDER = Recorder()
"""One for the process: a registry of metrics takes milliseconds to make."""


class Told:
    """Who hears of the ledger's decisions; here nobody."""

    def asked(self, uid: str, hole: str, had: Mapping[str, int]) -> None:
        """Filter is about to decide on a pod, for which a hole is kept on a node, "" none; how many slots of
        each policy are filled or held.
        """

    def claimed(self, uid: str, node: str, slot: str, reservation: str) -> None:
        """Bind has claimed a node for a pod, which fills a slot of this policy, or uses the Reservation of
        this UID; "" none.
        """

    def released(self, uid: str) -> None:
        """A claim was taken back."""


class Telling(Ledger):
    """The ledger, saying when it commits: nothing else shows the moment."""

    told = Told()

    def filter(
        self,
        pod: Pod,
        names: Sequence[str],
        now: float,
        tolerations: tuple[Toleration, ...] | None = None,
        *,
        prefers: bool = False,
        unfiltered: bool = False,
    ) -> Filtered:
        """As Ledger.filter."""
        demands, holds = self._state.demands, self._state.holds
        had = {demands[n].key: holds.filled_total[n] + holds.held_total[n] for n in demands.order}
        row, _ = self._state.nominations.by_uid.get(pod.uid, (-1, pod))
        self.told.asked(pod.uid, self._state.table.names[row] if row >= 0 else "", had)
        return super().filter(pod, names, now, tolerations, prefers=prefers, unfiltered=unfiltered)

    def bind(self, pod: Pod, node: str, now: float, gone: Collection[str] = ()) -> BindDecision:
        """As Ledger.bind."""
        decision = super().bind(pod, node, now, gone)
        if not decision.refusal:
            used = decision.reservation.uid if decision.reservation is not None else ""
            self.told.claimed(pod.uid, node, decision.policy if decision.slot else NO_SLOT, used)
        return decision

    @property
    def awaits(self) -> bool:
        """Whether a claim is not shown by the watch yet; cheaper than all gauges."""
        return bool(self._state.claims.unseen)

    @property
    def claimed(self) -> list[str]:
        """The UIDs of pods with a claim that the watch has not shown yet."""
        return [*self._state.claims.unseen]

    @property
    def in_flight(self) -> list[Pod]:
        """Pods that filter has answered, and of which nothing has been heard since."""
        return [flight.pod for flight in self._state.flights.by_uid.values()]

    def release(self, uid: str) -> None:
        """As Ledger.release."""
        super().release(uid)
        self.told.released(uid)


class Reading(Ingest):
    """Ingest, whose pods are decoded once for all players and restarts."""

    def read_pod(self, raw: bytes) -> Pod:
        """As Ingest.read_pod."""
        return parsed.pod(raw)


@dataclass(slots=True)
class Books:
    """What an extender knows."""

    ledger: Telling
    catalog: Catalog
    view: View
    guarding: Guards
    reports: NodeReports
    events: EventWriter
    owners: Owners
    reservations: Reservations | None
    keeper: PlaceholderKeeper | None
    awaiting: Awaiting | None

    def demands(self) -> dict[str, Demand]:
        """What policies and Reservations ask for, by key."""
        reserved = self.reservations.resolved if self.reservations is not None else {}
        there = {key: one for key, one in reserved.items() if isinstance(one, Demand)}
        return {**self.catalog.demands(), **there}

    def ingest(self, changed: Callable[[], None], gone: Callable[[str], None]) -> Ingest:
        """What feeds them."""
        return Reading(
            self.ledger,
            self.catalog,
            self.view,
            self.guarding,
            self.events,
            RECORDER,
            reports=self.reports,
            owners=self.owners,
            gangs=GangBook(lambda: None, lambda _pod: False),
            reservations=self.reservations,
            standing=self.keeper.standing if self.keeper is not None else None,
            changed=changed,
            gone=gone,
        )


def config_of(world: World) -> ExtenderConfig:
    """The extender's configuration."""
    return ExtenderConfig(
        mode=Mode(world.mode),
        binds=world.binds,
        cap_percent=world.cap,
        settle_seconds=world.settle,
        warmup_seconds=world.warmup,
        reference_grace_seconds=world.reference_grace,
        not_ready_seconds=world.not_ready,
        most_nodes=world.named,
        identity="extender",
        koordinator=Koordinator(reservations=world.reservations),
        keeper=Keeper(world.keeper),
    )


def opened(
    world: World,
    api: ClusterAPI,
    clock: Clock,
    wall: Clock,
    changed: Callable[[], None],
    leads: Callable[[], bool] = lambda: False,
) -> Books:
    """Empty books; `leads` as a keeper asks."""
    config = config_of(world)
    ledger = Telling(
        config.mode,
        cap_percent=config.cap_percent,
        binds=config.binds and not world.standing,
        settle_seconds=config.settle_seconds,
        warmup_until=clock() + config.warmup,
        not_ready_seconds=config.not_ready_seconds,
        reservations=config.koordinator.reservations,
        answers=not world.standing,
        most_nodes=config.most_nodes,
        sample=world.sample or SAMPLE,
    )
    ledger.advance(clock())
    owners, view, catalogs, awaiting = Owners(), View(), list[Catalog](), list[Awaiting]()
    keeper: PlaceholderKeeper | None = None
    if world.standing:
        numbers = count(int(clock() * 1000) * 1000)  # another process names no pod as this one does
        keeper = PlaceholderKeeper(
            config,
            api,
            ledger,
            RECORDER,
            Cluster(
                view,
                ordinary=lambda: catalogs[0].ordinary,
                demands=lambda: (),  # nothing is raised by a status here, but by simulation.admission
                class_value=lambda _name: None,
                kept=lambda _policy: True,
                away=lambda: False,
                namespaces=lambda: ["default"],
                complete=leads,
                awaited=lambda key: awaiting[0].wanted(key),  # noqa: PLW0108 - it comes later
            ),
            changed=changed,
            clock=clock,
            timer=clock,
            name=lambda: f"{next(numbers):010}",
        )
        changed = keeper.note
        awaiting.append(Awaiting(standing=lambda _policy: True, changed=changed))
    catalogs.append(
        Catalog(
            ledger,
            changed,
            owners,
            clock=clock,
            wall=wall,
            grace=config.reference_grace_seconds,
            keepers=config.keepers,
            placed=(lambda _policy: []) if keeper is None else keeper.standing.nodes,
        )
    )
    verbs = Guarding(
        config.mode, binds=config.binds, schedulers=[SCHEDULER], window=config.guard_window_seconds
    )
    guarding: Guards = verbs if keeper is None else keeper.guards(verbs)
    guarding.installed = 0.0
    return Books(
        ledger,
        catalogs[0],
        view,
        guarding,
        NodeReports(ledger, clock=clock, changed=changed),
        EventWriter(api, RECORDER.event, identity=config.identity, clock=clock, wall=wall),
        owners,
        Reservations(ledger, changed, wall=wall) if world.reservations else None,
        keeper,
        next(iter(awaiting), None),
    )


def rebuilt(world: World, store: Store, api: ClusterAPI, now: float) -> Books:
    """The books of an extender that starts now, with all that the API server has, its warm-up over."""

    def nothing(*_: object) -> None:
        return

    books = opened(world, api, lambda: now - world.warmup - 1.0, lambda: EPOCH + now, nothing)
    handlers = {one.resource.plural: one for one in books.ingest(nothing, nothing).handlers()}
    for resource in WATCHED:
        for entry in store.entries(resource) if resource.plural in handlers else ():
            handlers[resource.plural].set(entry.raw)
    books.catalog.open()
    for _ in books.reservations.open_in_steps() if books.reservations is not None else ():
        pass
    for _ in iter(books.ledger.tend, False):  # as a start does
        pass
    for moment in (now - world.not_ready - 1.0, now):  # what is not ready has been so for long
        books.ledger.expired(moment)
        books.ledger.gauges()
    return books
