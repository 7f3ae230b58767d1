"""Gives owners the places of placeholders: nominates the owner, deletes the placeholder, lifts the gate.

In this order each watch shows it, so nobody else fits in between, and nobody is evicted. On one node one
after the other: an owner that is tried beside another one's nomination and placeholder does not fit, and
preempts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from adapters.api import PODS, APIError, ClusterAPI, Conflict, NotFound, Unreachable
from adapters.kubernetes import placeholders
from adapters.loops import Changes
from extender.metrics import Metrics
from extender.standing import Gated, Standing
from ledger.ledger import Ledger
from qos import keys
from qos.cluster.objects import Pod
from qos.cluster.placeholders import Placeholder

log = logging.getLogger(__name__)

AT_ONCE: Final = 16
PATIENCE_SECONDS: Final = 10.0
"""How long an owner may take from the hand-over to its node before its slot is held anew."""
RETRY_SECONDS: Final = 0.5
BOUND_SECONDS: Final = 1.0
"""How long the next hand-over on a node, or to an owner without a gate, waits for the one before."""
_MOST_TRIES: Final = 3


@dataclass(slots=True)
class _Try:
    """A hand-over that failed: how often, and when it may be tried again."""

    failed: int = 0
    due: float = 0.0


class HandOver:
    """Hands placeholders over to owners that are gated, or that kube-scheduler refused; 16 at once.

    `changes` tells of gated pods. `clock`: seconds, monotonic.
    """

    def __init__(
        self,
        api: ClusterAPI,
        ledger: Ledger,
        standing: Standing,
        metrics: Metrics,
        changes: Changes,
        *,
        namespace: str,
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._ledger = ledger
        self._standing = standing
        self._metrics = metrics
        self._changes = changes
        self._namespace = namespace
        self._clock = clock
        self._places = asyncio.Semaphore(AT_ONCE)
        self._ungated = asyncio.Lock()
        self._refused: dict[str, Gated] = {}
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._last: dict[str, asyncio.Task[None]] = {}
        """By node."""
        self._tries: dict[str, _Try] = {}
        self._handed: dict[str, float] = {}

    def add(self, pod: Pod) -> bool:
        """An owner that kube-scheduler refused; False when its policy has nothing to hand over."""
        if pod.uid in self._handed or pod.uid in self._under_way:
            return True
        if not self._free(self._ledger.policy_of(pod)):
            return False
        self._refused[pod.uid] = Gated(pod, ())
        self._changes.note()
        return True

    async def run_once(self) -> None:
        """Wait for a change, begin what is due, and release what came to nothing."""
        await self._changes.wait()
        self._release_late()
        waiting = {**self._refused, **self._standing.gated}
        self._refused.clear()
        self._tries = {uid: tried for uid, tried in self._tries.items() if uid in waiting}
        for uid, one in waiting.items():
            alone = set(one.gates) <= {keys.HAND_OVER_GATE}
            due = self._tries[uid].due <= self._clock() if uid in self._tries else True
            if alone and due and uid not in self._under_way and uid not in self._handed:
                self._under_way[uid] = asyncio.create_task(self._hand_over(one))

    async def drain(self) -> None:
        """Finish what is under way."""
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    def _release_late(self) -> None:
        """Owners that did not come to a node: their slots are held anew, or they are gone."""
        due = self._clock() - PATIENCE_SECONDS
        for uid, since in [*self._handed.items()]:
            pod = self._ledger.known(uid)
            if pod is None or pod.node_name:
                del self._handed[uid]
            elif since <= due:
                del self._handed[uid]
                self._ledger.release(uid)

    def _free(self, policy: str) -> list[Placeholder]:
        return [one for one in self._standing.of(policy) if one.bound] if policy else []

    async def _hand_over(self, one: Gated) -> None:
        try:
            # Without a gate kube-scheduler tries an owner whenever a placeholder goes, and an attempt that
            # fails takes its nomination back: so the next one waits for it.
            async with contextlib.nullcontext() if one.gates else self._ungated:
                await self._to_a_node(one)
        except Exception:
            log.exception("hand-over failed pod=%s", one.pod.key)
            self._metrics.handed_over("failed")
        finally:
            del self._under_way[one.pod.uid]
            self._changes.note()

    async def _to_a_node(self, one: Gated) -> None:
        uid, tried = one.pod.uid, self._tries.get(one.pod.uid, _Try())
        # After some attempts that failed the gate is lifted all the same: owners preempt then.
        given = self._choose(one.pod) if tried.failed < _MOST_TRIES else None
        if given is None:
            async with self._places:
                await self._try(one, tried, None)
            return
        task, before = self._under_way[uid], self._last.get(given.node)
        self._last[given.node] = task
        try:
            if before is not None:
                await asyncio.wait([before])
            with self._standing.bound(uid) as bound:
                async with self._places:
                    await self._try(one, tried, given)
                if uid in self._handed:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(bound.wait(), BOUND_SECONDS)
        finally:
            if self._last.get(given.node) is task:  # gone when all are cancelled at once
                del self._last[given.node]

    async def _try(self, one: Gated, tried: _Try, given: Placeholder | None) -> None:
        pod = one.pod
        annotations: Mapping[str, str] = {}
        try:
            if given is not None:
                annotations = {keys.POLICY_ANNOTATION: given.policy}
                status = {"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": given.node}}
                await self._api.patch(PODS, pod.namespace, pod.name, status, subresource="status")
                await self._let_go(given)
            if one.gates:
                lifted = placeholders.ungated(pod.uid, one.gates, annotations)
                await self._api.patch(PODS, pod.namespace, pod.name, lifted)
        except (NotFound, Conflict):
            self._end(pod, given, "gone", came=False)
        except (APIError, Unreachable) as error:
            log.warning("hand-over failed pod=%s error=%s", pod.key, error)
            self._tries[pod.uid] = _Try(tried.failed + 1, self._clock() + RETRY_SECONDS)
            self._end(pod, given, "failed", came=False)
        else:
            self._tries.pop(pod.uid, None)
            self._standing.gated.pop(pod.uid, None)
            self._end(pod, given, "handed" if given else "none", came=given is not None)

    def _choose(self, pod: Pod) -> Placeholder | None:
        """The placeholder whose place the owner gets, by the ledger, which claims it for the owner."""
        free = self._free(self._ledger.policy_of(pod))
        if not free:
            return None
        now = self._clock()
        by_node = {one.node: one for one in free}
        found = self._ledger.filter(pod, [*by_node], now).nodes
        if not found:
            return None
        chosen = by_node[found[0]]
        if self._ledger.bind(pod, chosen.node, now).refusal:
            return None
        self._standing.give(chosen)
        return chosen

    async def _let_go(self, given: Placeholder) -> None:
        with contextlib.suppress(NotFound, Conflict):  # somebody else was quicker: the place is free
            await self._api.delete(PODS, self._namespace, given.name, uid=given.uid)
        self._standing.drop(given.uid)

    def _end(self, pod: Pod, given: Placeholder | None, outcome: str, *, came: bool) -> None:
        self._metrics.handed_over(outcome)
        if came:
            self._handed[pod.uid] = self._clock()
        elif given is not None:
            self._ledger.release(pod.uid)
            self._standing.take_back(given)
