"""Wakes pods that filter refused and that would pass now (trap T21).

Nothing of ours moves kube-scheduler to try a pod again: not a change of a policy, nor a hold that went
elsewhere. An annotation on the pod itself does. This runs where filter is called, leader or not: only this
ledger knows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter
from typing import Final

from adapters.api import PODS, APIError, ClusterAPI, NotFound, Unreachable
from adapters.loops import last_of
from adapters.pace import Pace
from extender.metrics import Metrics
from ledger.ledger import Ledger
from qos import keys
from qos.cluster.objects import Pod

log = logging.getLogger(__name__)

PER_SECOND: Final = 50
AT_ONCE: Final = 8
"""One after the other would be five pods a second where the API server takes 0.2 s for an answer."""
SHARE: Final = 0.05
"""The part of the time that looking for pods to wake may take: in a full cluster where thousands wait it is
work.
"""
POD_SECONDS: Final = 1.0
"""kube-scheduler backs off a second at least: waking a pod more often does nothing."""


class Waker:
    """Patches the annotation (its value: `wall`), at most 50 pods a second and eight at once.

    Each pod at most once a second. `told`: who else is to know which pods the ledger has room for.
    """

    def __init__(
        self,
        api: ClusterAPI,
        ledger: Ledger,
        metrics: Metrics,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        told: Callable[[Iterable[Pod]], None] = lambda _pods: None,
        timer: Callable[[], float] = perf_counter,
    ) -> None:
        self._api = api
        self._ledger = ledger
        self._metrics = metrics
        self._clock, self._wall = clock, wall
        self._timer = timer
        self._told = told
        self._look_again = 0.0
        self._pace = Pace(PER_SECOND, PER_SECOND, clock)
        self._queue: dict[str, Pod] = {}
        self._woken: dict[str, float] = {}

    def add(self, pods: Iterable[Pod]) -> None:
        """Queue these pods to be woken, too."""
        self._queue.update((pod.uid, pod) for pod in pods)

    @property
    def due(self) -> bool:
        """Whether there is something to do, but for what time alone brings; the ledger takes the time."""
        return self._ledger.may_wake(self._clock()) or bool(self._queue)

    async def run_once(self) -> None:
        """Wake what the rate allows now; the rest stays queued."""
        await self._look()
        now = self._clock()
        self._woken = {uid: at for uid, at in self._woken.items() if now - at < POD_SECONDS}
        due = [uid for uid in self._queue if uid not in self._woken]
        turns = iter(due)
        await asyncio.gather(*(self._wake_in_turn(turns) for _ in due[:AT_ONCE]))

    async def _wake_in_turn(self, uids: Iterator[str]) -> None:
        for uid in uids:
            if not self._pace.take():
                return
            pod = self._queue.pop(uid)
            if self._still_waits(pod):
                self._woken[uid] = self._clock()
                await self._wake(pod)

    async def _look(self) -> None:
        """Ask the ledger, which needs time for it that the verbs then do not have."""
        started = self._timer()
        if started < self._look_again:
            return
        found = await last_of(self._ledger.gather_waiting(self._clock()))
        self.add(found)
        self._told(found)
        ended = self._timer()
        self._look_again = ended + (ended - started) / SHARE

    def _still_waits(self, pod: Pod) -> bool:
        now = self._ledger.known(pod.uid)
        if now is None:  # filter may have refused it before our watch shows it
            return not self._ledger.gone(pod.uid)
        return not now.node_name and not now.deleting

    async def _wake(self, pod: Pod) -> None:
        # The UID is a precondition: a pod of the same name is another pod.
        body = {"metadata": {"uid": pod.uid, "annotations": {keys.WAKE_ANNOTATION: f"{self._wall():.3f}"}}}
        try:
            await self._api.patch(PODS, pod.namespace, pod.name, body)
        except NotFound:
            self._metrics.wake("gone")
        except APIError as error:
            self._metrics.wake("failed")
            log.info("pod not woken pod=%s error=%s", pod.key, error)
        except Unreachable as error:
            self._metrics.wake("failed")
            self._queue.setdefault(pod.uid, pod)
            log.info("pod not woken yet pod=%s error=%s", pod.key, error)
        else:
            self._metrics.wake("woken")
