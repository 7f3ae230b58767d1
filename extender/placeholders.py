"""The second keeper: keeps a placeholder where each hold lies. What to do is decided in qos.cluster."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from hashlib import blake2b
from secrets import token_hex
from typing import Any, Final

from adapters.api import PODS, APIError, ClusterAPI, Unreachable
from adapters.kubernetes import placeholders, priorities
from adapters.kubernetes.nomination import nomination
from adapters.loops import Changes, OneAtATime
from adapters.pace import Turns
from extender.deleting import delete
from extender.giving import TOO_LATE
from extender.guarding import Guard
from extender.metrics import Metrics
from extender.overcommitted import Overcommitted
from extender.priority_classes import provide
from extender.roaming import Roaming
from extender.standing import Standing
from extender.standing_by import StandingBy
from ledger.ledger import Ledger
from ledger.report import Holding
from ledger.seats import Openings
from qos.cluster.objects import Demand, NodePredicate
from qos.cluster.placeholders import (
    InTurns,
    Placeholder,
    Steps,
    apart,
    decide,
    form_of,
    priority_of,
    renewed_apart,
    to_be_replaced,
)
from qos.cluster.refusals import Refusals

log = logging.getLogger(__name__)

PER_SECOND: Final = 200
AT_ONCE: Final = 16
_A_ROUND: Final = 100
"""Writes of one round, half a second's: holds may have moved since."""
_ROAMING_A_ROUND: Final = AT_ONCE // 2
"""So that what is held does not wait behind them for long, on an API server that takes seconds for each."""

_REFUSALS: Final = frozenset({400, 403, 409, 422})
"""What the API server will answer again: it is invalid, or beyond a quota, or admission is against it."""

_KEPT: Final = Guard(True, "Guarded", "a placeholder is bound where each hold lies")
_WHY: Final = "PlaceholdersMissing"
_MISSING: Final = Guard(False, _WHY, "some holds have no bound placeholder yet")
_UNKNOWN: Final = Guard(False, "Starting", "placeholders have not been looked at yet", True)


def _guard(missing: Collection[str], barred: Mapping[str, str], refusal: str) -> Guard:
    """By the nodes where placeholders are missing, the reasons of those that refuse them, and why the API
    server does.
    """
    if missing and refusal:
        text = f"the API server refuses placeholders ({refusal})"
        return Guard(False, _WHY, f"{text}: they are made again, later each time")
    refused = sorted(node for node in missing if node in barred)
    if not refused:
        return _MISSING if missing else _KEPT
    text = f"kubelet refuses or evicts placeholders on node {refused[0]} ({barred[refused[0]]})"
    if len(refused) > 1:
        text += f" and {len(refused) - 1} more"
    return Guard(False, _WHY, f"{text}: they are made again, later each time")


def _refused_as(demand: Demand, node: str) -> str:
    """As what a refusal is kept: held slots do not wait because those that roam are refused."""
    return demand.key if node else f"{demand.key} roaming"


def random_name() -> str:
    """What no other placeholder's name ends with."""
    return token_hex(5)


