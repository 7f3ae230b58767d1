"""Keeps what pods say of their slots true: slots come free, policies are made, scaled and taken away later.

A pod's Binding says whether it fills a slot. Here the leader corrects what has changed since, a pod at a
time: nodes give floors by it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from adapters.api import PODS, APIError, ClusterAPI, NotFound, Unreachable
from adapters.pace import Pace
from extender.metrics import Metrics
from ledger.demands import NO_SLOT
from ledger.ledger import Ledger
from ledger.seats import Untrue
from qos import keys
from qos.cluster.objects import Pod

log = logging.getLogger(__name__)

PER_SECOND: Final = 20
"""A policy over ten thousand pods that run already takes eight minutes, and the API server hardly notices."""
TAKE_SECONDS: Final = 60.0
"""Before a pod loses its floor: in a scale-down the workload is smaller first, and Kubernetes then chooses
which pods to delete, some 20 a second.
"""


class SlotMarks:
    """Patches the annotation of pods that fill a slot, or no longer do; at most 20 a second.

    take_seconds: for so long a pod must have been beyond the slots before its floor is taken.
    """

    def __init__(
        self,
        api: ClusterAPI,
        ledger: Ledger,
        metrics: Metrics,
        *,
        clock: Callable[[], float],
        take_seconds: float = TAKE_SECONDS,
    ) -> None:
        self._api = api
        self._ledger = ledger
        self._metrics = metrics
        self._clock, self._take_seconds = clock, take_seconds
        self._pace = Pace(PER_SECOND, PER_SECOND, clock)
        self._wanted: dict[str, dict[str, tuple[Pod, str]]] = {}
        """By policy and UID: what is to be written."""
        self._later: dict[str, dict[str, tuple[Pod, float]]] = {}
        """Likewise: who is to lose its floor, and when."""

    async def run_once(self) -> None:
        """Look at the policies that changed, and correct what the rate allows now; the rest stays queued.

        Policies take turns, a pod each. It ends with the first pod that got no answer, which then comes last.
        """
        for found in self._ledger.gather_untrue():
            await asyncio.sleep(0)
            if found is not None:
                self._note(found)
        for policy in list(self._later):
            self._let_go(policy)
            await asyncio.sleep(0)
        while self._wanted:
            policy, queue = next(iter(self._wanted.items()))
            uid, (pod, value) = next(iter(queue.items()))
            if self._ledger.policy_of(pod) != policy:
                await asyncio.sleep(0)  # by now the pod is another policy's, or nobody's
                self._end_turn(policy, uid)
                continue
            if not self._pace.take():
                return
            answered = await self._mark(pod, value)
            self._end_turn(policy, uid)
            if not answered:
                # Behind all others: it may be this pod alone that the API server cannot answer for.
                self._wanted.setdefault(policy, {})[uid] = pod, value
                return

    def _note(self, found: Untrue) -> None:
        """Queue what is not true of a policy, in place of what was: a floor is given at once, taken later."""
        earlier, waiting = self._wanted.get(found.policy, {}), self._later.pop(found.policy, {})
        now: dict[str, tuple[Pod, str]] = {}
        later: dict[str, tuple[Pod, float]] = {}
        due = self._clock() + self._take_seconds
        for pod, value in found.wanted:
            if value != NO_SLOT or earlier.get(pod.uid, (pod, None))[1] == NO_SLOT:
                now[pod.uid] = pod, value
            else:
                later[pod.uid] = pod, waiting[pod.uid][1] if pod.uid in waiting else due
        if later:
            self._later[found.policy] = later
        if now:
            self._wanted[found.policy] = now
        else:
            self._wanted.pop(found.policy, None)

    def _let_go(self, policy: str) -> None:
        """Who has been beyond the slots of a policy for long enough loses its floor."""
        later, now = self._later[policy], self._clock()
        due = {uid: (pod, NO_SLOT) for uid, (pod, when) in later.items() if when <= now}
        if due:
            self._wanted.setdefault(policy, {}).update(due)
        self._later[policy] = {uid: one for uid, one in later.items() if uid not in due}
        if not self._later[policy]:
            del self._later[policy]

    def _end_turn(self, policy: str, uid: str) -> None:
        """Done with this pod; the policy's next has its turn after those of all other policies."""
        queue = self._wanted.pop(policy)
        del queue[uid]
        if queue:
            self._wanted[policy] = queue

    async def _mark(self, pod: Pod, value: str) -> bool:
        """False when the API server did not answer: it is to be tried again."""
        # The UID is a precondition: a pod of the same name is another pod.
        body = {"metadata": {"uid": pod.uid, "annotations": {keys.POLICY_ANNOTATION: value}}}
        try:
            await self._api.patch(PODS, pod.namespace, pod.name, body)
        except NotFound:
            self._metrics.slot_mark("gone")
        except APIError as error:
            self._metrics.slot_mark("failed")
            log.warning("pod not marked pod=%s slot=%r error=%s", pod.key, value, error)
        except Unreachable as error:
            self._metrics.slot_mark("failed")
            log.info("pod not marked yet pod=%s slot=%r error=%s", pod.key, value, error)
            return False
        else:
            self._metrics.slot_mark("taken" if value else "freed")
        return True
