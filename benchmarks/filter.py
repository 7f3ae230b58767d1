"""What a filter call costs: p50 at 500 and 5,000 names, as a ratio to a bare ASGI echo on the same server.

Both servers run in processes of their own on one uvicorn configuration, one keep-alive connection each; their
rounds are interleaved, so that both see the same machine. The ledger has 5,000 nodes, about 10 % with holds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import random
import socket
import statistics
import time
from collections.abc import Iterator
from typing import Any

import uvloop

from extender.binder import Binder
from extender.metrics import Metrics
from extender.readiness import Readiness
from extender.server import VerbsApp, listen, serve_until, server
from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos.cluster.objects import Demand, Node, Requirement, Selector

NODES = 5_000
SLOTS_A_NODE = 4
SIZES = (500, 5_000)
PODS = 16


def names(count: int) -> list[str]:
    """43 characters each, as a cloud provider's are."""
    return [f"ip-10-0-{i // 256:03d}-{i % 256:03d}.compute.example.internal" for i in range(count)]


def ledger() -> Ledger:
    """Nodes of 32 cores; holds on about a tenth of them."""
    account = Ledger(Mode.GUARD, cap_percent=100)
    for i, name in enumerate(names(NODES)):
        account.set_node(
            Node(name, f"uid-{i}", {"cpu": 32_000, "memory": 128 * 2**30, "pods": 110}, {"i": str(i % 10)})
        )
    selector = Selector((Requirement("app", "In", ("critical",)),))
    account.set_demand(
        Demand(
            "shop/critical",
            "shop",
            selector,
            {"cpu": 8_000, "memory": 4 * 2**30, "pods": 1},
            desired=NODES // 10 * SLOTS_A_NODE,
            max_slots_per_node=SLOTS_A_NODE,
        )
    )
    held = len(account.held_nodes())
    assert NODES * 0.05 < held < NODES * 0.2, f"{held} nodes with holds"
    return account


def pod(size: int = 4_500) -> dict[str, Any]:
    """A pod of about 4.5 KB, as an average one is."""
    resources = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
    body: dict[str, Any] = {
        "metadata": {"name": "batch-1", "namespace": "batch", "uid": "pod-uid", "labels": {"app": "batch"}},
        "spec": {
            "containers": [{"name": "main", "image": "batch:1", "resources": resources, "env": []}],
            "schedulerName": "default-scheduler",
            "priority": 0,
        },
        "status": {"phase": "Pending"},
    }
    env = body["spec"]["containers"][0]["env"]
    while len(json.dumps(body)) < size:
        env.append({"name": f"VARIABLE_{len(env)}", "value": f"value of variable {len(env)}"})
    return body


async def echo(_: Any, receive: Any, send: Any) -> None:
    """No work: read the body, answer an empty result."""
    while (await receive()).get("more_body"):
        pass
    body = b'{"NodeNames":[],"FailedNodes":{},"Error":""}'
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def bound_at_once(app: VerbsApp, account: Ledger) -> Any:
    """Between two calls the pod is bound, as it is in a cluster: its charge does not last."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)
        for number in range(PODS):
            account.settle(f"uid-{number}")

    return answer


def serve(kind: str, ports: Any) -> None:
    """A server in its own process; its port goes through the queue."""
    if kind == "echo":
        app: Any = echo
    else:
        readiness = Readiness({}, time.monotonic)
        readiness.open()
        metrics = Metrics()
        account = ledger()
        binder = Binder(
            None,  # type: ignore[arg-type]  # filter makes no calls
            account,
            metrics,
            identity="bench",
            deadline=1.0,
            clock=time.monotonic,
        )
        app = bound_at_once(VerbsApp(account, binder, readiness, metrics, time.monotonic), account)
    opened = listen("127.0.0.1:0")
    ports.put(opened.getsockname()[1])
    uvloop.run(serve_until(asyncio.Event(), [(server(app), opened)], draining=lambda: None))


class Connection:
    """A keep-alive connection with no more HTTP than it needs, so that the client costs little."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, body: bytes) -> float:
        """Seconds from the first byte sent to the last received."""
        request = b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        started = time.perf_counter()
        self._socket.sendall(request)
        answer = self._socket.recv(1 << 20)
        top, _, rest = answer.partition(b"\r\n\r\n")
        assert top.startswith(b"HTTP/1.1 200"), top
        missing = int(top.lower().partition(b"content-length: ")[2].split()[0]) - len(rest)
        while missing > 0:
            missing -= len(self._socket.recv(1 << 20))
        return time.perf_counter() - started


@contextlib.contextmanager
def connection(kind: str) -> Iterator[Connection]:
    """A server of that kind, and a connection to it."""
    context = multiprocessing.get_context("spawn")
    ports = context.Queue()
    process = context.Process(target=serve, args=(kind, ports), daemon=True)
    process.start()
    try:
        yield Connection(ports.get(timeout=60))
    finally:
        process.kill()
        process.join()


def measure(rounds: int, calls: int) -> list[dict[str, Any]]:
    """One row a size: medians in microseconds, and their ratio."""
    rows = []
    pods = [pod() for _ in range(PODS)]
    with connection("echo") as bare, connection("filter") as verbs:
        for size in SIZES:
            shown = names(NODES)
            random.Random(7).shuffle(shown)
            bodies = []
            for number, one in enumerate(pods):
                one["metadata"]["uid"] = f"uid-{number}"
                bodies.append(json.dumps({"Pod": one, "Nodes": None, "NodeNames": shown[:size]}).encode())
            seconds: dict[str, list[float]] = {"echo": [], "filter": []}
            for to in (bare, verbs):
                to.call(bodies[0])
            for _ in range(rounds):
                for kind, to in (("echo", bare), ("filter", verbs)):
                    seconds[kind] += [to.call(bodies[i % len(bodies)]) for i in range(calls)]
            rows.append({"names": size} | summary(seconds))
    return rows


def summary(seconds: dict[str, list[float]]) -> dict[str, float]:
    """Medians and best calls in microseconds, and their ratios; a busy machine disturbs the best least."""
    found: dict[str, float] = {}
    for name, choose in (("p50", statistics.median), ("best", min)):
        echo_us, filter_us = (float(choose(seconds[kind])) * 1e6 for kind in ("echo", "filter"))
        found |= {
            f"echo_{name}_us": echo_us,
            f"filter_{name}_us": filter_us,
            f"ratio_{name}": filter_us / echo_us,
        }
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--calls", type=int, default=100, help="calls a round")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    options = parser.parse_args()
    rows = measure(options.rounds, options.calls)
    if options.output == "json":
        print(json.dumps(rows))
        return
    print("names | p50: echo us  filter us  ratio | best: echo us  filter us  ratio")
    for row in rows:
        columns = [
            f"{row[f'echo_{name}_us']:12.0f}  {row[f'filter_{name}_us']:9.0f}  {row[f'ratio_{name}']:5.1f}"
            for name in ("p50", "best")
        ]
        print(f"{row['names']:5d} | {' |  '.join(columns)}")


if __name__ == "__main__":
    main()
