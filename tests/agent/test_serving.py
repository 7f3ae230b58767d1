"""The agent's HTTP, for real."""

from __future__ import annotations

import aiohttp
from prometheus_client import CollectorRegistry, Gauge

from agent.serving import serving


async def test_metrics_health_and_readiness() -> None:
    registry = CollectorRegistry()
    Gauge("j10ce_agent_test", "A test.", registry=registry).set(3)
    problem = "the first pass is not done"
    async with (
        serving(("127.0.0.1", 0), registry, lambda: "", lambda: problem) as (host, port),
        aiohttp.ClientSession(f"http://{host}:{port}") as session,
    ):
        async with session.get("/metrics") as answer:
            assert answer.status == 200
            assert "j10ce_agent_test 3.0" in await answer.text()
        async with session.get("/healthz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok\n")
        async with session.get("/readyz") as answer:
            assert (answer.status, await answer.text()) == (503, "the first pass is not done\n")
        problem = ""
        async with session.get("/readyz") as answer:
            assert answer.status == 200
