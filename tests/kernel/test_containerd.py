"""containerd on cgroup v2, with the hook by base spec and by NRI, and with the agent's plugin."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.runtimes import cgroups, containerd
from lab.runtimes.cgroups import Scratch
from lab.runtimes.containerd import Containerd, Handler, Options
from lab.runtimes.cri import Container, Pod
from lab.runtimes.hook_injector import hook_injector
from lab.runtimes.installed_hook import InstalledHook, from_sources

PROGRAMS = Path("/work/.guest/node")
FLOOR = ((0, "set", "cpu.weight", "77"), (0, "set", "memory.low", "33554432"))
READS = Container("app", ("cat", "/sys/fs/cgroup/cpu.weight", "/sys/fs/cgroup/memory.low"))
SECONDS = 120.0
PATIENCE = 60
"""Seconds: the guest's clock goes on while a busy host has no time for it."""
UID = "0a1b2c3d-0000-4000-8000-000000000003"


@pytest.fixture(scope="module")
def hook(tmp_path_factory: pytest.TempPathFactory) -> InstalledHook:
    return from_sources(tmp_path_factory.mktemp("hook"), Path("/work"))


@pytest.fixture(scope="module")
def node(hook: InstalledHook, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containerd]:
    base = tmp_path_factory.mktemp("base") / "spec.json"
    base.write_text(json.dumps(containerd.base_spec(PROGRAMS, {"createRuntime": [hook.entry]})))
    options = Options({"j10ce": Handler(base)}, patience=PATIENCE)
    with containerd.containerd(PROGRAMS, options) as running:
        yield running


@pytest.fixture
def scratch() -> Iterator[Scratch]:
    with cgroups.scratch("containerd") as made:
        yield made


def first_words(node: Containerd, scratch: Scratch, hook: InstalledHook, uid: str, handler: str) -> list[str]:
    """What a container of a pod with a floor prints as its first act."""
    hook.pod(uid, {"app": FLOOR})
    pod = Pod(f"pod-{handler}", uid, scratch.make("kubepods", "burstable", f"pod{uid}").name)
    container = node.cri.create(node.cri.run_pod(pod, handler), pod, READS)
    node.cri.start(container).succeeded()
    return node.cri.printed(pod, READS, 2, seconds=SECONDS)


def test_by_base_runtime_spec(node: Containerd, scratch: Scratch, hook: InstalledHook) -> None:
    uid = "0a1b2c3d-0000-4000-8000-000000000001"
    assert first_words(node, scratch, hook, uid, "j10ce") == ["77", "33554432"]
    assert hook.missed() == {}


def test_by_nri(node: Containerd, scratch: Scratch, hook: InstalledHook) -> None:
    uid = "0a1b2c3d-0000-4000-8000-000000000002"
    with hook_injector(PROGRAMS / "hook-injector", node.nri_socket, hook.hooks_dir):
        assert first_words(node, scratch, hook, uid, "runc") == ["77", "33554432"]
    assert hook.missed() == {}


SAID = {
    "cpu.weight": "77",
    "cpu.max": "max 100000",
    "memory.min": "4194304",
    "memory.low": "33554432",
    "memory.high": "268435456",
    "memory.oom.group": "1",
}
WRITTEN = {"pids.max": "99", "cpu.max.burst": "1000", "io.weight": "default 50", "cpuset.cpus": "1"}
RESOURCES = {"cpu_shares": 204, "cpu_quota": 20_000, "cpu_period": 100_000}


class Agent:
    """Has the runtime keep some files, and writes others itself before the container runs."""

    def __init__(self, adjustment: Any) -> None:
        self.adjustment = adjustment

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def event(*arguments: Any) -> Any:
            if name == "starting":
                write(arguments[1].cgroups_path)
            return {"synchronize": {}, "create": self.adjustment, "update": self.adjustment}.get(name)

        return event


def write(cgroup: str) -> None:
    for file, value in WRITTEN.items():
        Path(f"/sys/fs/cgroup{cgroup}/{file}").write_text(value)


@contextlib.asynccontextmanager
async def plugin(node: Containerd, lock: Path) -> AsyncIterator[None]:
    """The agent's plugin, connected, with what it needs of Python's packages."""
    sys.path.insert(0, "/work/.guest/python")
    from prometheus_client import CollectorRegistry

    from agent.nri.adjustment import adjustment_of, told_of
    from agent.nri.plugin import NriPlugin
    from qos.plan.layout import kubelet_weight, shares_for

    entries = [(0, "set", file, value) for file, value in SAID.items()]
    told = told_of(entries, True, lambda weight: shares_for(weight, kubelet_weight))  # as runc 1.1 has it
    assert told.keys() == SAID.keys()
    adjustment = adjustment_of(told)
    registry = CollectorRegistry()
    running = NriPlugin(node.nri_socket, Agent(adjustment), lock=lock, registry=registry, budget=PATIENCE)
    task = asyncio.create_task(running.run())
    try:
        async with asyncio.timeout(SECONDS):
            while not running.connected:
                assert not task.done()
                await asyncio.sleep(0.05)
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_by_the_agents_plugin(node: Containerd, scratch: Scratch, tmp_path: Path) -> None:
    """What it has the runtime keep survives an update; so does what an update does not say."""
    wanted = {**SAID, **WRITTEN}
    container = Container("app", ("sh", "-c", _prints(wanted)), RESOURCES)
    pod = Pod("nri", UID, scratch.make("kubepods", "burstable", f"pod{UID}").name)

    async def scenario() -> None:
        async with plugin(node, tmp_path / "nri.lock"):
            sandbox = await asyncio.to_thread(node.cri.run_pod, pod)
            identity = await asyncio.to_thread(node.cri.create, sandbox, pod, container)
            (await asyncio.to_thread(node.cri.start, identity)).succeeded()
            words = await asyncio.to_thread(
                lambda: node.cri.printed(pod, container, len(wanted), seconds=SECONDS)
            )
            assert dict(zip(wanted, words, strict=True)) == wanted
            asked = ("--cpu-share", "300", "--cpu-quota", "30000", "--memory", "134217728")
            (await asyncio.to_thread(node.cri.call, "update", *asked, identity)).succeeded()
            folder = scratch.folder("", "kubepods", "burstable", f"pod{UID}", identity)
            found = {file: (folder / file).read_text().strip() for file in (*wanted, "memory.max")}
            assert found == {**wanted, "memory.max": "134217728"}

    asyncio.run(scenario())


def _prints(files: Any) -> str:
    return "; ".join(f"cat /sys/fs/cgroup/{file}" for file in files) + "; exec sleep 1000"
