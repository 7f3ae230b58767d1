"""The calls by which a gang gets its places: all its pods are nominated, then all gates lifted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from adapters.api import PODS, APIError, ClusterAPI, NotFound, Unreachable
from adapters.kubernetes import gangs
from adapters.kubernetes.nomination import nomination
from extender.repeated import repeated
from qos.cluster.gangs import Member
from qos.cluster.objects import Pod

log = logging.getLogger(__name__)

AT_ONCE: Final = 16


class GangCalls:
    """At most 16 under way, of all gangs; each is made three times before it counts as failed."""

    def __init__(self, api: ClusterAPI) -> None:
        self._api = api
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def nominate(self, places: Mapping[str, tuple[Pod, str]]) -> bool:
        """Have kube-scheduler keep others of no higher priority from the nodes, by UID; True: all are.

        That is durable: who leads next finds the places.
        """
        return all(await self._all(self._nominate(pod, node) for pod, node in places.values()))

    async def dismiss(self, pods: Iterable[Pod]) -> None:
        """Take nominations back."""
        await self._all(self._nominate(pod, None) for pod in pods)

    async def lift(self, members: Iterable[Member]) -> bool:
        """Let kube-scheduler have them; True: it has all of them that are still there."""
        return all(await self._all(self._lift(one) for one in members))

    async def _all(self, calls: Iterable[Awaitable[bool]]) -> list[bool]:
        return list(await asyncio.gather(*calls))

    async def _nominate(self, pod: Pod, node: str | None) -> bool:
        body = nomination(pod.uid, node)
        return await self._made(
            "nominated",
            pod,
            lambda: self._api.patch(PODS, pod.namespace, pod.name, body, subresource="status"),
        )

    async def _lift(self, one: Member) -> bool:
        body = gangs.ungated(one)
        return await self._made(
            "let go", one.pod, lambda: self._api.patch(PODS, one.pod.namespace, one.pod.name, body), gone=True
        )

    async def _made(
        self, what: str, pod: Pod, call: Callable[[], Awaitable[object]], *, gone: bool = False
    ) -> bool:
        """gone: what to answer where the pod is not there any more."""
        async with self._turns:
            try:
                await repeated(call)
            except NotFound:
                return gone
            except (APIError, Unreachable) as error:
                log.warning("pod of a gang not %s pod=%s error=%s", what, pod.key, error)
                return False
        return True
