"""The writer of a node's NodeQoS against an API server in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from adapters.api import NODE_QOS, NODES, APIError, NotFound, Page, Unreachable
from adapters.memory import MemoryAPI
from agent.report.pacing import ASSUMED_NODES, RATE
from agent.report.writer import ReportWriter
from qos.cluster.node_report import NodeReport, PolicyState

REPORT = NodeReport("0.1.0", "6.12.0", "v2", "containerd 2.1.4")


class World:
    """An API server, a node, a writer; time goes on only while the writer sleeps."""

    def __init__(self, nodes: int = 1, api: MemoryAPI | None = None) -> None:
        self.api = api or MemoryAPI()
        self.now = 0.0
        self.until = 0.0
        self._awake = asyncio.Event()
        for number in range(nodes):
            self.api.put(NODES, {"metadata": {"name": f"n{number}"}})
        self.writer = self.make()

    def make(self) -> ReportWriter:
        self.registry = CollectorRegistry()
        return ReportWriter(
            self.api,
            "n0",
            registry=self.registry,
            clock=lambda: self.now,
            wall=lambda: 1_790_000_000.0 + self.now,
            jitter=lambda: 0.5,
            sleep=self._sleep,
        )

    async def _sleep(self, seconds: float) -> None:
        while self.now + seconds > self.until:
            self._awake.clear()
            await self._awake.wait()
        self.now += seconds

    async def run_for(self, seconds: float) -> None:
        """Let time go on, until the writer sleeps again."""
        self.until += seconds
        self._awake.set()
        for _ in range(50 + int(10 * seconds)):
            await asyncio.sleep(0)

    def object(self) -> dict[str, Any]:
        return self.api.get_object(NODE_QOS, "", "n0")

    def writes(self) -> list[str]:
        return [verb for verb, what, _ in self.api.calls if what == NODE_QOS and verb in ("create", "patch")]

    def counted(self, outcome: str) -> float:
        return self.registry.get_sample_value("j10ce_agent_report_writes_total", {"outcome": outcome}) or 0.0


@asynccontextmanager
async def at_work(world: World) -> AsyncIterator[World]:
    task = asyncio.create_task(world.writer.run())
    try:
        yield world
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_it_is_made_with_its_node_as_owner_then_its_status_is_written() -> None:
    async with at_work(World()) as world:
        world.writer.offer(REPORT)
        await world.run_for(10)
        made = world.object()
        node = world.api.get_object(NODES, "", "n0")["metadata"]["uid"]
        assert made["metadata"]["ownerReferences"] == [
            {"apiVersion": "v1", "kind": "Node", "name": "n0", "uid": node}
        ]
        assert made["status"]["kernelVersion"] == "6.12.0"
        assert world.writes() == ["create", "patch"]
        assert (world.counted("created"), world.counted("written")) == (1, 1)


async def test_only_changes_are_written() -> None:
    async with at_work(World()) as world:
        world.writer.offer(REPORT)
        await world.run_for(200)
        assert len(world.writes()) == 2
        world.writer.offer(replace(REPORT, policies=(PolicyState("a/b", "u", 1, 1, 0),)))
        await world.run_for(2)
        assert world.object()["status"]["policies"] == [
            {"policy": "a/b", "uid": "u", "pods": 1, "applied": 1, "verified": 0, "deficitSeconds": 0}
        ]
        assert len(world.writes()) == 3


async def test_an_agent_that_restarts_goes_on_with_what_is_there() -> None:
    async with at_work(World()) as world:
        world.writer.offer(replace(REPORT, not_ready="starting"))
        await world.run_for(10)
    since = {one["type"]: one["lastTransitionTime"] for one in world.object()["status"]["conditions"]}
    world.writer = world.make()
    async with at_work(world):
        world.writer.offer(REPORT)
        await world.run_for(100)
    now = {one["type"]: one["lastTransitionTime"] for one in world.object()["status"]["conditions"]}
    assert now["Applied"] == since["Applied"]
    assert now["Ready"] != since["Ready"]
    assert world.writes().count("create") == 1


async def test_it_is_made_again_when_it_was_deleted() -> None:
    async with at_work(World()) as world:
        world.writer.offer(REPORT)
        await world.run_for(10)
        world.api.remove(NODE_QOS, "", "n0")
        world.writer.offer(replace(REPORT, fights=1))
        await world.run_for(10)
        assert world.object()["status"]["drift"]["fights"] == 1
        assert world.counted("gone") == 1


@pytest.mark.parametrize("error", [Unreachable("refused"), NotFound(404, "NotFound", "no such node")])
async def test_it_tries_again_at_its_next_moment(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.api.fail("create", times=3, error=error)
    async with at_work(world):
        world.writer.offer(REPORT)
        await world.run_for(20)
        assert world.object()["status"]["kernelVersion"] == "6.12.0"
        assert world.writes() == ["create"] * 4 + ["patch"]
    assert caplog.text.count("report not written") == 1, "the same words are logged once"


async def test_in_a_large_cluster_it_takes_its_time() -> None:
    async with at_work(World(nodes=300)) as world:
        world.writer.offer(REPORT)
        await world.run_for(4.9)
        assert world.writes() == []
        await world.run_for(0.2)
        assert world.writes() == ["create"]
        await world.run_for(10)
        assert world.writes() == ["create", "patch"]


class SaysNotHowMany(MemoryAPI):
    """An API server that leaves remainingItemCount out, as it may."""

    async def list_page(self, *args: Any, **kwargs: Any) -> Page:
        return replace(await super().list_page(*args, **kwargs), remaining=None)


async def test_nodes_are_counted_at_the_next_moment_where_nobody_answered() -> None:
    """Else a node that starts in an outage reports seldom for half an hour."""
    world = World()
    world.api.fail("list_page", times=1, error=Unreachable("refused"))
    async with at_work(world):
        world.writer.offer(REPORT)
        await world.run_for(ASSUMED_NODES / RATE + 10)
        assert world.writes() == ["create", "patch"]


@pytest.mark.parametrize("how", ["refused", "not said"])
async def test_uncounted_nodes_count_as_many(how: str) -> None:
    world = World(api=SaysNotHowMany() if how == "not said" else MemoryAPI())
    if how == "refused":
        world.api.fail("list_page", times=1, error=APIError(403, "Forbidden", "not yours"))
    async with at_work(world):
        world.writer.offer(REPORT)
        await world.run_for(80)
        assert world.writes() == []
