"""The keeper Placeholders, assembled: what it sees, what it does in the background, what it serves."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from adapters import own_certificate
from adapters.api import ClusterAPI
from adapters.loops import Changes
from adapters.pace import Rests
from adapters.serving.addresses import listen
from adapters.serving.server import Serving, server
from adapters.webhooks.server import application
from extender.config import ExtenderConfig
from extender.evictions import LOOK_SECONDS, Evictions
from extender.gate import PATH, Gate
from extender.guarding import EachByItsKeeper, Guard, Guarding, Guards, NobodyBypasses
from extender.hand_over import HandOver
from extender.leaving import Leaving
from extender.metrics import Metrics
from extender.overcommitted import Overcommitted
from extender.placeholders import Placeholders, random_name
from extender.priority_classes import Raising
from extender.refused import Refused
from extender.standing import Standing
from extender.standing_by import StandingBy
from extender.view import View
from extender.webhook import Webhook
from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos import keys
from qos.cluster.objects import Demand, Keeper

SECONDS: Final = 0.01
"""Between two looks whether there is something to do, which wait for a change."""
IDLE_SECONDS: Final = 0.5
"""The longest such wait: a placeholder may have waited for long to be bound."""
REFUSED_SECONDS: Final = 0.05
LOOKS_A_SECOND: Final = 10
LOOKS_IN_A_ROW: Final = 20
REST_SECONDS: Final = 0.05
"""In a flood the watches are read some twenty times a second: waking up for each event costs more than it."""
WEBHOOK_SECONDS: Final = 0.5
CLASSES_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Cluster:
    """What it asks the rest of the program.

    `ordinary`: the priority of pods that name no PriorityClass. `demands`: of all policies. `class_value`: a
    PriorityClass' value by its name, if it is there. `kept`: whether placeholders are to keep a policy, by
    key. `away`: whether pods are bound that the verbs were not asked about. `namespaces`: those with policies
    that placeholders keep. `complete`: whether its account is.
    `awaited`: for how many unplaced slots of a policy placeholders are to wait, None while nobody knows.
    """

    view: View
    ordinary: Callable[[], int]
    demands: Callable[[], Iterable[Demand]]
    class_value: Callable[[str], int | None]
    kept: Callable[[str], bool]
    away: Callable[[], bool]
    namespaces: Callable[[], Iterable[str]]
    complete: Callable[[], bool]
    awaited: Callable[[str], int | None]


class PlaceholderKeeper:
    """Placeholders, their hand-over to owners, and the webhook, of one program.

    In Observe it makes none and takes away what is left of another mode: nothing is refused, so nothing may
    be in anyone's way. `timer`: seconds that work takes; `name`: makes the end of a placeholder's name.
    """

    def __init__(
        self,
        config: ExtenderConfig,
        api: ClusterAPI,
        ledger: Ledger,
        metrics: Metrics,
        cluster: Cluster,
        *,
        changed: Callable[[], None],
        clock: Callable[[], float],
        timer: Callable[[], float] = perf_counter,
        name: Callable[[], str] = random_name,
        evictions: Evictions | None = None,
    ) -> None:
        settings = config.placeholders
        self._ledger, self._scheduler = ledger, config.binds_placeholders
        self._cluster = cluster
        self._acts = config.mode is not Mode.OBSERVE
        self._changed = changed
        self._holds, self._owners, self._waiting = (Changes(IDLE_SECONDS) for _ in range(3))
        self._rests = Rests(LOOKS_A_SECOND, LOOKS_IN_A_ROW, REST_SECONDS, clock)
        self.standing = Standing(settings.namespace, self.note, clock)
        overcommitted = Overcommitted(ledger, self.standing, self._keeps)
        self._hand_over = HandOver(
            api,
            ledger,
            self.standing,
            overcommitted.nodes,
            metrics,
            self._owners,
            cluster.view,
            namespace=settings.namespace,
            clock=clock,
        )
        standing_by = StandingBy(ledger, kept=self._keeps, changed=self._holds.note, clock=clock)
        self._placeholders = Placeholders(
            api,
            ledger,
            self.standing,
            standing_by,
            overcommitted,
            metrics,
            self._holds,
            namespace=settings.namespace,
            scheduler=config.binds_placeholders,
            image=settings.image,
            ordinary=cluster.ordinary,
            kept=self._keeps,
            closed=self._hand_over.closed,
            serves=cluster.view.serves,
            busy=self._hand_over.busy,
            awaited=cluster.awaited,
            asked=self._rests.hurry,
            clock=clock,
            name=name,
        )
        self._leaving = Leaving(
            api, self.standing, metrics, self._holds, namespace=settings.namespace, clock=clock
        )
        self._raising = Raising(api, cluster.demands, cluster.class_value, kept=cluster.kept, clock=clock)
        self._alone = not config.keepers.runs(Keeper.EXTENDER)
        self.refused = Refused(
            ledger,
            cluster.view,
            self._hand_over,
            self.standing.places,
            self._waiting,
            make_way=standing_by.make_way,
            clock=clock,
            timer=timer,
            looks=self._alone,
        )
        self.gate = Gate(ledger, metrics, kept=self._keeps, lifts=cluster.complete, gated=self._rests.hurry)
        self.evictions = evictions
        self._serves = settings.webhook if self._acts else None
        self._webhook: Webhook | None = None
        if self._serves is not None:
            kept_in = config.lease_namespace
            self._webhook = Webhook(api, self._serves, kept_in, cluster.namespaces, clock=clock)
        metrics.gauge(
            "placeholders_bound", "Placeholders on their node.", lambda: self.standing.count(bound=True)
        )
        metrics.gauge(
            "placeholders_waiting", "Placeholders not bound yet.", lambda: self.standing.count(bound=False)
        )
        metrics.gauge(
            "placeholders_barred_nodes",
            "Nodes on which no placeholder is made for now, because kubelet refused or evicted some.",
            lambda: len(self.standing.refusals.barred(clock())),
        )

    def note(self) -> None:
        """Something changed: in the account, or of placeholders and owners."""
        self._holds.note()
        self._owners.note()
        self._waiting.note()
        self._changed()

    @property
    def rest(self) -> Callable[[], Awaitable[None]] | None:
        """Returns when watches are to be read; None where the verbs are asked, which answer by them."""
        return self._rests.rest if self._alone else None

    def guards(self, verbs: Guarding) -> Guards:
        """What says whether holds are respected. `verbs`: the same for those that the verbs keep."""
        if not self._acts:
            return verbs
        judged = self._guard
        return NobodyBypasses(judged) if self._alone else EachByItsKeeper(verbs, judged, self._cluster.kept)

    def _guard(self, policy: str) -> Guard:
        """Whether placeholders stand where they are to, and keep what is about to be an owner's."""
        found, scheduler = self._placeholders.guard(policy), self._scheduler
        owner = self._ledger.owner_not_of(policy, scheduler) if found.guarded else None
        if owner is None:
            return found
        return Guard(
            False,
            "OwnersOfAnotherScheduler",
            f"pod {owner.key} fills a slot and is of {owner.scheduler_name}: while a slot changes hands its "
            f"room is kept for owners of {scheduler} alone, others evict pods or lose it; let owners name "
            f"{scheduler} (the label {keys.SCHEDULE_LABEL} of a namespace names another one)",
        )

    def _keeps(self, policy: str) -> bool:
        """Placeholders of a policy that has got the other keeper stay until kube-scheduler asks that one."""
        if self._cluster.kept(policy):
            return True
        return bool(self.standing.of(policy)) and self._cluster.away()

    def owner_priority(self, demand: Demand) -> int | None:
        """What a policy's owners are raised to while nobody hands over; None without the webhook that takes
        them back, or before the API server knows of it: they would stay above others of their own priority.
        """
        webhook = self._webhook
        return self._raising.raised(demand) if webhook and webhook.asks(demand.namespace) else None

    def loops(self) -> Iterator[tuple[str, float, Callable[[], Awaitable[object]]]]:
        """What the leader does: name, seconds between two rounds, a round."""
        if not self._acts:
            yield "leaving", SECONDS, self._leaving.run_once
            return
        yield "placeholders", SECONDS, self._placeholders.run_once
        yield "hand-over", SECONDS, self._hand_over.run_once
        yield "refused", REFUSED_SECONDS, self.refused.run_once
        if self.evictions is not None:
            yield "evictions", LOOK_SECONDS, self.evictions.run_once
        if self._webhook is not None:
            yield "webhook", WEBHOOK_SECONDS, self._webhook.run_once
            yield "priority classes", CLASSES_SECONDS, self._raising.run_once

    async def servers(self) -> list[tuple[Serving, socket.socket]]:
        """What is served beside the verbs. OSError when the address cannot be had."""
        if self._serves is None or self._webhook is None:
            return []
        opened = listen(self._serves.address)
        tls = own_certificate.context(await self._webhook.certificate.provide())
        return [(server(application({PATH: self.gate.review}), tls), opened)]

    async def drain(self) -> None:
        """Finish what is under way."""
        await self._hand_over.drain()
