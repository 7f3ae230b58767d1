"""What a program that kept placeholders left, taken away by one in mode Observe: it is in nobody's way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from adapters.api import PODS, APIError, ClusterAPI, Unreachable
from adapters.kubernetes import placeholders
from adapters.loops import Changes
from adapters.pace import Turns
from extender.deleting import delete
from extender.giving import without_a_place
from extender.metrics import Metrics
from extender.placeholders import AT_ONCE, PER_SECOND
from extender.standing import Gated, Standing
from qos.cluster.placeholders import Placeholder

log = logging.getLogger(__name__)

_A_ROUND: Final = 100


class Leaving:
    """Deletes placeholders, then lifts gates: whoever comes first would evict others beside a placeholder.

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
        self._turns = Turns(PER_SECOND, AT_ONCE, clock, asyncio.sleep)

    async def run_once(self) -> None:
        """Wait for a change, and take away what is there; where that fails, a later call goes on."""
        await self._changes.wait()
        policies = self._standing.policies()
        there = [one for policy in policies for one in self._standing.of(policy)]
        there += self._standing.ended.values()
        await asyncio.gather(*(self._delete(one) for one in there[:_A_ROUND]))
        if not there:
            gated = [*self._standing.gated.values()][:_A_ROUND]
            await asyncio.gather(*(self._lift(one) for one in gated))

    async def _delete(self, one: Placeholder) -> None:
        async with self._turns.turn():
            try:
                stays = await delete(self._api, self._namespace, one)
            except (APIError, Unreachable) as error:
                log.warning("placeholder not deleted name=%s error=%s", one.name, error)
                return
        if stays is not None:
            self._standing.stays(stays)
            return
        self._standing.drop(one.uid)
        self._standing.ended.pop(one.uid, None)
        self._metrics.placeholder("deleted")

    async def _lift(self, one: Gated) -> None:
        async with self._turns.turn():
            await without_a_place(self._ungate(one), one, self._standing, self._metrics)

    async def _ungate(self, one: Gated) -> None:
        body = placeholders.ungated(one.pod.uid, one.gates, {})
        await self._api.patch(PODS, one.pod.namespace, one.pod.name, body)
