"""Writes this node's NodeQoS: the latest report, when the pacing allows it, one write a moment."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter

from adapters.api import NODE_QOS, NODES, APIError, ClusterAPI, Conflict, NotFound, Unreachable
from adapters.kubernetes import node_qos
from adapters.kubernetes.wire import DecodeError
from agent.report.pacing import Pacing
from qos.cluster.node_report import NodeReport

log = logging.getLogger(__name__)

COUNT_SECONDS: Final = 1800.0
"""Between two looks at how many nodes there are."""


class ReportWriter:
    """Keeps one NodeQoS as the newest report says; its owner is the Node, so it goes with it.

    `clock`: monotonic, `wall`: since the epoch, for what is written. Needs: get, list nodes; get, create
    nodeqoses; patch nodeqoses/status. Nothing of what the API server does ends run().
    """

    def __init__(
        self,
        api: ClusterAPI,
        node: str,
        *,
        registry: CollectorRegistry,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        jitter: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._api = api
        self._node = node
        self._clock, self._wall, self._sleep = clock, wall, sleep
        self._offered: NodeReport | None = None
        self._conditions: list[Mapping[str, Any]] | None = None
        self._pacing = Pacing(clock(), jitter)
        self._counted = float("-inf")
        self._failure = ""
        self._writes = Counter(
            "j10ce_agent_report_writes",
            "Writes of the node's NodeQoS by outcome: created, written, gone, failed.",
            ["outcome"],
            registry=registry,
        )

    def offer(self, report: NodeReport) -> None:
        """The node as it is now; the newest one counts. Cheap: nothing is compared before a moment comes."""
        self._offered = report

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._count()
            await self._sleep(max(0.0, self._pacing.next - self._clock()))
            await self._moment()

    async def _count(self) -> None:
        """Learn how many nodes there are, by a list of one; if nobody answers, at the next moment again."""
        now = self._clock()
        if now - self._counted < COUNT_SECONDS:
            return
        try:
            page = await self._api.list_page(NODES, limit=1)
        except Unreachable:  # what is to be written fails, too, and is logged
            return
        except APIError as error:
            self._counted = now
            log.info("nodes not counted error=%r interval_seconds=%.0f", str(error), self._pacing.interval)
            return
        self._counted = now
        if page.remaining is None:
            log.info("nodes not counted error=%r", "the API server does not say how many follow")
            return
        self._pacing.resize(len(page.items) + page.remaining, now)

    async def _moment(self) -> None:
        report, now = self._offered, self._clock()
        if report is None or not self._pacing.due(report, now):
            return
        try:
            outcome = await self._write(report, now)
        except NotFound as error:
            # Not there yet, or its Node was made anew: all of it is written again.
            self._conditions = None
            self._pacing.lost()
            self._failed("gone", error)
        except (APIError, Unreachable, DecodeError) as error:
            self._failed("failed", error)
        else:
            self._failure = ""
            self._writes.labels(outcome).inc()

    async def _write(self, report: NodeReport, now: float) -> str:
        """Make the object, or patch its status: one write, not both."""
        if self._conditions is None:
            try:
                raw = await self._api.get(NODE_QOS, "", self._node)
            except NotFound:
                await self._create()
                self._conditions = []
                return "created"
            self._conditions = node_qos.conditions_in(raw)
        status = node_qos.status_of(report, self._conditions, self._wall())
        await self._api.patch(NODE_QOS, "", self._node, {"status": status}, subresource="status")
        self._conditions = status["conditions"]
        self._pacing.wrote(report, now)
        return "written"

    async def _create(self) -> None:
        uid = node_qos.uid_in(await self._api.get(NODES, "", self._node))
        try:
            await self._api.create(NODE_QOS, "", node_qos.new(self._node, uid))
        except Conflict:
            log.info("nodeqos is there already node=%s", self._node)

    def _failed(self, outcome: str, error: Exception) -> None:
        """The next moment tries again; the same words are logged once."""
        self._writes.labels(outcome).inc()
        if str(error) != self._failure:
            self._failure = str(error)
            log.warning("report not written node=%s error=%r", self._node, self._failure)
