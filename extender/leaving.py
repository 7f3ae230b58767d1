"""What a program that kept placeholders left, taken away by one in mode Observe: it is in nobody's way."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from adapters.api import PODS, APIError, ClusterAPI, Unreachable
from adapters.kubernetes import placeholders
from adapters.loops import Changes
from adapters.pace import Turns
from extender.deleting import delete
from extender.giving import without_a_place
from extender.metrics import Metrics
from extender.placeholders import AT_ONCE, PER_SECOND
from extender.repeated import refused
from extender.standing import Gated, Standing
from qos.cluster.placeholders import Placeholder
from qos.cluster.refusals import Refusals

log = logging.getLogger(__name__)

_A_ROUND: Final = 100
_TRIES: Final = 3
"""After so many that failed nobody waits for a placeholder to go."""


class Leaving:
    """Deletes placeholders, then lifts gates: whoever comes first would evict others beside a placeholder.

    What fails comes last, and what is refused pauses. Those that cannot be deleted keep no gate from being
    lifted.

    `namespace`: of placeholders. `changes` tells of both. `clock`: seconds, monotonic.
    """

    def __init__(
        self,
        api: ClusterAPI,
        standing: Standing,
        metrics: Metrics,
        changes: Changes,
        *,
        namespace: str,
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._standing = standing
        self._metrics = metrics
        self._changes = changes
        self._namespace = namespace
        self._clock = clock
        self._turns = Turns(PER_SECOND, AT_ONCE, clock, asyncio.sleep)
        self._failed = Counter[str]()
        """By UID: how often a call failed."""
        self._refused = Refusals()
        """By UID: the API server refuses its call."""

    async def run_once(self) -> None:
        """Wait for a change, and take away what is there; where that fails, a later call goes on."""
        await self._changes.wait()
        there = {one.uid: one for one in self._there()}
        self._forget({*there, *self._standing.gated})
        await asyncio.gather(*(self._delete(there[uid]) for uid in self._next(there)))
        if all(self._failed[one.uid] >= _TRIES for one in self._there()):
            gated = dict(self._standing.gated)
            await asyncio.gather(*(self._lift(gated[uid]) for uid in self._next(gated)))

    def _forget(self, present: set[str]) -> None:
        self._refused.forget(self._clock())
        self._failed = Counter({uid: tries for uid, tries in self._failed.items() if uid in present})

    def _there(self) -> list[Placeholder]:
        policies = self._standing.policies()
        there = [one for policy in policies for one in self._standing.of(policy)]
        return [*there, *self._standing.ended.values()]

    def _next(self, uids: Iterable[str]) -> list[str]:
        """Those whose turn it is: what failed least comes first."""
        now = self._clock()
        due = [uid for uid in uids if not self._refused.bars(uid, now)]
        return sorted(due, key=lambda uid: self._failed[uid])[:_A_ROUND]

    def _note(self, uid: str, error: APIError | Unreachable) -> None:
        if refused(error):
            self._refused.note(uid, "refused", self._clock())
            self._failed[uid] = max(_TRIES, self._failed[uid] + 1)
        else:
            self._failed[uid] += 1

    async def _delete(self, one: Placeholder) -> None:
        async with self._turns.turn():
            try:
                stays = await delete(self._api, self._namespace, one)
            except (APIError, Unreachable) as error:
                log.warning("placeholder not deleted name=%s error=%s", one.name, error)
                self._note(one.uid, error)
                return
        if stays is not None:
            self._standing.stays(stays)
            return
        self._standing.drop(one.uid)
        self._standing.ended.pop(one.uid, None)
        self._metrics.placeholder("deleted")

    async def _lift(self, one: Gated) -> None:
        async with self._turns.turn():
            error = await without_a_place(self._ungate(one), one, self._standing, self._metrics)
        if error is not None:
            self._note(one.pod.uid, error)

    async def _ungate(self, one: Gated) -> None:
        body = placeholders.ungated(one.pod.uid, one.gates, {})
        await self._api.patch(PODS, one.pod.namespace, one.pod.name, body)
