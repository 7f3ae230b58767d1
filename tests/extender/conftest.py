"""Objects as the API server has them, a clock that stands still, an extender on an API server in memory."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from adapters.memory import MemoryAPI
from adapters.serving.addresses import listen
from extender.config import ExtenderConfig, Keeper
from extender.metrics import Metrics
from extender.program import Program
from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos import keys
from tests.extender.placeholder_cluster import Scheduler
from tests.waiting import running as beside

Object = dict[str, Any]
NOW = 1_800_000_000.0


class Clock:
    """Time that passes only when a test lets it pass."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def api(clock: Clock) -> MemoryAPI:
    return MemoryAPI(clock=clock)


@pytest.fixture
def make_ledger() -> Callable[..., Ledger]:
    def make(mode: Mode = Mode.GUARD, **options: Any) -> Ledger:
        return Ledger(mode, **({"cap_percent": 100} | options))

    return make


@pytest.fixture
def make_node() -> Callable[..., Object]:
    def make(name: str, cpu: str = "4", memory: str = "16Gi", **metadata: Any) -> Object:
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}} | metadata,
            "spec": {},
            "status": {
                "allocatable": {"cpu": cpu, "memory": memory, "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }

    return make


@pytest.fixture
def make_pod() -> Callable[..., Object]:
    def make(name: str, cpu: str = "1", app: str = "", node: str = "", **more: Any) -> Object:
        spec = {
            "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}],
            "schedulerName": more.pop("scheduler", "default-scheduler"),
            "priority": more.pop("priority", 0),
        }
        if node:
            spec["nodeName"] = node
        metadata = {"namespace": "default", "name": name, "labels": {"app": app or name}}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata | more,
            "spec": spec,
            "status": {"phase": "Running" if node else "Pending"},
        }

    return make


@pytest.fixture
def make_policy() -> Callable[..., Object]:
    def make(name: str = "checkout", count: int = 2, cpu: str = "2", **spec: Any) -> Object:
        body = {
            "selector": {"matchLabels": {"app": name}},
            "floor": {"resources": {"cpu": cpu}},
            "slots": {"count": count},
        }
        return {
            "apiVersion": keys.API_VERSION,
            "kind": "MinimalReservationPolicy",
            "metadata": {"namespace": "default", "name": name, "generation": 1},
            "spec": body | spec,
        }

    return make


Eventually = Callable[..., Awaitable[None]]


ProgramFactory = Callable[..., AbstractAsyncContextManager[Any]]


@pytest.fixture
def running(eventually: Eventually) -> ProgramFactory:
    """running(api, **config): an extender that serves on free ports until the block ends.

    clock: its own, in place of the steady one.
    """

    def address(opened: socket.socket) -> str:
        host, port = opened.getsockname()
        return f"{host}:{port}"

    @asynccontextmanager
    async def run(
        api: MemoryAPI, *, ready: bool = True, clock: Callable[[], float] = time.monotonic, **options: Any
    ) -> AsyncIterator[Program]:
        # Opened here and handed over: a port that is only looked up may be another's a moment later.
        sockets = listen("127.0.0.1:0"), listen("127.0.0.1:0")
        settings = {
            "verbs_address": address(sockets[0]),
            "address": address(sockets[1]),
            "identity": "test",
            "cap_percent": 100,
        }
        program = Program(ExtenderConfig(**(settings | options)), api, clock=clock)
        stop = asyncio.Event()
        task = asyncio.create_task(program.run(stop, sockets))
        try:
            if ready:
                await eventually(lambda: not program.readiness.problem())
            yield program
        finally:
            stop.set()
            await task

    return run


@pytest.fixture
def keeping(api, running):
    """keeping(cpus): a cluster whose scheduler knows nothing of us, and our program beside it."""

    @contextlib.asynccontextmanager
    async def run(cpus=4, scheduler=Scheduler, **options):
        scheduler = scheduler(api, cpus)
        async with beside(scheduler.run()), running(api, keeper=Keeper.PLACEHOLDERS, **options) as program:
            program.scheduler = scheduler
            yield program

    return run
