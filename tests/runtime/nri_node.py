"""A containerd with the agent's NRI plugin, and a handler of it that these tests can read and steer."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from agent.nri.plugin import NriPlugin
from agent.nri.records import Adjustment
from lab.runtimes.cgroups import Scratch
from lab.runtimes.containerd import Containerd
from lab.runtimes.cri import Container, Pod
from tests.waiting import eventually, running

V1 = Path("/sys/fs/cgroup")
FILES = [V1 / "cpu/cpu.shares", V1 / "cpu/cpu.cfs_quota_us", V1 / "memory/memory.soft_limit_in_bytes"]
RESOURCES = {"cpu_shares": 204, "cpu_quota": 20_000, "cpu_period": 100_000}
PRINTS = f"cat {' '.join(map(str, FILES))}; exec sleep 1000"
SOFT = "33554432"
FLOOR = ["777", "-1", SOFT]
NONE = ["204", "20000", "9223372036854771712"]
_numbers = itertools.count(1)


class Agent:
    """Keeps shares and no quota by NRI, and writes a soft limit when a container starts."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.does: dict[str, Callable[[], Any]] = {}
        self.synchronized: dict[str, Adjustment] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def event(*arguments: Any) -> Any:
            self.told.append((name, *arguments))
            if name in self.does:
                return await self.does[name]()
            if name == "starting":
                folder = V1 / "memory" / arguments[1].cgroups_path.lstrip("/")
                (folder / "memory.soft_limit_in_bytes").write_text(SOFT)
            if name == "synchronize":
                return self.synchronized
            return Adjustment(cpu_shares=777, cpu_quota=-1) if name in ("create", "update") else None

        return event

    def names(self) -> list[str]:
        return [name for name, *_ in self.told]


class Node:
    """A containerd, and pods in it."""

    def __init__(self, containerd: Containerd, scratch: Scratch, folder: Path) -> None:
        self.containerd, self.scratch = containerd, scratch
        self.lock = folder / "nri.lock"
        self.agent = Agent()
        self.registry = CollectorRegistry()

    @contextlib.asynccontextmanager
    async def plugin(self, *, connected: bool = True) -> AsyncIterator[NriPlugin]:
        self.registry = CollectorRegistry()
        socket = self.containerd.nri_socket
        plugin = NriPlugin(socket, self.agent, lock=self.lock, registry=self.registry)
        async with running(plugin.run()):
            if connected:
                await eventually(lambda: plugin.connected)
            yield plugin

    async def pod(self, annotations: Mapping[str, str] | None = None) -> tuple[Pod, str]:
        """A new pod and its sandbox."""
        uid = f"0a1b2c3d-0000-4000-8000-{next(_numbers):012x}"
        parent = self.scratch.make("kubepods", "burstable", f"pod{uid}")
        pod = Pod(f"pod-{uid[-4:]}", uid, parent.name, annotations=annotations or {})
        return pod, await asyncio.to_thread(self.containerd.cri.run_pod, pod)

    async def start(self, pod: Pod, sandbox: str, name: str = "app") -> tuple[str, list[str]]:
        """Start a container; its id, and what it found as its first act."""
        cri, container = self.containerd.cri, Container(name, ("sh", "-c", PRINTS), RESOURCES)
        identity = await asyncio.to_thread(cri.create, sandbox, pod, container)
        (await asyncio.to_thread(cri.start, identity)).succeeded()
        return identity, await asyncio.to_thread(cri.printed, pod, container, len(FILES))

    async def call(self, *arguments: str) -> None:
        (await asyncio.to_thread(self.containerd.cri.call, *arguments)).succeeded()

    def read(self, pod: Pod, container: str, controller: str, file: str) -> str:
        folder = self.scratch.folder(controller, "kubepods", "burstable", f"pod{pod.uid}", container)
        return (folder / file).read_text().strip()

    def values(self, pod: Pod, container: str) -> list[str]:
        return [self.read(pod, container, file.parent.name, file.name) for file in FILES]

    def count(self, event: str, outcome: str) -> float | None:
        labels = {"event": event, "outcome": outcome}
        return self.registry.get_sample_value("j10ce_agent_nri_requests_total", labels)


async def from_birth_to_its_end(node: Node, version: str) -> None:
    """A container's life: the first instruction finds all, updates leave it, and all is reported in order."""
    async with node.plugin() as plugin:
        assert plugin.version.startswith(version)
        pod, sandbox = await node.pod()
        app, first = await node.start(pod, sandbox)
        assert first == FLOOR
        await node.call("update", "--cpu-share", "300", "--cpu-quota", "30000", "--memory", "134217728", app)
        assert node.values(pod, app) == FLOOR
        assert node.read(pod, app, "memory", "memory.limit_in_bytes") == "134217728"
        await node.call("rmp", "--force", sandbox)
        await eventually(lambda: "pod_gone" in node.agent.names())
    told = {name: arguments for name, *arguments in node.agent.told}
    order = ["synchronize", "pod_started", "create", "starting", "update", "updated", "stopped", "removed"]
    assert node.agent.names() == [*order, "pod_gone"]
    assert (told["pod_started"][0].uid, told["create"][0].name) == (pod.uid, pod.name)
    created, started, asked = told["create"][1], told["starting"][1], told["update"][2]
    assert (created.id, created.name, created.pid) == (app, "app", 0)
    assert created.cgroups_path == node.scratch.path("kubepods", "burstable", f"pod{pod.uid}", app)
    assert created.resources.cpu_shares == 204  # as kubelet asked, before us
    assert started.pid > 0
    assert (asked.cpu_shares, asked.cpu_quota, asked.cpu_period) == (300, 30_000, None)
