"""The calls by which an owner gets a place: nominate it, delete the placeholder, lift the gate."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from adapters.api import PODS, APIError, ClusterAPI, Conflict, NotFound, Unreachable
from adapters.kubernetes import placeholders
from adapters.kubernetes.nomination import nomination
from extender.metrics import Metrics
from extender.repeated import repeated
from extender.standing import Gated, Standing
from qos.cluster.objects import Pod
from qos.cluster.placeholders import Placeholder

log = logging.getLogger(__name__)

TOO_LATE: Final = frozenset({404, 409, 422})
"""What the API server answers to the nomination of a pod that is gone, is another one, or has its node."""


class Taken(Exception):  # noqa: N818 - it reads as what happened
    """The placeholder had gone already: its place may be somebody else's."""


class Stays(Exception):  # noqa: N818 - likewise
    """Nobody wants the placeholder gone any more: it stays, unless a call without an answer has ended it."""


class Giving:
    """Each call is made three times before its error is raised, one that is refused once: APIError,
    Unreachable.

    NotFound, Conflict of `nominate` and `lift`: the owner has gone. `holds_on`: how many holds of each policy
    lie on a node. `namespace`: of placeholders.
    """

    def __init__(
        self,
        api: ClusterAPI,
        standing: Standing,
        holds_on: Callable[[str], Mapping[str, int]],
        namespace: str,
    ) -> None:
        self._api = api
        self._standing = standing
        self._holds_on = holds_on
        self._namespace = namespace

    async def nominate(self, pod: Pod, node: str | None) -> None:
        """Have kube-scheduler keep others of no higher priority out of the place; None: no longer."""
        body = nomination(pod.uid, node)
        await repeated(lambda: self._api.patch(PODS, pod.namespace, pod.name, body, subresource="status"))

    async def clear(self, node: str, pod: Pod, *, comes: bool, given: Placeholder | None = None) -> None:
        """Have those go that stand by there and are above the owner; if it `comes` now, those of its own
        priority step aside as well, and those that are about to go, but for the one that is `given` to it: it
        does not fit beside them.

        Those of holds stay: there is room for them and the owner, and without them it is somebody else's.
        """
        gone = list[Placeholder]()
        async with self._standing.nominating[node]:
            try:
                while True:  # asked anew: one may be bound by now
                    there = self._standing.beyond(node, self._holds_on(node))
                    above = [one for one in there if one.priority > pod.priority]
                    beside = [one for one in there if one.nominated and one.priority == pod.priority]
                    going = [one for one in self._standing.going(node) if one != given]
                    going = [one for one in going if one.nominated and one.priority >= pod.priority]
                    aside = [*beside, *going] if comes else []
                    if not (above or aside):
                        break
                    gone += above
                    await asyncio.gather(
                        *(self._go(one) for one in above), *(self._step(one) for one in aside)
                    )
            finally:
                for one in gone:  # those that went are not there any more
                    self._standing.take_back(one)

    async def _go(self, one: Placeholder) -> None:
        self._standing.give(one)
        with suppress(Taken, Stays):
            await self.let_go(one, partial(self._standing.waits, one.uid))

    async def _step(self, one: Placeholder) -> None:
        body = nomination(one.uid, None)

        async def patch() -> None:
            try:
                await self._api.patch(PODS, self._namespace, one.name, body, subresource="status")
            except APIError as error:
                if error.status not in TOO_LATE:
                    raise

        await repeated(patch)
        self._standing.nominated(one, nominated=False)

    async def let_go(self, given: Placeholder, wanted: Callable[[], bool]) -> None:
        """Delete the placeholder. `wanted`: whether it is to go, asked before each try. Taken, Stays."""
        tried = 0

        async def delete() -> None:
            nonlocal tried
            if not wanted():
                raise Stays
            tried += 1
            try:
                await self._api.delete(PODS, self._namespace, given.name, uid=given.uid)
            except NotFound as error:
                if tried == 1:  # else it is our own call, whose answer was lost
                    raise Taken from error
            except Conflict as error:
                raise Taken from error

        try:
            await repeated(delete)
        except Taken as taken:
            if isinstance(taken.__cause__, NotFound):  # after a conflict the watch tells whether it is there
                self._standing.drop(given.uid)
            raise
        self._standing.drop(given.uid)

    async def lift(self, one: Gated, annotations: Mapping[str, str]) -> None:
        """Let kube-scheduler have the owner."""
        body = placeholders.ungated(one.pod.uid, one.gates, annotations)
        await repeated(lambda: self._api.patch(PODS, one.pod.namespace, one.pod.name, body))


async def without_a_place(
    lift: Awaitable[None], one: Gated, standing: Standing, metrics: Metrics
) -> APIError | Unreachable | None:
    """Await the call that lifts the gate of an owner that gets no place, and keep account of its outcome; its
    error while the owner is there, for the caller to wait before the next try.
    """
    try:
        await lift
    except (NotFound, Conflict):
        metrics.handed_over("gone")
    except (APIError, Unreachable) as error:
        log.warning("gate not lifted pod=%s error=%s", one.pod.key, error)
        metrics.handed_over("failed")
        return error
    else:
        standing.gated.pop(one.pod.uid, None)
        metrics.handed_over("none")
    return None
