"""Takes back for quotas what others owe them, and room inside a quota for those that matter more, or in turn.

What kube-scheduler's preemption cannot: it looks for victims of lower priority only, and on full nodes only.
Decided by quota.returning and quota.turns; here the cluster is asked, and pods are evicted by its API.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass
from typing import Final

from adapters.api import PODS, QUOTAS, APIError, EvictingAPI, NotFound, Unreachable
from adapters.kubernetes import decode
from adapters.kubernetes.decode import DecodeError
from adapters.kubernetes.events import EventWriter, Regarding
from adapters.kubernetes.templates import where_of
from adapters.loops import last_of
from adapters.pace import Pace
from extender.config import GiveBack
from extender.metrics import Metrics
from extender.view import View
from ledger.ledger import Ledger
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
_NO_WAY_SECONDS: Final = 2.0
"""Until pods of a kind for which nobody may end are looked at again; longer each time."""
_VAIN_SECONDS: Final = 60.0
"""Until others may end once more for a pod that did not come though there was room; twice as long each time:
kube-scheduler has reasons that are not known here."""
_LONGEST_PAUSE: Final = 3600.0
_LONGEST_SECONDS: Final = 600.0
"""How long pods may take to end: their grace is part of it."""
_COMES_SECONDS: Final = 30.0
"""How long after the last of its victims is gone a pod comes; kube-scheduler lets it back off for ten."""
_PROTECTED_SECONDS: Final = 30.0
"""How long a pod that may not be evicted now is left alone."""
_PODS_A_STEP: Final = 20


@dataclass(slots=True)
class _Way:
    """For whom pods end since when: the plan, and since when they are all gone."""

    pod: Pod
    plan: Return
    began: float
    cleared: float | None = None


class _Pauses:
    """Who, or what kind of pods, is left alone for a while: longer each time in a row."""

    def __init__(self, first: float, longest: float) -> None:
        self._first, self._longest = first, longest
        self._until: dict[Hashable, tuple[float, int]] = {}

    def begin(self, key: Hashable, now: float) -> None:
        _, times = self._until.get(key, (now, 0))
        self._until[key] = now + min(self._longest, self._first * 2.0**times), min(times + 1, 16)

    def over(self, key: Hashable, now: float) -> bool:
        return self._until.get(key, (now, 0))[0] <= now

    def forget(self, now: float) -> None:
        """Those that were left alone long ago; they begin anew."""
        self._until = {k: one for k, one in self._until.items() if one[0] + self._longest > now}


class GivingBack:
    """One pass of the leader: whom to serve, by whose end, and what became of those served before.

    clock: steady seconds. wall: seconds since the epoch, to which pods' own times are compared.
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
    ) -> None:
        self._api, self._ledger, self._limits, self._view = api, ledger, limits, view
        self._events, self._metrics, self._config = events, metrics, config
        self._schedulers = frozenset(schedulers)
        self._clock, self._wall = clock, wall
        self._pace = Pace(config.evictions_per_minute / 60, config.evictions_per_minute, clock)
        self._deleting: list[Pod] = []
        self._since: dict[str, float] = {}
        self._ways: dict[str, _Way] = {}
        self._protected = _Pauses(_PROTECTED_SECONDS, _PROTECTED_SECONDS)
        self._vain = _Pauses(_VAIN_SECONDS, _LONGEST_PAUSE)
        self._hopeless = _Pauses(_NO_WAY_SECONDS, _PROTECTED_SECONDS)

    async def run_once(self) -> None:
        """Serve those whose quota is owed since the grace, and those that matter more inside theirs, or whose
        turn it is.
        """
        now = self._clock()
        await self._follow(now)
        waiting = sorted(
            self._view.unschedulable.values(), key=lambda pod: (-pod.priority, pod.created, pod.uid)
        )
        for pauses in (self._protected, self._vain, self._hopeless):
            pauses.forget(now)
        if not waiting:
            self._since.clear()
            return
        self._ledger.settle_quotas()
        self._deleting = await last_of(self._ledger.gather_ending())
        looks = MOST_LOOKS
        for pod in await self._due(waiting, now):
            if looks and self._hopeless.over(self._kind(pod), now):
                looks -= not await self._serve(pod)

    async def _follow(self, now: float) -> None:
        """Keep the room for those who are to come, until they have, or do not."""
        for uid, way in list(self._ways.items()):
            pod = self._ledger.known(uid)
            if pod is None or pod.node_name or pod.terminal or pod.deleting:
                del self._ways[uid]
                continue
            left = [one for one in way.plan.victims if not self._gone(one)]
            if not left and way.cleared is None:
                way.cleared = now
            late = way.cleared is not None and now - way.cleared > _COMES_SECONDS
            if late or now - way.began > _LONGEST_SECONDS:
                await self._give_up(uid, now)
            else:
                await self._nominate(pod, way.plan.node)

    def _gone(self, victim: Pod) -> bool:
        seen = self._ledger.known(victim.uid)
        return seen is None or seen.terminal

    async def _nominate(self, pod: Pod, node: str) -> None:
        """The room is the pod's: here until it shows, and with kube-scheduler, which keeps others of no
        higher priority from it. It may take that back when it tries too early; "" does.
        """
        if node:
            self._ledger.nominate(pod, node, self._clock())
        if pod.nominated_node_name == node:
            return
        body = {"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node or None}}
        try:
            await self._api.patch(PODS, pod.namespace, pod.name, body, subresource="status")
        except (APIError, Unreachable) as error:
            log.info("pod not nominated pod=%s node=%s error=%s", pod.key, node, error)

    async def _give_up(self, uid: str, now: float) -> None:
        way = self._ways.pop(uid)
        self._vain.begin(uid, now)
        await self._nominate(self._ledger.known(uid) or way.pod, "")
        log.warning(
            "pod did not come where others ended for it pod=%s node=%s then=%r",
            way.pod.key,
            way.plan.node,
            "kube-scheduler has another reason; its Events say it",
        )

    def _taking(self, pod: Pod) -> Taking:
        ending = [one for way in self._ways.values() for one in way.plan.victims if not self._gone(one)]
        leaving = {one.uid: one for one in (*ending, *self._deleting)}
        coming = [way.pod for way in self._ways.values() if way.pod.uid != pod.uid]
        return self._limits.taking(pod, leaving.values(), coming)

    async def _due(self, waiting: list[Pod], now: float) -> list[Pod]:
        """Whom to serve now, the most important first; each quota's grace begins with its first pod."""
        owed, due, kinds = dict[str, float](), list[Pod](), dict[Hashable, bool]()
        for number, pod in enumerate(waiting):
            if number % _PODS_A_STEP == 0:
                await asyncio.sleep(0)
            if pod.uid in self._ways or pod.nominated_node_name or pod.scheduler_name not in self._schedulers:
                continue
            kind = self._kind(pod)
            if kind not in kinds:
                kinds[kind] = self._ready(pod, owed, now) and self._hopeless.over(kind, now)
            if kinds[kind] and self._vain.over(pod.uid, now):
                due.append(pod)
            if len(due) >= MOST_A_PASS:
                return due
        self._since = owed
        return due

    def _ready(self, pod: Pod, owed: dict[str, float], now: float) -> bool:
        """Whether others may end for such a pod by now; notes in `owed` since when its quota is."""
        taking = self._taking(pod)
        if not taking.owed:
            return taking.refused()
        key = taking.own.quota.key
        if key not in self._since:
            self._warn(taking)
        owed[key] = self._since.setdefault(key, now)
        return now - owed[key] >= self._config.grace_seconds

    def _warn(self, taking: Taking) -> None:
        """Those who owe are told once, before the grace is over."""
        creditor = taking.own.quota.key
        log.info("a quota is owed quota=%s pod=%s", creditor, taking.pod.key)
        beyond: dict[QuotaNode, list[str]] = {}
        for name in sorted(taking.owed):
            for debtor, amount in taking.beyond(name):
                beyond.setdefault(debtor, []).append(f"{render(name, amount)} {name}")
        for debtor, amounts in beyond.items():
            quota = debtor.quota
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

        taking = self._taking(pod)
        ending = {one.uid for one in taking.leaving}

        def may_end(one: Pod) -> bool:
            return (preempts or not taking.is_own(one)) and self._may_end(taking, one)

        clearances = await last_of(self._ledger.gather_clearances(pod, fits, may_end, ending))
        places = [Place(one.node, one.left, one.pods) for one in clearances]
        places.sort(key=lambda place: _shortage(pod, place))
        self._deleting = await last_of(self._ledger.gather_ending())
        taking = self._taking(pod)  # what changed meanwhile
        plan = returning.plan(taking, places[:_MOST_PLACES]) or await self._turn(pod, fits, ending)
        if plan is None or not plan.victims:
            self._hopeless.begin(self._kind(pod), self._clock())
            return False
        await self._make_room(taking, plan)
        return True

    async def _turn(self, pod: Pod, fits: Callable[[Node], bool], ending: Collection[str]) -> Return | None:
        """Whose turn is over, where its quota has turns and it has waited for one."""
        taking, now = self._taking(pod), self._wall()
        if not turns.has_waited(taking.own.quota, pod, now):
            return None

        def may_end(one: Pod) -> bool:
            return self._protected.over(one.uid, self._clock()) and turns.is_over(taking, one, now)

        clearances = await last_of(self._ledger.gather_clearances(pod, fits, may_end, ending))
        places = [Place(one.node, one.left, one.pods) for one in clearances]
        return turns.plan(self._taking(pod), places, now)

    def _may_end(self, taking: Taking, victim: Pod) -> bool:
        return self._protected.over(victim.uid, self._clock()) and returning.worth(taking, victim)

    async def _where(self, pod: Pod) -> tuple[NodePredicate, bool] | None:
        """Where it may run, and whether it preempts, by a fresh read; None: it waits no more."""
        try:
            raw = await self._api.get(PODS, pod.namespace, pod.name)
            seen = decode.pod(raw)
            done = seen.node_name or seen.deleting or seen.terminal
            helped = seen.nominated_node_name  # kube-scheduler makes room for it
            return where_of(raw) if seen.uid == pod.uid and not (done or helped) else None
        except (APIError, Unreachable, DecodeError) as error:
            log.info("a pod that waits cannot be read pod=%s error=%s", pod.key, error)
            return None

    async def _make_room(self, taking: Taking, plan: Return) -> None:
        """Ask for all first: who may not be evicted must not have others evicted in vain."""
        for victim in plan.victims:
            if not await self._evict(victim, dry_run=True):
                return
        if not all(self._pace.take() for _ in plan.victims):
            return
        pod = taking.pod
        self._ways[pod.uid] = _Way(pod, plan, self._clock())
        await self._nominate(pod, plan.node)
        for victim in plan.victims:
            if not await self._evict(victim, dry_run=False):
                del self._ways[pod.uid]
                return
            self._tell(taking, victim, plan.node)

    async def _evict(self, victim: Pod, *, dry_run: bool) -> bool:
        try:
            await self._api.evict(victim.namespace, victim.name, victim.uid, dry_run=dry_run)
        except NotFound:
            return True
        except (APIError, Unreachable) as error:
            self._protected.begin(victim.uid, self._clock())
            self._metrics.gave_back("refused")
            log.info("pod may not be evicted now pod=%s error=%s", victim.key, error)
            return False
        return True

    def _tell(self, taking: Taking, victim: Pod, node: str) -> None:
        """Who gave what to whom, and why: on both pods, and in the log."""
        pod, creditor = taking.pod, taking.own.quota.key
        debtor = self._limits.account.quota_of(victim).key
        amounts = _amounts(victim, pod)
        if debtor != creditor:
            outcome = "given"
            why = f"quota {debtor} gives back {amounts} that is owed to quota {creditor}, for pod {pod.key}"
        elif victim.priority < pod.priority:
            outcome, why = "inside", f"for pod {pod.key}, of higher priority in the same quota {creditor}"
        else:
            outcome, why = "turn", f"for pod {pod.key}, whose turn it is in the same quota {creditor}"
        self._metrics.gave_back(outcome)
        log.info("evicted pod=%s node=%s why=%r", victim.key, node, why)
        said = f"evicted from node {node}: {why}"
        self._events.say(_about(victim), "Warning", "QuotaGaveBack", said)
        self._events.say(_about(pod), "Normal", "QuotaTookBack", f"pod {victim.key} was {said}")


def _about(pod: Pod) -> Regarding:
    return Regarding("v1", "Pod", pod.namespace, pod.name, pod.uid)


def _amounts(victim: Pod, pod: Pod) -> str:
    names = [name for name in sorted(victim.requests) if name in pod.requests and name != "pods"]
    return ", ".join(f"{render(name, victim.requests[name])} {name}" for name in names)


def _shortage(pod: Pod, place: Place) -> tuple[float, str]:
    """How much of what the pod asks for a place lacks, in parts of it."""
    lacks = [
        max(0, amount - place.left.get(name, 0)) / amount for name, amount in pod.requests.items() if amount
    ]
    return sum(lacks), place.node
