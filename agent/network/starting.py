"""A pod's network is shaped before its first packet: the runtime waits for that, if not for long.

The runtime lets nothing else start on the node meanwhile, so it is kept only for pods whose traffic is shaped
otherwise than the node's own, and whatever goes wrong, the pod starts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from qos.bandwidth import Band
from qos.pods.traffic import Traffic

AT_MOST: Final = 0.4
"""Seconds that a pod's start waits; an answer to the runtime may take 0.5."""
SHAPED: Final = "shaped"
UNKEPT: Final = "unkept"
LATE: Final = "late"
FAILED: Final = "failed"
TOO_EARLY: Final = "too_early"
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4)

log = logging.getLogger(__name__)


def is_awaited(expected: Traffic) -> bool:
    """Whether a pod's first packets would harm somebody, or miss something, outside its class."""
    bounds = (expected.egress, expected.ingress)
    return expected.band is not Band.L0 or any(one.floor or one.limit is not None for one in bounds)


class Starts:
    """Waits for a round on behalf of pods that start, and counts what came of it.

    shaped: it was made in time. unkept: it was, and not all of the pod's is kept. late: it was not, and goes
    on. failed: it raised. too_early: none could be made yet, because this agent has only just started.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        at_most: float = AT_MOST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._at_most, self._clock = at_most, clock
        self._going: set[asyncio.Future[str]] = set()
        self._starts = Counter(
            "j10ce_agent_network_starts",
            "Pods with something of their own at the node's network that started, by what they waited for.",
            ["outcome"],
            registry=registry,
        )
        self._seconds = Histogram(
            "j10ce_agent_network_start_seconds",
            "How long the starts of such pods waited for their network.",
            buckets=_BUCKETS,
            registry=registry,
        )

    async def wait(self, uid: str, shape: Callable[[], Awaitable[str]]) -> None:
        """For the pod's round, which shape() makes and says the outcome of. Raises nothing."""
        began = self._clock()
        going = asyncio.ensure_future(shape())
        self._going.add(going)
        going.add_done_callback(self._done)
        await asyncio.wait({going}, timeout=self._at_most)
        took, outcome = self._clock() - began, _outcome(going)
        self._starts.labels(outcome).inc()
        self._seconds.observe(took)
        log.debug("network of a pod that starts uid=%s outcome=%s seconds=%.3f", uid, outcome, took)
        if outcome != SHAPED:
            why = going.exception() if outcome == FAILED else None
            log.warning("pod starts before its network is shaped uid=%s outcome=%s why=%r", uid, outcome, why)

    def _done(self, going: asyncio.Future[str]) -> None:
        self._going.discard(going)
        if not going.cancelled():
            going.exception()  # who waited has logged it; nobody is told twice


def _outcome(going: asyncio.Future[str]) -> str:
    if not going.done():
        return LATE
    if going.cancelled() or going.exception() is not None:
        return FAILED
    return going.result()
