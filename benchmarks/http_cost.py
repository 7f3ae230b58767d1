"""What a filter call costs over HTTP: beside a Go extender with the same decision, and a bare ASGI echo.

Each server runs in a process of its own, one keep-alive connection each; their rounds are interleaved, so
that all see the same machine. A figure is the median over rounds of each round's median.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable
from typing import Any

import orjson
import uvloop

from adapters.serving.addresses import listen
from adapters.serving.readiness import Readiness
from adapters.serving.server import Serving, serve_until, server
from benchmarks import clusters, go_programs
from benchmarks.clusters import Size
from benchmarks.figures import measured
from benchmarks.serving import Connection, process, read, respond
from extender.binder import Binder
from extender.metrics import Metrics
from extender.server import VerbsApp, verbs_server
from extender.verbs import Reply

PODS = 16
ECHO, GO, OURS = "a bare ASGI echo", "the Go extender", "ours"
_NOTHING = b'{"NodeNames":[],"FailedNodes":{},"Error":""}'


async def echo(_: Any, receive: Any, send: Any) -> None:
    """No work: read the body, answer an empty result."""
    await read(receive)
    await respond(send, _NOTHING)


class BoundAtOnce(VerbsApp):
    """Between two calls the pod is bound, as it is in a cluster: its charge does not last."""

    def answer(self, method: str, path: str, body: bytes) -> Reply | Awaitable[Reply]:
        reply = super().answer(method, path, body)
        self._ledger.settle(next(iter(self._ledger._state.flights.by_uid), ""))
        return reply


def serve(kind: str, size: Size, ports: Any) -> None:
    """Until the process is ended."""
    one: Serving = server(echo)
    if kind != ECHO:
        readiness = Readiness({}, time.monotonic)
        readiness.open()
        metrics = Metrics()
        account = clusters.roomy(size)
        binder = Binder(
            None,  # type: ignore[arg-type]  # filter makes no calls
            account,
            metrics,
            identity="bench",
            deadline=1.0,
            clock=time.monotonic,
        )
        one = verbs_server(BoundAtOnce(account, binder, readiness, metrics, time.monotonic))
    opened = listen("127.0.0.1:0")
    ports.put([opened.getsockname()[1]])
    uvloop.run(serve_until(asyncio.Event(), [(one, opened)], draining=lambda: None))


def measure(size: Size, counts: tuple[int, ...], rounds: int, calls: int) -> dict[str, Any]:
    """For each count of names: p50 in microseconds, by that of the Go extender and by that of the echo."""
    found = {}
    with (
        process(serve, ECHO, size) as bare,
        process(serve, OURS, size) as ports,
        go_programs.floors(clusters.roomy(size)) as go,
    ):
        kinds = {ECHO: Connection(bare[0]), GO: Connection(go), OURS: Connection(ports[0])}
        for count in counts:
            took = _p50(kinds, _bodies(size, count), rounds, calls)
            for other, by in ((GO, "Go"), (ECHO, "echo")):
                name = f"filter p50 by HTTP, {count:,} names (x {by})"
                found[name] = measured(took[OURS], "us", took[other], other)
    return found


def _bodies(size: Size, count: int) -> list[bytes]:
    shown = clusters.node_names(size.nodes)
    random.Random(7).shuffle(shown)
    pods = [clusters.new_pod(f"POD-{number}", 0.5) for number in range(PODS)]
    return [orjson.dumps({"Pod": pod, "Nodes": None, "NodeNames": shown[:count]}) for pod in pods]


def _p50(kinds: dict[str, Connection], bodies: list[bytes], rounds: int, calls: int) -> dict[str, float]:
    """Microseconds; each kind's first call warms it up."""
    medians: dict[str, list[float]] = {kind: [] for kind in kinds}
    for to in kinds.values():
        to.call("/filter", bodies[0])
    for _ in range(rounds):
        for kind, to in kinds.items():
            seconds = []
            for number in range(calls):
                began = time.perf_counter()
                to.call("/filter", bodies[number % len(bodies)])
                seconds.append(time.perf_counter() - began)
            medians[kind].append(statistics.median(seconds))
    return {kind: 1e6 * statistics.median(values) for kind, values in medians.items()}
