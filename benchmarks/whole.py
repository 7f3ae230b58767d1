"""The extender as a process of its own, on an API server that is another (api_face.py)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import uvloop

from adapters.kubernetes.client import KubernetesAPI
from adapters.kubernetes.credentials import Endpoint
from adapters.serving.addresses import listen
from benchmarks import api_face
from benchmarks.clusters import Size
from benchmarks.serving import process
from extender.config import ExtenderConfig
from extender.ingest import IN_PROTOBUF
from extender.program import Program

START_SECONDS: Final = 200.0
REST_SECONDS: Final = 4.0


@dataclass(frozen=True, slots=True)
class Whole:
    """Its verbs' port, the port of all else, its process; and the port of its API server."""

    verbs: int
    others: int
    pid: int
    api: int

    def cpu_seconds(self) -> float:
        """CPU time that it took so far."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((one / "schedstat").read_text().split()[0]) for one in tasks) / 1e9

    def metrics(self) -> dict[str, float]:
        """What /metrics shows, by name with labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.others}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        named = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, value in named}


def serve(api: int, ports: Any) -> None:
    """Until the process is ended."""
    uvloop.run(_serve(api, ports))


async def _serve(port: int, ports: Any) -> None:
    sockets = listen("127.0.0.1:0"), listen("127.0.0.1:0")
    verbs_address, address = ("{}:{}".format(*one.getsockname()) for one in sockets)
    config = ExtenderConfig(
        verbs_address=verbs_address,
        address=address,
        identity="bench",
        cap_percent=100,
        warmup_seconds=0,
        annotate_held_nodes=False,  # at five a second it is minutes of a start, and nothing once it is done
    )
    async with KubernetesAPI(Endpoint(f"http://127.0.0.1:{port}"), in_protobuf=IN_PROTOBUF) as api:
        ports.put([*(one.getsockname()[1] for one in sockets), os.getpid()])
        await Program(config, api).run(asyncio.Event(), sockets)


@contextlib.contextmanager
def running(size: Size) -> Iterator[Whole]:
    """Ready, leading, and with nothing left to write at nodes and policies."""
    with process(api_face.serve, size) as (api,), process(serve, api) as (verbs, others, pid):
        one = Whole(verbs, others, pid, api)
        _settle(one)
        yield one


def _settle(one: Whole) -> None:
    """Until it leads, and then has written nothing but its Lease for a while."""
    deadline = time.monotonic() + START_SECONDS
    while not _leads(one) and time.monotonic() < deadline:
        time.sleep(0.2)
    written, since = -1, time.monotonic()
    while time.monotonic() < deadline:
        now = api_face.tell(one.api, "pods", 0).writes
        if now != written:
            written, since = now, time.monotonic()
        if time.monotonic() - since > REST_SECONDS:
            return
        time.sleep(0.2)
    raise SystemExit(f"the extender is not ready and at rest after {START_SECONDS:g} s")


def _leads(one: Whole) -> bool:
    try:
        shown = one.metrics()
    except (urllib.error.URLError, OSError):
        return False
    return bool(shown["j10ce_ready"] and shown["j10ce_leader"])