class Placeholders:
    """Creates and deletes placeholders, at most 200 a second and 16 at once.

    `scheduler`: who is to bind them. `image`: what they run, "" for nothing. `ordinary`: the priority of pods
    that name no PriorityClass. `kept`: whether placeholders keep a policy; the others' go. `closed`: nodes
    where none may be made for now. `busy`: nodes to which an owner is on its way. `awaited`: for how many of
    its unplaced slots one is to wait, None while nobody knows. `serves`: whether a policy's pods may run on a
    node now. `asked` is called when one is made, whose binding others wait for.
    """

    def __init__(
        self,
        api: ClusterAPI,
        ledger: Ledger,
        standing: Standing,
        standing_by: StandingBy,
        overcommitted: Overcommitted,
        metrics: Metrics,
        changes: Changes,
        *,
        namespace: str,
        scheduler: str,
        image: str,
        ordinary: Callable[[], int],
        kept: Callable[[str], bool],
        awaited: Callable[[str], int | None],
        closed: Callable[[], set[str]],
        serves: Callable[[NodePredicate, str], bool],
        busy: Callable[[], set[str]],
        asked: Callable[[], None] = lambda: None,
        clock: Callable[[], float],
        name: Callable[[], str] = random_name,
    ) -> None:
        self._api = api
        self._ledger = ledger
        self._standing = standing
        self._standing_by = standing_by
        self._metrics = metrics
        self._changes = changes
        self._namespace = namespace
        self._scheduler = scheduler
        self._image = image
        self._ordinary = ordinary
        self._kept = kept
        self._awaited = awaited
        self._roaming = Roaming(self._lack_room, ordinary, clock)
        self._overcommitted = overcommitted
        self._closed = closed
        self._serves = serves
        self._busy = busy
        self._asked = asked
        self._name = name
        self._turns = Turns(PER_SECOND, AT_ONCE, clock, asyncio.sleep)
        self._settled: dict[str, tuple[Holding, int, Mapping[str, int], int | None, int]] = {}
        self._decided: dict[str, tuple[Demand, Openings | None]] = {}
        """Of each policy, what was true when it was decided which of its placeholders go."""
        self._guards: dict[str, Guard] = {}
        self._classes: set[int] = set()
        self._problem = ""
        self._unmade = Refusals()
        """As what _refused_as says: the API server refuses placeholders, and would others as well."""
        self._nominated = Refusals()
        """By UID: somebody takes nominations away; before Kubernetes 1.35 kube-scheduler, at each attempt."""
        self._creating, self._sending, self._deleting = InTurns(), InTurns(), InTurns()
        self._nominators = OneAtATime()
        """By node: one at a time, and others of the node behind it."""
        self._clock = clock

    def guard(self, policy: str) -> Guard:
        """The condition Guarded of one policy."""
        return self._guards.get(policy, _UNKNOWN)

    async def run_once(self) -> None:
        """Wait for a change, and bring placeholders nearer to where holds lie, as far as one call may."""
        await self._changes.wait()
        await self._standing_by.look()
        self._standing.forget_unseen()
        delete = [*self._standing.ended.values()]
        create: list[tuple[Demand, str]] = []
        nominate: list[Placeholder] = []
        closed, crowded = self._closed(), await self._crowd()
        known, unmade = set[str](), self._unmade.barred(self._clock())
        barred = self._standing.refusals.barred(self._clock())
        # What waits elsewhere is a reason for those alone whose own may have to make room.
        pressed = self._standing.asking_policies() if crowded else set[str]()
        self._roaming.begin()
        for holding in self._ledger.gather_holdings():
            # Nothing may come between what it says and what is done of it.
            if holding is not None and self._kept(holding.demand.key):
                known.add(holding.demand.key)
                if not self._same(holding) or holding.demand.key in pressed:
                    steps = self._decide(holding, crowded, barred)
                    delete += steps.delete
                    nominate += steps.nominate
                    asked = [(holding.demand, node) for node in steps.create if node not in closed]
                    create += [one for one in asked if _refused_as(*one) not in unmade]
            await asyncio.sleep(0)
        if self._roaming.end():
            self._changes.note()
        for policy in self._standing.policies():
            if policy not in known:
                delete += self._standing.of(policy)
        for policy in self._guards.keys() - known:
            del self._guards[policy]
            self._settled.pop(policy, None)
            self._decided.pop(policy, None)
            self._standing_by.forget(policy)
            self._ledger.keep(policy, ())
            self._roaming.forget(policy)
            self._overcommitted.forget(policy)
        if delete or create or nominate:
            await self._act(delete, create, nominate)

    async def _crowd(self) -> Mapping[str, int]:
        """Nodes to which placeholders have waited for long to be bound, and are wanted: how many.

        Not those that stand by, nor those that go themselves, as all do where an owner gets a place.
        """
        late, crowd = self._standing.late(), Counter[str]()
        for holding in self._ledger.gather_holdings() if late else ():
            mine = self._standing.of(holding.demand.key) if holding is not None else []
            if holding is not None and any(one.uid in late for one in mine):
                form = form_of(holding.demand, priority_of(holding.demand), self._image)
                bound = Counter(one.node for one in mine if one.bound and one.form == form)
                waits = Counter(one.node for one in mine if one.uid in late and one.form == form)
                for node, slots in holding.nodes:
                    crowd[node] += max(0, min(waits[node], slots - bound[node]))
            await asyncio.sleep(0)
        closed = self._closed()
        return {node: count for node, count in crowd.items() if count and node not in closed}

    def _same(self, holding: Holding) -> bool:
        """Whether there was nothing to do when all was as it is now."""
        was = self._settled.get(holding.demand.key)
        if was is None or was[1] != self._standing.versions[holding.demand.key]:
            return False
        same = was[0].demand is holding.demand and was[0].nodes is holding.nodes
        return same and was[2:] == self._beside(holding)

    def _beside(self, holding: Holding) -> tuple[Mapping[str, int], int | None, int]:
        """What else is decided by: who is to stand by, and how many are to roam, at which priority."""
        roaming = self._roaming
        return self._due(holding.demand), roaming.awaited(holding), roaming.priority(holding.demand)

    def _lack_room(self, policy: str) -> int | None:
        """How many slots are to get one that waits: not those whose placeholders stay where pods came."""
        stay = self._standing.bound_among(policy, self._overcommitted.nodes.get(policy, ()))
        awaited = self._awaited(policy)
        return None if awaited is None else max(0, awaited - stay)

    def _due(self, demand: Demand) -> Mapping[str, int]:
        """Nobody stands by where ordinary pods are above: they would not see it."""
        return self._standing_by.due(demand.key) if priority_of(demand) >= self._ordinary() else {}

    def _decide(self, holding: Holding, crowded: Mapping[str, int], barred: Mapping[str, str]) -> Steps:
        demand, wanted = holding.demand, dict(holding.nodes)
        self._decided[demand.key] = demand, self._ledger.openings(demand.key)
        mine = self._standing.of(demand.key)
        there = [one for one in mine if one.node]
        form = form_of(demand, priority_of(demand), self._image)
        roams = form_of(demand, self._roaming.priority(demand), self._image)
        bound = Counter(one.node for one in there if one.bound)
        stand = Counter(one.node for one in there if one.bound and one.form == form)
        missing = {node for node, slots in wanted.items() if stand[node] < slots}
        self._standing_by.misses(demand.key, missing - barred.keys())
        standby = self._due(demand)
        keep = Counter(one.node for one in there if one.keeps and one.form in (form, roams))
        keep -= Counter(wanted)
        self._ledger.keep(demand.key, keep)
        beside = bound - Counter(wanted)
        lost = {node for node in beside if not self._serves(demand.where, node)}
        unplaced = holding.unplaced
        asking = [one.node for one in there if not one.bound]
        crowded = Counter(crowded) + to_be_replaced(there, roams, form)
        short = self._overcommitted.look(demand.key, wanted, beside, asking)
        steps = decide(wanted, form, there, crowded, standby, barred, lost, short, unplaced)
        unmade = self._unmade.barred(self._clock())
        self._guards[demand.key] = _guard(missing, barred, unmade.get(demand.key, ""))
        pauses = any(node in barred for node in (*wanted, *standby))  # which end without a change
        pauses |= self._standing_by.pauses(demand.key) or bool(steps.nominate)
        pauses |= bool(steps.create or short)  # so does what is left to who roams
        renewed, fresh = renewed_apart(steps.create, bound - stand)
        steps = self._roaming.with_them(replace(steps, create=fresh), holding, roams, mine)
        steps = replace(steps, create=(*renewed, *steps.create))
        pauses |= self._roaming.pauses(demand.key)
        if steps == Steps() and not pauses:
            self._settled[demand.key] = holding, self._standing.versions[demand.key], *self._beside(holding)
        else:
            self._settled.pop(demand.key, None)
        return steps

    async def _act(
        self, delete: list[Placeholder], create: list[tuple[Demand, str]], nominate: list[Placeholder]
    ) -> None:
        """Who goes comes first, because it may make room; but where it makes room for another hold, that
        one's placeholder is nominated before, else whoever waits is quicker. Policies take turns: whoever
        edits theirs all the time, so that all of its placeholders are made anew, keeps nobody else waiting.
        """
        self._problem = ""
        roaming = [one for one in create if not one[1]]
        create = [one for one in create if one[1]]
        create, left_out = self._creating.next(create, lambda asked: asked[0].key, _A_ROUND)
        create += self._sending.next(roaming, lambda asked: asked[0].key, _ROAMING_A_ROUND)[0]
        later = {node for _, node in left_out}
        waiting, seen = self._standing.waiting(), {one.uid for one in (*delete, *nominate)}
        unbound = [one for one in delete if one.roams and not one.bound]
        late = {one.uid for one in unbound[_ROAMING_A_ROUND:]}  # as many go as can be made
        delete = [one for one in delete if one.uid not in late]
        delete, _ = self._deleting.next(delete, lambda one: one.policy, _A_ROUND)
        awaited = {node for _, node in create} | {one.node for one in waiting}
        first, making_way = apart(delete, awaited)
        left = {one.node for one in making_way}
        heirs = [one for one in waiting if one.node in left and not (one.nominated or one.uid in seen)]
        await asyncio.gather(*(self._delete(one) for one in first))
        await asyncio.gather(*(self._nominate(one) for one in (*nominate[:_A_ROUND], *heirs)))
        due = {demand.key: self._due(demand) for demand in {one.key: one for one, _ in create}.values()}
        await asyncio.gather(
            *(
                self._create(demand, node, keeps=node in left or node in due[demand.key])
                for demand, node in create
            )
        )
        await asyncio.gather(*(self._delete(one) for one in making_way if one.node not in later))
        if self._problem:
            log.warning("placeholders are not as they should be yet error=%s", self._problem)
            await asyncio.sleep(1.0)
        self._changes.note()

    async def _delete(self, one: Placeholder) -> None:
        if not self._standing.give(one):
            return  # an owner gets its place
        async with self._turns.turn():
            if one.uid not in self._standing.ended and self._is_outdated(one):
                self._standing.take_back(one)
                return  # an owner may have been given a place meanwhile; the next round decides
            try:
                stays = await delete(self._api, self._namespace, one)
            except (APIError, Unreachable) as error:  # if another one has its name, the watch shows it gone
                self._standing.take_back(one)
                self._failed("delete", error)
                return
            if stays is not None:
                self._standing.stays(stays)  # the next round decides anew
                return
        if one.bound:
            self._standing_by.in_vain(one.policy, one.node)
        self._standing.drop(one.uid)
        self._standing.ended.pop(one.uid, None)
        self._metrics.placeholder("deleted")

    def _is_outdated(self, one: Placeholder) -> bool:
        """Whether it was decided by what is no longer so that this one goes: its policy's slots are others, a
        hold lies where it stands, or others that it was to make room for have got that.
        """
        demand, openings = self._decided.get(one.policy, (None, None))
        if demand is None:
            return False
        if self._ledger.openings(one.policy) != openings:
            return True
        if not one.bound or one.form != form_of(demand, priority_of(demand), self._image):
            return False
        holds, standing = self._ledger.holds_on(one.node), self._standing
        if holds.get(one.policy, 0) > standing.bound_on(one.node, one.form)[one.policy]:
            return True
        held = openings.held if openings is not None else 0
        few = sum(slots for _, slots in standing.nodes(one.policy)) < held
        wanted = len(standing.asking(one.node)) > len(standing.beyond(one.node, holds))
        return few and not wanted and self._serves(demand.where, one.node)

    async def _nominate(self, one: Placeholder) -> None:
        body, standing = nomination(one.uid, one.node), self._standing
        # Whoever waits for others of its node has no turn yet, and keeps no owner from the node either.
        async with self._nominators[one.node], self._turns.turn(), standing.nominating[one.node]:
            if one.node in self._busy():
                return  # an owner is on its way there, and would not fit beside it
            if one.uid not in standing.aside:
                if one.uid in self._nominated.barred(self._clock()):
                    return
                self._nominated.note(one.uid, "nominated", self._clock())
            try:
                await self._api.patch(PODS, self._namespace, one.name, body, subresource="status")
            except (APIError, Unreachable) as error:
                # It has gone, or is bound, as the watch will tell.
                if not (isinstance(error, APIError) and error.status in TOO_LATE):
                    self._failed("nominate", error)
                return
            standing.nominated(one)

    async def _create(self, demand: Demand, node: str, *, keeps: bool) -> None:
        """`keeps`: it stands by, or another one is about to go there for it: others must not be quicker."""
        value = priority_of(demand) if node else self._roaming.priority(demand)
        async with self._turns.turn():
            if node in self._closed() or self._unmade.bars(_refused_as(demand, node), self._clock()):
                return
            try:
                if value not in self._classes:
                    await provide(self._api, priorities.placeholder_class(value))
                    self._classes.add(value)
                raw = await self._api.create(PODS, self._namespace, self._body(demand, node, value))
            except (APIError, Unreachable) as error:
                self._classes.discard(value)
                if isinstance(error, APIError) and error.status in _REFUSALS:
                    self._refused(demand, node, error)
                else:
                    self._failed("create", error)
                return
        self._asked()
        made = placeholders.placeholder(raw)
        self._standing.made(made)
        self._metrics.placeholder("created")
        if keeps:
            await self._nominate(made)

    def _body(self, demand: Demand, node: str, value: int) -> dict[str, Any]:
        policy = blake2b(demand.key.encode(), digest_size=4).hexdigest()
        return placeholders.body(
            demand,
            f"hold-{policy}-{self._name()}",
            node,
            namespace=self._namespace,
            form=form_of(demand, value, self._image),
            priority_class=priorities.of_placeholders(value),
            scheduler=self._scheduler,
            image=self._image,
        )

    def _refused(self, demand: Demand, node: str, error: APIError) -> None:
        """Of this policy alone: others' placeholders must not wait behind what never succeeds."""
        self._metrics.placeholder("failed")
        if self._unmade.note(_refused_as(demand, node), str(error), self._clock()):
            log.warning("placeholders are refused policy=%s error=%s", demand.key, error)

    def _failed(self, what: str, error: Exception) -> None:
        self._metrics.placeholder("failed")
        self._problem = self._problem or f"{what}: {error}"
