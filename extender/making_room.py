"""Makes room for pods that wait: evicts who is to end for each, and keeps what they leave until it has come.

kube-scheduler makes room as well, by preemption. Whoever comes first has the pod (ledger.rooms).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, TypeAlias

from adapters.api import PODS, APIError, EvictingAPI, NotFound, Unreachable
from adapters.kubernetes.events import EventWriter, Regarding
from adapters.kubernetes.nomination import nomination
from adapters.pace import Pace
from extender.metrics import Metrics
from ledger.ledger import Ledger
from qos.cluster.objects import Pod
from qos.quantity import render
from quota.limits import Limits
from quota.returning import Place, Return
from quota.taking import Taking

log = logging.getLogger(__name__)

_VAIN_SECONDS: Final = 60.0
"""Until others may end once more for a pod that did not come though there was room, or for another one of its
workload; twice as long each time: kube-scheduler has reasons that are not known here."""
_LONGEST_PAUSE: Final = 3600.0
_LONGEST_SECONDS: Final = 600.0
"""How long pods may take to end: their grace is part of it."""
_COMES_SECONDS: Final = 30.0
"""How long after the last of its victims is gone a pod comes; kube-scheduler lets it back off for ten."""
_RENEW_SECONDS: Final = 0.5
"""How often the ledger is told that all of it goes on: hundreds may be under way."""
_PROTECTED_SECONDS: Final = 30.0
"""How long a pod that may not be evicted now is left alone."""


Still: TypeAlias = Callable[[Taking, Place, Return], bool]
"""Whether a way that was found is one by now."""


class Pauses:
    """Who, or what kind of pods, is left alone for a while: longer each time in a row."""

    def __init__(self, first: float, longest: float) -> None:
        self._first, self._longest = first, longest
        self._until: dict[Hashable, tuple[float, int]] = {}

    def begin(self, key: Hashable, now: float) -> None:
        """Leave it alone from now on."""
        _, times = self._until.get(key, (now, 0))
        self._until[key] = now + min(self._longest, self._first * 2.0**times), min(times + 1, 16)

    def over(self, key: Hashable, now: float) -> bool:
        """Whether it need not be left alone."""
        return self._until.get(key, (now, 0))[0] <= now

    def forget(self, now: float) -> None:
        """Those that were left alone long ago; they begin anew."""
        self._until = {k: one for k, one in self._until.items() if one[0] + self._longest > now}


@dataclass(slots=True)
class _Way:
    """For whom pods end since when: the plan, and since when they are all gone."""

    pod: Pod
    plan: Return
    began: float
    cleared: float | None = None


class MakingRoom:
    """What is under way, by the pod that is to come. `leads`: whether we still may."""

    def __init__(
        self,
        api: EvictingAPI,
        ledger: Ledger,
        limits: Limits,
        events: EventWriter,
        metrics: Metrics,
        pace: Pace,
        *,
        leads: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        self._api, self._ledger, self._limits = api, ledger, limits
        self._events, self._metrics, self._pace = events, metrics, pace
        self._leads, self._clock = leads, clock
        self._ways: dict[str, _Way] = {}
        self._protected = Pauses(_PROTECTED_SECONDS, _PROTECTED_SECONDS)
        self._vain = Pauses(_VAIN_SECONDS, _LONGEST_PAUSE)
        self._renewed = float("-inf")
        self._saves_for = 1
        """Evictions that a pod needs at once: meanwhile nobody who matters less has others evicted."""

    def __contains__(self, pod: Pod) -> bool:
        return pod.uid in self._ways

    def ending(self, but_for: str = "") -> list[Pod]:
        """Pods that are to end, and have not; without those that end for the pod with the UID but_for."""
        ways = (way for uid, way in self._ways.items() if uid != but_for)
        return [one for way in ways for one in way.plan.victims if not self._gone(one)]

    def taking(self, pod: Pod) -> Taking:
        """Whose pods may end for this one, once those have ended and come for whom it is under way."""
        ahead = {way.pod.uid: way.pod for way in self._ways.values()}
        ahead |= {one.uid: one for one in self._ledger.ahead_of(pod)}
        ahead.pop(pod.uid, None)
        return self._limits.taking(pod, self.ending(pod.uid), ahead.values())

    def may_begin(self) -> bool:
        """Whether anybody may be evicted now, as often as that was done lately."""
        if not self._pace.allows(self._saves_for):
            return False
        self._saves_for = 1
        return True

    def may_end(self, pod: Pod) -> bool:
        """Whether an eviction was not refused lately."""
        return self._protected.over(pod.uid, self._clock())

    def may_come(self, pod: Pod) -> bool:
        """Whether others have not ended for it in vain lately."""
        return self._vain.over(_workload(pod), self._clock())

    async def follow(self) -> None:
        """Keep the room for those who are to come, until they have, or do not."""
        now = self._clock()
        for pauses in (self._protected, self._vain):
            pauses.forget(now)
        for uid in [uid for uid in self._ways if not self._ledger.makes_room(uid, now)]:
            self._end(uid)  # nobody followed it: another one led
        for uid, way in list(self._ways.items()):
            self._renew()
            pod = self._ledger.known(uid)
            if pod is None or not self._ledger.waits(pod):
                self._end(uid)
                continue
            if way.cleared is None and all(map(self._gone, way.plan.victims)):
                way.cleared = now
            late = way.cleared is not None and now - way.cleared > _COMES_SECONDS
            if late or now - way.began > _LONGEST_SECONDS:
                await self._give_up(pod)
            else:
                await self._nominate(pod, way.plan.node)

    def _gone(self, victim: Pod) -> bool:
        seen = self._ledger.known(victim.uid)
        return seen is None or seen.terminal

    def _end(self, uid: str) -> None:
        self._ways.pop(uid, None)
        self._ledger.made_room(uid)

    async def _give_up(self, pod: Pod) -> None:
        node = self._ways[pod.uid].plan.node
        self._end(pod.uid)
        if self.may_come(pod):  # several of a workload that come to nothing at once count as one
            self._vain.begin(_workload(pod), self._clock())
        await self._nominate(pod, "")
        log.warning(
            "pod did not come where others ended for it pod=%s node=%s then=%r",
            pod.key,
            node,
            "kube-scheduler has another reason; its Events say it",
        )

    async def begin(self, pod: Pod, plan: Return, still: Still) -> None:
        """Ask for all evictions first: who may not be evicted must not have others evicted in vain. Nobody is
        where kube-scheduler preempts for the pod, and nobody where it takes others by then, as `still` says.
        """
        if not self._pace.allows(len(plan.victims)):
            self._saves_for = len(plan.victims)
            return
        if not self._ledger.make_room(pod, plan.node, self._clock()):
            return
        self._ways[pod.uid] = _Way(pod, plan, self._clock())
        evicted = False
        try:
            evicted = await self._allowed(plan) and await self._evict_all(pod, plan, still)
        finally:
            if not evicted:
                self._end(pod.uid)

    async def _allowed(self, plan: Return) -> bool:
        for victim in plan.victims:
            if not await self._evict(victim, dry_run=True):
                return False
            self._renew()
        return True

    async def _evict_all(self, pod: Pod, plan: Return, still: Still) -> bool:
        seen = self._ledger.known(pod.uid)
        if not self._leads() or seen is None or not self._ledger.waits(seen):
            return False
        self._ledger.settle_quotas()
        left = self._ledger.left_for(pod, plan.node, [one.uid for one in self.ending(pod.uid)])
        taking = self.taking(pod)
        there = tuple(one for one in plan.victims if one.node_name == plan.node)  # others' room is elsewhere
        if not still(taking, Place(plan.node, left, there), plan):
            return False
        if not self._pace.take(len(plan.victims)):
            return False
        await self._nominate(seen, plan.node)
        for victim in plan.victims:
            self._renew()
            if not await self._evict(victim, dry_run=False):
                await self._patch(pod, "")
                return False
            self._tell(taking, victim)
        return True

    def _renew(self) -> None:
        """A call may have taken long: what is under way is not over."""
        if (now := self._clock()) < self._renewed + _RENEW_SECONDS:
            return
        self._renewed = now
        for uid, way in self._ways.items():
            self._ledger.make_room(self._ledger.known(uid) or way.pod, way.plan.node, now)

    async def _nominate(self, pod: Pod, node: str) -> None:
        """The room is the pod's with kube-scheduler, too, which keeps others of no higher priority from it.
        It may take that back when it tries too early; "" does.
        """
        if pod.nominated_node_name != node:
            await self._patch(pod, node)

    async def _patch(self, pod: Pod, node: str) -> None:
        body = nomination(pod.uid, node or None)
        try:
            await self._api.patch(PODS, pod.namespace, pod.name, body, subresource="status")
        except (APIError, Unreachable) as error:
            log.info("pod not nominated pod=%s node=%s error=%s", pod.key, node, error)

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

    def _tell(self, taking: Taking, victim: Pod) -> None:
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
        log.info("evicted pod=%s node=%s why=%r", victim.key, victim.node_name, why)
        said = f"evicted from node {victim.node_name}: {why}"
        self._events.say(_about(victim), "Warning", "QuotaGaveBack", said)
        self._events.say(_about(pod), "Normal", "QuotaTookBack", f"pod {victim.key} was {said}")


def _workload(pod: Pod) -> Hashable:
    """What the pod is one of: who is made again, or is as many, has nobody else end for each of them."""
    if pod.controller is not None:
        return pod.namespace, pod.controller.uid
    return pod.namespace, pod.priority, tuple(sorted(pod.requests.items()))


def _about(pod: Pod) -> Regarding:
    return Regarding("v1", "Pod", pod.namespace, pod.name, pod.uid)


def _amounts(victim: Pod, pod: Pod) -> str:
    names = [name for name in sorted(victim.requests) if name in pod.requests and name != "pods"]
    return ", ".join(f"{render(name, victim.requests[name])} {name}" for name in names)
