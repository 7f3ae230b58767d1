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
from extender.metrics import Metrics
from extender.pace import Pace
from ledger.ledger import Ledger
from qos import keys
from qos.cluster.objects import Pod

log = logging.getLogger(__name__)

PER_SECOND: Final = 20
"""A policy over ten thousand pods that run already takes eight minutes, and the API server hardly notices."""


class SlotMarks:
    """Patches the annotation of pods that fill a slot, or no longer do; at most 20 a second."""

    def __init__(
        self, api: ClusterAPI, ledger: Ledger, metrics: Metrics, *, clock: Callable[[], float]
    ) -> None:
        self._api = api
        self._ledger = ledger
        self._metrics = metrics
        self._pace = Pace(PER_SECOND, PER_SECOND, clock)
        self._wanted: dict[str, dict[str, tuple[Pod, str]]] = {}

    async def run_once(self) -> None:
        """Look at the policies that changed, and correct what the rate allows now; the rest stays queued.

        Policies take turns, a pod each. It ends with the first pod that got no answer, which then comes last.
        """
        for found in self._ledger.gather_untrue():
            await asyncio.sleep(0)
            if found is None:
                continue
            if found.wanted:
                self._wanted[found.policy] = {pod.uid: (pod, value) for pod, value in found.wanted}
            else:
                self._wanted.pop(found.policy, None)
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
