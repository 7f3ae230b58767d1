"""The agent's HTTP: /metrics for Prometheus, /healthz and /readyz for kubelet.

/metrics names namespaces, policies and pods: by HTTP it is for the loopback alone, by HTTPS for those whose
token may read it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector

from adapters.kubernetes.reviews import Access
from agent.admission import listening

Refresh = Callable[[], Awaitable[None]]
"""Reads what a page shows and takes a while to read; awaited before each page."""
Problem = Callable[[], str]
"""Why not, or ""."""
Handler = Callable[[web.Request], Awaitable[web.Response]]
Asks = Callable[[str, str], Awaitable[Access]]
"""Whether the holder of a token may read /metrics; the other one is his address."""
METRICS: Final = "/metrics"
_ELSEWHERE: Final = (
    "/metrics names namespaces and pods: here it is for the loopback alone. Others take "
    "https://ADDRESS/metrics with a token, where --metrics-address serves it.\n"
)
_WHY: Final = {
    Access.UNKNOWN: "a bearer token that the API server knows is needed",
    Access.REFUSED: "this account may not `get` the nonResourceURL /metrics: bind j10ce-metrics-reader to it",
    Access.TOO_MANY: "too many unknown tokens: try again in some seconds",
    Access.NO_ANSWER: "the API server does not say who this is",
}


async def _nothing() -> None:
    """Everything is at hand."""


@contextlib.asynccontextmanager
async def serving(
    address: tuple[str, int],
    registry: CollectorRegistry,
    healthy: Problem,
    ready: Problem,
    refresh: Refresh = _nothing,
) -> AsyncIterator[tuple[str, int]]:
    """Serve until the context ends; yields the address that is listened on (port 0: any free one).

    OSError where the address cannot be had.
    """
    pages = {METRICS: _nearby(registry, refresh), "/healthz": _state(healthy), "/readyz": _state(ready)}
    async with _site(address, pages, None) as served:
        yield served


@contextlib.asynccontextmanager
async def serving_metrics(
    address: tuple[str, int],
    registry: CollectorRegistry,
    tls: ssl.SSLContext,
    asks: Asks,
    refresh: Refresh = _nothing,
) -> AsyncIterator[tuple[str, int]]:
    """Serve /metrics to those whose token may read it, as `serving` does the rest."""
    async with _site(address, {METRICS: _authorized(registry, asks, refresh)}, tls) as served:
        yield served


@contextlib.asynccontextmanager
async def _site(
    address: tuple[str, int], pages: dict[str, Handler], tls: ssl.SSLContext | None
) -> AsyncIterator[tuple[str, int]]:
    app = web.Application()
    for path, handler in pages.items():
        app.router.add_get(path, handler)
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    assert runner.server is not None
    try:
        async with listening(address, runner.server, tls) as served:
            yield served
    finally:
        await runner.cleanup()


async def _page(registry: CollectorRegistry, refresh: Refresh) -> web.Response:
    """Collected on the loop, which changes what is counted. The text takes four times as long: with 250 pods
    it would hold the loop for some 30 ms.
    """
    await refresh()
    collected = CollectorRegistry(auto_describe=False)
    collected.register(_Collected(tuple(registry.collect())))
    body = await asyncio.to_thread(generate_latest, collected)
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})


class _Collected(Collector):
    def __init__(self, metrics: tuple[Metric, ...]) -> None:
        self._metrics = metrics

    def collect(self) -> tuple[Metric, ...]:
        return self._metrics


def _nearby(registry: CollectorRegistry, refresh: Refresh) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        if not _is_loopback(request.remote):
            return web.Response(status=403, text=_ELSEWHERE)
        return await _page(registry, refresh)

    return answer


def _authorized(registry: CollectorRegistry, asks: Asks, refresh: Refresh) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        access = await asks(token.strip() if kind.lower() == "bearer" else "", request.remote or "")
        if access is Access.ALLOWED:
            return await _page(registry, refresh)
        headers = {"WWW-Authenticate": "Bearer"} if access is Access.UNKNOWN else {}
        return web.Response(status=access, text=f"{_WHY[access]}\n", headers=headers)

    return answer


def _is_loopback(peer: str | None) -> bool:
    """Whether a peer's address is this machine's own; IPv4 within IPv6 is IPv4."""
    if peer is None:
        return False
    address = ipaddress.ip_address(peer.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _state(problem: Problem) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        why = problem()
        return web.Response(status=503 if why else 200, text=f"{why or 'ok'}\n")

    return answer
