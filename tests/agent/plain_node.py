"""A whole agent on a node of plain files, with an API server in memory."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from adapters.api import NODES, PODS, POLICIES, Resource
from adapters.memory import MemoryAPI
from agent.config import AgentConfig
from agent.program import Agent
from agent.reporting import Identity
from kernel import files as kernel_files
from lab.crowd import CrowdPod
from tests.adapters.fake_machine import Fake
from tests.waiting import eventually

NODE = "n1"
UID = "3c0f1d2e-0000-4000-8000-000000000001"
BESIDE = "3c0f1d2e-0000-4000-8000-000000000002"
PATH = f"/kubepods/burstable/pod{UID}"
FILES = {
    "cpu.weight": "4",
    "cpu.idle": "0",
    "cpu.max": "max 100000",
    "memory.min": "0",
    "memory.low": "0",
    "memory.current": "0",
    "memory.max": "max",
    "memory.high": "max",
    "memory.oom.group": "0",
    "io.weight": "default 100",
    "pids.max": "max",
    "cgroup.procs": "",
    "cgroup.events": "populated 1\nfrozen 0",
}

_ABOVE = {"kubepods": "1000", "kubepods/burstable": "1000", "kubepods/besteffort": "1", "system.slice": "100"}


class PlainNode:
    """cgroup v2 as plain files: a pod with a floor that weighs too little, and one beside it."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        # A kernel file takes what is written as the whole; a plain one keeps its tail.
        patch.setattr(kernel_files, "_WRITE", kernel_files._WRITE | os.O_TRUNC)
        self.folder = folder
        self.reclaims = threading.Event()
        self.fake = Fake(folder / "node", v1=False, unified=True)
        self.fake.write("proc/meminfo", "MemTotal:  4194304 kB\n")
        for path, weight in _ABOVE.items():
            self.group(path, **{"cpu.weight": weight})
        self.api = MemoryAPI()
        self.api.put(NODES, {"metadata": {"name": NODE}})
        self.api.put(POLICIES, policy())
        self.pod("shop", UID, 500, weight=4, app="checkout")
        self.pod("beside", BESIDE, 1000, weight=39, app="other")

    def group(self, path: str, **values: str) -> None:
        for file, text in {**FILES, **values}.items():
            self.fake.write(f"cgroup/unified/{path}/{file}", f"{text}\n")

    def pod(self, name: str, uid: str, cpu: int, *, weight: int, **labels: str) -> None:
        """A Burstable pod of one container that runs."""
        draft = CrowdPod(name, uid, {"app": uid[-1] * 64}, cpu, labels=labels)
        body: dict[str, Any] = draft.manifest(NODE)
        body["metadata"]["uid"] = uid
        self.api.put(PODS, body | {"status": draft.status()})
        for path in (draft.path(), draft.path("app")):
            self.group(path.lstrip("/"), **{"cpu.weight": str(weight)})

    def remove(self, name: str) -> None:
        """The API server's word; its cgroups stay."""
        self.api.remove(PODS, "default", name)

    @staticmethod
    def another_policy() -> tuple[Resource, dict[str, Any]]:
        return POLICIES, policy("other", "2")

    @staticmethod
    def policy_itself() -> tuple[Resource, str, str]:
        return POLICIES, "default", "checkout"

    def tree(self) -> dict[str, str]:
        """Every file of the node's cgroups and of its /proc; of folders: when something was made in them."""
        return {
            os.fspath(one.relative_to(self.fake.root)): one.read_text().rstrip()
            if one.is_file()
            else str(one.stat().st_mtime_ns)
            for one in sorted(self.fake.root.rglob("*"))
        }

    def read(self, path: str, file: str) -> str:
        return Path(f"{self.fake.root}/cgroup/unified{path}/{file}").read_text().strip()

    @property
    def config(self) -> AgentConfig:
        for name in ("run", "state"):
            (self.folder / name).mkdir(exist_ok=True)
        return AgentConfig(
            node=NODE,
            run=self.folder / "run",
            state=self.folder / "state",
            nri_socket=None,
            proc=f"{self.fake.root}/proc",
            sys=f"{self.fake.root}/sys",
        )

    @contextlib.asynccontextmanager
    async def agent(self, **options: Any) -> AsyncIterator[Agent]:
        """An agent at work, after its first complete pass."""
        async with self.agent_that_waits(**options) as one:
            await eventually(one.source.spoken.is_set, "the API server has spoken")
            await passes(one, 2)
            yield one

    @contextlib.asynccontextmanager
    async def agent_that_waits(self, **options: Any) -> AsyncIterator[Agent]:
        """An agent that may not have heard from the API server."""
        stop = asyncio.Event()
        one = Agent(
            replace(self.config, **options), self.api, Identity("1", "6.12"), registry=CollectorRegistry()
        )
        work = asyncio.create_task(one.run(stop))
        try:
            yield one
        finally:
            stop.set()
            await work


async def passes(agent: Agent, more: int) -> None:
    """So many passes that begin from now on."""
    goal = agent.reconciler.passes + more
    while agent.reconciler.passes < goal:
        agent.reconciler.changed()
        await asyncio.sleep(0.01)


def policy(name: str = "checkout", cpu: str = "500m", memory: str = "64Mi") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "floor": {"resources": {"cpu": cpu, "memory": memory}},
            "slots": {"count": 1},
        },
    }
