"""What a filter call costs over HTTP: the best and the middle of calls, as ratios to a bare ASGI echo.

Both servers run in processes of their own, the echo on uvicorn, one keep-alive connection each; their rounds
are interleaved, so that both see the same machine.
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
from benchmarks import clusters
from benchmarks.clusters import Size
from benchmarks.serving import Connection, process, read, respond
from extender.binder import Binder
from extender.metrics import Metrics
from extender.server import VerbsApp, verbs_server
from extender.verbs import Reply

PODS = 16
_NOTHING = b'{"NodeNames":[],"FailedNodes":{},"Error":""}'


async def echo(_: Any, receive: Any, send: Any) -> None:
    """No work: read the body, answer an empty result."""
    await read(receive)
    await respond(send, _NOTHING)


class BoundAtOnce(VerbsApp):
    """Between two calls the pod is bound, as it is in a cluster: its charge does not last."""

    def answer(self, method: str, path: str, body: bytes) -> Reply | Awaitable[Reply]:
        reply = super().answer(method, path, body)
        for number in range(PODS):
            self._ledger.settle(f"uid-POD-{number}")
        return reply


def serve(kind: str, size: Size, ports: Any) -> None:
    """Until the process is ended."""
    one: Serving = server(echo)
    if kind != "echo":
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


def measure(size: Size, counts: tuple[int, ...], rounds: int, calls: int) -> dict[str, float]:
    """For each count of names the ratio of the best calls, which noise disturbs least, and of the medians."""
    found = {}
    with process(serve, "echo", size) as bare_ports, process(serve, "filter", size) as ports:
        kinds = {"echo": Connection(bare_ports[0]), "filter": Connection(ports[0])}
        for count in counts:
            seconds = _seconds(kinds, _bodies(size, count), rounds, calls)
            for name, choose in (("", min), (", p50", statistics.median)):
                ratio = float(choose(seconds["filter"])) / float(choose(seconds["echo"]))
                found[f"filter by HTTP, {count} names{name} (x echo)"] = ratio
    return found


def _bodies(size: Size, count: int) -> list[bytes]:
    shown = clusters.node_names(size.nodes)
    random.Random(7).shuffle(shown)
    pods = [clusters.new_pod(f"POD-{number}", 0.5) for number in range(PODS)]
    return [orjson.dumps({"Pod": pod, "Nodes": None, "NodeNames": shown[:count]}) for pod in pods]


def _seconds(
    kinds: dict[str, Connection], bodies: list[bytes], rounds: int, calls: int
) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    for to in kinds.values():
        to.call("/filter", bodies[0])
    for _ in range(rounds):
        for kind, to in kinds.items():
            for number in range(calls):
                began = time.perf_counter()
                to.call("/filter", bodies[number % len(bodies)])
                seconds[kind].append(time.perf_counter() - began)
    return seconds
