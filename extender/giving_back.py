"""Takes back for quotas what others owe them, and room inside a quota for those that matter more, or in turn.

What kube-scheduler's preemption cannot: it looks for victims of lower priority only, and on full nodes only.
Decided by quota.returning and quota.turns; for whom others end is said here (extender.making_room does it).
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import AsyncIterator, Callable, Collection, Hashable, Iterable
from typing import Final

from adapters.api import PODS, QUOTAS, APIError, EvictingAPI, Unreachable
from adapters.kubernetes import decode
from adapters.kubernetes.decode import DecodeError
from adapters.kubernetes.events import EventWriter, Regarding
from adapters.kubernetes.templates import where_of
from adapters.loops import last_of
from adapters.pace import Pace
from extender.config import GiveBack
from extender.making_room import MakingRoom, Pauses
from extender.metrics import Metrics
from extender.view import View
from ledger.clearing import Clearance
from ledger.ledger import Ledger
from ledger.state import exempt
from qos.cluster.objects import Node, NodePredicate, Pod
from qos.cluster.selectors import admits
from qos.quantity import render
from quota import returning, turns
from quota.limits import Limits
from quota.node import Node as QuotaNode
from quota.returning import Place, Return
from quota.taking import Taking

log = logging.getLogger(__name__)

QUOTA_VERSION: Final = f"{QUOTAS.group}/{QUOTAS.version}"
MOST_A_PASS: Final = 4
"""Pods for which others end in one pass."""
MOST_LOOKS: Final = 2
"""Looks at every pod of the cluster in one pass that find nobody who may end."""
_MOST_PLACES: Final = 100
_MOST_TOLD: Final = 20
"""Debtors that are told in one pass: of so many Events as there are pairs of quotas others would be lost."""
_NO_WAY_SECONDS: Final = 2.0
"""Until pods of a kind for which nobody may end are looked at again; longer each time."""
_LONGEST_NO_WAY: Final = 30.0
_NOMINATED_SECONDS: Final = 30.0
"""How long a pod is left to whoever nominated it, where nobody ends on that node: a leader that is gone may
have done so."""
_SORTED_A_STEP: Final = 2000
_PLACES_A_STEP: Final = 500
_STEP: Final = 100
"""What is done between two steps: pods that wait, and as many for each new kind as below."""
_KIND_COSTS: Final = 20


class GivingBack:
    """One pass of the leader: whom to serve, and by whose end.

    clock: steady seconds. wall: seconds since the epoch, to which pods' own times are compared. leads:
    whether we still do, while a pass goes on.
    """

    def __init__(
        self,
        api: EvictingAPI,
        ledger: Ledger,
        limits: Limits,
        view: View,
        events: EventWriter,
        metrics: Metrics,
        config: GiveBack,
        *,
        schedulers: Iterable[str],
        clock: Callable[[], float],
        wall: Callable[[], float],
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        self._api, self._ledger, self._limits, self._view = api, ledger, limits, view
        self._events, self._config = events, config
        pace = Pace(config.evictions_per_minute / 60, config.evictions_per_minute, clock)
        self._room = MakingRoom(api, ledger, limits, events, metrics, pace, leads=leads, clock=clock)
        self._schedulers = frozenset(schedulers)
        self._clock, self._wall = clock, wall
        self._since: dict[str, float] = {}
        self._nominated: dict[str, tuple[str, float]] = {}
        self._told: set[str] = set()
        self._hopeless = Pauses(_NO_WAY_SECONDS, _LONGEST_NO_WAY)

    async def run_once(self) -> None:
        """Serve those whose quota is owed since the grace, and those that matter more inside theirs, or whose
        turn it is.
        """
        await self._room.follow()
        now = self._clock()
        self._hopeless.forget(now)
        if not self._view.unschedulable:
            self._since.clear()
            self._nominated.clear()
            return
        self._ledger.settle_quotas()
        looks = MOST_LOOKS
        for pod in await self._due(now):
            if looks and self._room.may_begin() and self._hopeless.over(self._kind(pod), now):
                looks -= not await self._serve(pod)

    async def _waiting(self) -> AsyncIterator[Pod]:
        """Pods that wait, the most important first, in steps."""
        pods, chunks = list(self._view.unschedulable.values()), list[list[Pod]]()
        for start in range(0, len(pods), _SORTED_A_STEP):
            chunks.append(sorted(pods[start : start + _SORTED_A_STEP], key=_turn))
            await asyncio.sleep(0)
        for number, pod in enumerate(heapq.merge(*chunks, key=_turn)):
            if number % _STEP == 0:
                await asyncio.sleep(0)
            yield pod

    async def _due(self, now: float) -> list[Pod]:
        """Whom to serve now, the most important first; each quota's grace begins with its first pod."""
        owed, due, kinds = dict[str, float](), list[Pod](), dict[Hashable, bool]()
        self._told.clear()
        nominated = dict[str, tuple[str, float]]()
        async for pod in self._waiting():
            if pod.scheduler_name not in self._schedulers or exempt(pod) or not self._ledger.waits(pod):
                continue
            if pod in self._room or self._is_helped(pod, nominated, now):
                continue
            kind = self._kind(pod)
            if kind not in kinds:
                kinds[kind] = self._ready(pod, owed, now) and self._hopeless.over(kind, now)
                if len(kinds) % (_STEP // _KIND_COSTS) == 0:
                    await asyncio.sleep(0)
            if kinds[kind] and len(due) < MOST_A_PASS and self._room.may_come(pod):
                due.append(pod)
        self._since, self._nominated = owed, nominated
        return due

    def _is_helped(self, pod: Pod, nominated: dict[str, tuple[str, float]], now: float) -> bool:
        """Whether kube-scheduler, or another leader, makes room for it; notes since when it is nominated."""
        node = pod.nominated_node_name
        if not node:
            return self._ledger.preempts(pod.uid, now)
        before, since = self._nominated.get(pod.uid, ("", now))
        nominated[pod.uid] = node, since if before == node else now
        return now - nominated[pod.uid][1] < _NOMINATED_SECONDS or self._ledger.ends_on(node)

    def _ready(self, pod: Pod, owed: dict[str, float], now: float) -> bool:
        """Whether others may end for such a pod by now; notes in `owed` since when its quota is."""
        taking = self._room.taking(pod)
        if not taking.owed:
            return taking.refused()
        key = taking.own.quota.key
        if key not in self._since:
            self._warn(taking)
        owed[key] = self._since.setdefault(key, now)
        return now - owed[key] >= self._config.grace_seconds

    def _warn(self, taking: Taking) -> None:
        """Those who owe most are told once, before the grace is over; each of one creditor a pass."""
        creditor = taking.own.quota.key
        log.info("a quota is owed quota=%s pod=%s", creditor, taking.pod.key)
        beyond: dict[QuotaNode, list[str]] = {}
        for name in sorted(taking.owed):
            debtors = (one for one in taking.beyond(name) if one[0].quota.key not in self._told)
            for debtor, amount in heapq.nlargest(_MOST_TOLD - len(self._told), debtors, key=_amount):
                beyond.setdefault(debtor, []).append(f"{render(name, amount)} {name}")
        for debtor, amounts in beyond.items():
            quota = debtor.quota
            self._told.add(quota.key)
            note = (
                f"it takes {', '.join(amounts)} beyond its runtime, which quota {creditor} is owed of: its "
                "least important pods are evicted for pods that wait, from "
                f"{self._config.grace_seconds:g} seconds on"
            )
            about = Regarding(QUOTA_VERSION, QUOTAS.kind, quota.namespace, quota.name, quota.uid)
            self._events.say(about, "Warning", "QuotaOwes", note)

    def _kind(self, pod: Pod) -> Hashable:
        """Pods of one kind fare alike, but for where they may run."""
        waited = turns.has_waited(self._limits.account.quota_of(pod), pod, self._wall())
        return self._limits.kind(pod), pod.priority, tuple(sorted(pod.requests.items())), waited

    async def _serve(self, pod: Pod) -> bool:
        """False: nobody may end for it, which took a look at every pod."""
        found = await self._where(pod)
        if found is None:
            return True
        where, preempts = found

        def fits(node: Node) -> bool:
            return admits(where, node)

        taking = self._room.taking(pod)
        ending = {one.uid for one in self._room.ending()}

        def may_end(one: Pod) -> bool:
            if not preempts and taking.is_own(one):
                return False
            return self._room.may_end(one) and returning.worth(taking, one)

        clearances = await last_of(self._ledger.gather_clearances(pod, fits, may_end, ending))
        plan = await self._plan(pod, await _nearest(pod, clearances))
        if plan is not None and plan.victims:
            await self._room.begin(pod, plan, returning.still)
            return True
        plan = await self._turn(pod, fits, ending)
        if plan is not None:
            await self._room.begin(pod, plan, self._still_over)
            return True
        self._hopeless.begin(self._kind(pod), self._clock())
        return False

    async def _turn(self, pod: Pod, fits: Callable[[Node], bool], ending: Collection[str]) -> Return | None:
        """Whose turn is over, where its quota has turns and it has waited for one."""
        taking, now = self._room.taking(pod), self._wall()
        if not turns.has_waited(taking.own.quota, pod, now):
            return None

        def may_end(one: Pod) -> bool:
            return self._room.may_end(one) and turns.is_over(taking, one, now)

        clearances = await last_of(self._ledger.gather_clearances(pod, fits, may_end, ending))
        places = [Place(one.node, one.left, one.pods) for one in clearances]
        return turns.plan(self._room.taking(pod), places, now)

    def _still_over(self, taking: Taking, place: Place, plan: Return) -> bool:
        return turns.plan(taking, [place], self._wall()) == plan

    async def _plan(self, pod: Pod, places: list[Place]) -> Return | None:
        """None as well where quotas came or went meanwhile: the next look knows."""
        found, known = None, self._limits.account.places
        for found in returning.search(self._room.taking(pod), places):  # noqa: B007 - the last is the best
            await asyncio.sleep(0)
            if self._limits.account.places is not known:
                return None
        return found

    async def _where(self, pod: Pod) -> tuple[NodePredicate, bool] | None:
        """Where it may run, and whether it preempts, by a fresh read; None: it waits no more."""
        try:
            raw = await self._api.get(PODS, pod.namespace, pod.name)
            seen = decode.pod(raw)
            done = seen.node_name or seen.deleting or seen.terminal
            helped = seen.nominated_node_name not in ("", pod.nominated_node_name)  # by kube-scheduler
            return where_of(raw) if seen.uid == pod.uid and not (done or helped) else None
        except (APIError, Unreachable, DecodeError) as error:
            log.info("a pod that waits cannot be read pod=%s error=%s", pod.key, error)
            return None


def _amount(debt: tuple[QuotaNode, int]) -> int:
    return debt[1]


def _shortage(pod: Pod, place: Place) -> tuple[float, str]:
    """How much of what the pod asks for a place lacks, in parts of it."""
    lacks = [
        max(0, amount - place.left.get(name, 0)) / amount for name, amount in pod.requests.items() if amount
    ]
    return sum(lacks), place.node


async def _nearest(pod: Pod, clearances: list[Clearance]) -> list[Place]:
    """The places that lack least, in steps."""
    best: list[Place] = []
    for start in range(0, len(clearances), _PLACES_A_STEP):
        some = [Place(one.node, one.left, one.pods) for one in clearances[start : start + _PLACES_A_STEP]]
        best = heapq.nsmallest(_MOST_PLACES, [*best, *some], key=lambda place: _shortage(pod, place))
        await asyncio.sleep(0)
    return best


def _turn(pod: Pod) -> tuple[int, float, str]:
    return -pod.priority, pod.created, pod.uid
