"""Settles pods that have been in flight for too long by a quorum read, never by a timer alone (trap T09)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from adapters.api import PODS, APIError, ClusterAPI, NotFound, Unreachable
from adapters.kubernetes import decode
from ledger.ledger import Ledger
from qos.cluster.objects import Pod

log = logging.getLogger(__name__)


class Expiry:
    """Looks up each pod that the ledger calls expired; not those that the binder `settles`.

    A read shows such a pod unbound while its Binding can still land.
    """

    def __init__(
        self, api: ClusterAPI, ledger: Ledger, *, settles: Callable[[str], bool], clock: Callable[[], float]
    ) -> None:
        self._api = api
        self._ledger = ledger
        self._settles = settles
        self._clock = clock

    async def run_once(self) -> None:
        """Settle what has expired; what cannot be read stays charged until the next call."""
        for pod in self._expired():
            try:
                await self._settle(pod)
            except (APIError, Unreachable, decode.DecodeError) as error:
                log.warning("pod in flight stays charged pod=%s error=%s", pod.key, error)

    async def _settle(self, pod: Pod) -> None:
        try:
            seen = decode.pod(await self._api.get(PODS, pod.namespace, pod.name))
        except NotFound:
            seen = None
        if not self._due(pod.uid):
            return  # the watch, a new answer or a bind was faster: what was read may be older than that
        if seen is None or seen.uid != pod.uid:
            self._ledger.remove_pod(pod.uid)
        elif seen.node_name:
            self._ledger.set_pod(seen)
        else:
            self._ledger.release(pod.uid)
            self._ledger.settle(pod.uid)
        log.info("pod in flight settled pod=%s", pod.key)

    def _due(self, uid: str) -> bool:
        return any(pod.uid == uid for pod in self._expired())

    def _expired(self) -> list[Pod]:
        return [pod for pod in self._ledger.expired(self._clock()) if not self._settles(pod.uid)]
