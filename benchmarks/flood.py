"""A flood of pods over loopback: pods a second with our extender, by those with one that accepts all.

The client plays kube-scheduler: one scheduling cycle at a time, each a filter call with 100 names; binds run
beside it, and what they change comes back by watches. Each extender stands on an API server in memory of its
own, in its own process. `filter only`: the client binds at the API server itself. No goal is set here: beside
a real kube-scheduler and API server (benchmarks/control_plane.py) the extender is the smaller part.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import orjson
import uvloop

from adapters.api import NODES, PODS, POLICIES, PRIORITY_CLASSES
from adapters.memory import MemoryAPI
from adapters.serving.addresses import listen
from adapters.serving.server import serve_until, server
from benchmarks import clusters
from benchmarks.clusters import Size
from benchmarks.serving import Connection, process, read, respond
from extender.config import ExtenderConfig
from extender.program import Program

NAMES: Final = 100
BINDERS: Final = 8
OURS, ACCEPTS_ALL = "ours", "accepts all"


def cluster(size: Size, pods: int) -> MemoryAPI:
    """Nodes, policies, and pods that wait."""
    api = MemoryAPI()
    for number in range(size.nodes):
        api.put(NODES, clusters.node_json(number))
    api.put(PRIORITY_CLASSES, {"metadata": {"name": "floors"}, "value": 1_000, "globalDefault": False})
    for policy in range(size.policies):
        api.put(POLICIES, clusters.policy_json(policy, size.slots_of(policy)))
    for number in range(pods):
        api.put(PODS, clusters.new_pod(f"flood-{number}", 0.1))
    return api


class AcceptAll:
    """An extender that reads what it must, keeps nothing in mind and refuses nothing."""

    def __init__(self, api: MemoryAPI) -> None:
        self._api = api

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """filter, or bind."""
        args = orjson.loads(await read(receive))
        answer: dict[str, Any] = {"Error": ""}
        if scope["path"] == "/filter":
            answer = {"Nodes": None, "NodeNames": args["NodeNames"], "FailedNodes": {}, "Error": ""}
        else:
            await bind(self._api, args)
        await respond(send, orjson.dumps(answer))


async def bind(api: MemoryAPI, args: dict[str, str]) -> None:
    """The Binding."""
    await api.bind(args["PodNamespace"], args["PodName"], args["PodUID"], args["Node"], {})


class APIServer:
    """What kube-scheduler's own binder would call, and how much CPU this process took."""

    def __init__(self, api: MemoryAPI) -> None:
        self._api = api

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """bind, or cpu."""
        body = await read(receive)
        if scope["path"] == "/bind":
            await bind(self._api, orjson.loads(body))
        await respond(send, orjson.dumps(time.process_time()))


def serve(kind: str, size: Size, pods: int, binds: bool, ports: Any) -> None:
    """Until the process is ended."""
    uvloop.run(_serve(kind, cluster(size, pods), ports, binds=binds))


async def _serve(kind: str, api: MemoryAPI, ports: Any, *, binds: bool) -> None:
    verbs, others, direct = (listen("127.0.0.1:0") for _ in range(3))
    stop = asyncio.Event()
    servers = [(server(APIServer(api)), direct)]
    work = []
    if kind == OURS:
        address = f"127.0.0.1:{others.getsockname()[1]}"
        config = ExtenderConfig(
            address=address, identity="bench", cap_percent=100, binds=binds, warmup_seconds=0
        )
        program = Program(config, api)
        work.append(asyncio.create_task(program.run(stop, (verbs, others))))
        while program.readiness.problem():  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.05)
    else:
        servers.append((server(AcceptAll(api)), verbs))
    ports.put([verbs.getsockname()[1], direct.getsockname()[1]])
    await asyncio.gather(serve_until(stop, servers, draining=lambda: None), *work)


class Scheduler:
    """kube-scheduler, as far as an extender sees it."""

    def __init__(self, ports: list[int], size: Size, *, binds: bool) -> None:
        verbs, api = ports
        self._filter = Connection(verbs)
        self._to_bind = verbs if binds else api
        self._names = clusters.node_names(size.nodes)
        self._shown = 0
        self._assumed: queue.SimpleQueue[dict[str, str] | None] = queue.SimpleQueue()
        self.failed: list[str] = []

    def run(self, pods: range) -> float:
        """Seconds until all are bound."""
        bodies = [clusters.new_pod(f"flood-{number}", 0.1) for number in pods]
        with self._binders():
            began = time.perf_counter()
            for body in bodies:
                self._cycle(body)
        return time.perf_counter() - began

    def _cycle(self, pod: dict[str, Any]) -> None:
        self._shown = (self._shown + 37) % len(self._names)
        shown = [*self._names[self._shown :], *self._names][:NAMES]
        args = orjson.dumps({"Pod": pod, "Nodes": None, "NodeNames": shown})
        nodes = orjson.loads(self._filter.call("/filter", args))["NodeNames"]
        meta = pod["metadata"]
        where = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"]}
        self._assumed.put(where | {"Node": nodes[0]})

    @contextmanager
    def _binders(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._bind) for _ in range(BINDERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            for _ in threads:
                self._assumed.put(None)
            for thread in threads:
                thread.join()

    def _bind(self) -> None:
        to = Connection(self._to_bind)
        while (args := self._assumed.get()) is not None:
            answer = orjson.loads(to.call("/bind", orjson.dumps(args)))
            if isinstance(answer, dict) and answer["Error"]:
                self.failed.append(answer["Error"])
        to.close()


def measure(size: Size, pods: int, rounds: int) -> dict[str, float]:
    """Pods a second of both kinds, and their ratio, with bind and without.

    Of rounds that alternate the best counts, which a busy machine disturbs least.
    """
    found: dict[str, float] = {}
    for name, binds in (("filter and bind", True), ("filter only", False)):
        seconds, cpu = _flood(size, pods, rounds, binds=binds)
        rate = {kind: pods / min(taken) for kind, taken in seconds.items()}
        found[f"loopback flood, {name}, pods/s"] = rate[OURS]
        found[f"loopback flood, {name} (x accept-all)"] = rate[OURS] / rate[ACCEPTS_ALL]
        found[f"loopback flood, {name}, CPU (x accept-all)"] = cpu[OURS] / cpu[ACCEPTS_ALL]
    return found


def _flood(
    size: Size, pods: int, rounds: int, *, binds: bool
) -> tuple[dict[str, list[float]], dict[str, float]]:
    total = pods * (rounds + 1)
    seconds: dict[str, list[float]] = {OURS: [], ACCEPTS_ALL: []}
    with (
        process(serve, OURS, size, total, binds) as ours,
        process(serve, ACCEPTS_ALL, size, total, binds) as accepts_all,
    ):
        ports = {OURS: ours, ACCEPTS_ALL: accepts_all}
        clients = {kind: Scheduler(opened, size, binds=binds) for kind, opened in ports.items()}
        before: dict[str, float] = {}
        for number in range(rounds + 1):
            for kind, client in clients.items():
                taken = client.run(range(number * pods, (number + 1) * pods))
                if number:
                    seconds[kind].append(taken)
                else:  # the first round warms up
                    before[kind] = _cpu(ports[kind][1])
        failed = [text for client in clients.values() for text in client.failed]
        if failed:
            raise SystemExit(f"{len(failed)} binds failed, the first: {failed[0]}")
        return seconds, {kind: _cpu(ports[kind][1]) - before[kind] for kind in clients}


def _cpu(port: int) -> float:
    return float(Connection(port).call("/cpu", b""))
