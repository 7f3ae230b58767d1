"""How slots live on in their policy's status: what is to be written of who fills them, and what outlives.

The leader writes it, and the ledger follows what is written (extender.catalog): nothing is let go before.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from adapters.api import PODS, APIError, ClusterAPI, Unreachable
from adapters.kubernetes import decode
from ledger.ledger import Ledger
from qos.cluster.objects import Demand
from qos.cluster.policy import Policy
from qos.cluster.remembered import Life, Remembered, advance

log = logging.getLogger(__name__)

_PAGE: Final = 500


class Lives:
    """Advances what policies remember. Of pods that nobody has seen end, such as those of the time before a
    start, the API server is asked: a watch that lags shows none either.
    """

    def __init__(self, api: ClusterAPI, ledger: Ledger) -> None:
        self._api = api
        self._ledger = ledger
        self._ended: dict[str, frozenset[str]] = {}

    async def advanced(self, policy: Policy, demand: Demand, now: float) -> Remembered | None:
        """What is to be written; None: what is written stays. `now`: seconds since the epoch."""
        was = policy.remembered
        who = self._ledger.occupants(policy.key, was.fillers)
        if who is None:
            return None
        ended = self._ended.get(policy.key, frozenset()) & who.unsure
        if unsure := who.unsure - ended:
            ended |= await self._ended_among(policy.namespace, unsure)
            self._ended[policy.key] = ended
        elif not who.unsure:
            self._ended.pop(policy.key, None)
        life = Life(demand.asked or 0, policy.once, policy.delay)
        return advance(was, life, who.owners, who.left | ended, now)

    async def _ended_among(self, namespace: str, uids: Iterable[str]) -> frozenset[str]:
        """Which of these pods are not there, or have ended; none while that cannot be read."""
        there, token = set[str](), ""
        try:
            while True:
                page = await self._api.list_page(PODS, limit=_PAGE, continue_token=token, namespace=namespace)
                for pod in map(decode.pod, page.items):
                    if not pod.terminal:
                        there.add(pod.uid)
                token = page.continue_token
                if not token:
                    break
        except (APIError, Unreachable, decode.DecodeError) as error:
            log.info("pods not read namespace=%s error=%s", namespace, error)
            return frozenset()
        return frozenset(uids) - there

    def forget(self, key: str) -> None:
        """The policy is gone."""
        self._ended.pop(key, None)
