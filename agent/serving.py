"""The agent's HTTP: /metrics for Prometheus, /healthz and /readyz for kubelet."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

Problem = Callable[[], str]
"""Why not, or ""."""
Handler = Callable[[web.Request], Awaitable[web.Response]]


@contextlib.asynccontextmanager
async def serving(
    address: tuple[str, int], registry: CollectorRegistry, healthy: Problem, ready: Problem
) -> AsyncIterator[tuple[str, int]]:
    """Serve until the context ends; yields the address that is listened on (port 0: any free one).

    OSError where the address cannot be had.
    """
    app = web.Application()
    app.router.add_get("/metrics", _metrics(registry))
    app.router.add_get("/healthz", _state(healthy))
    app.router.add_get("/readyz", _state(ready))
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        host, port = address
        await web.TCPSite(runner, host or None, port).start()
        yield runner.addresses[0][0], runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _metrics(registry: CollectorRegistry) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return answer


def _state(problem: Problem) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        why = problem()
        return web.Response(status=503 if why else 200, text=f"{why or 'ok'}\n")

    return answer
