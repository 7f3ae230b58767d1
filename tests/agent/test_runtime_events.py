"""What the runtime tells, all the way to real cgroups: sandboxes and containers that come and go."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from adapters.machine import ThisMachine
from agent.containers import Containers
from agent.enforcement.enforcer import Enforcer
from agent.enforcement.originals import Originals
from agent.nri.records import LinuxResources, NriContainer, NriPod, State
from agent.planner import Planner
from agent.reconciler import Reconciler
from agent.runtime_events import RuntimeEvents
from agent.state import ContainerKey, Known, KnownPod
from agent.sync.hook_files import HookFiles
from agent.telling import Telling
from agent.told import Told
from lab.runtimes import cgroups
from lab.runtimes.cgroups import Scratch
from qos.cluster.objects import Requirement, Selector
from qos.plan.controller import all_files
from qos.plan.node import V1
from qos.pods.containers import BURSTABLE, Container, NodePod
from tests.agent.enforcement.conftest import another_writes
from tests.qos.builders import policy

FILES = frozenset(name for name, file in all_files().items() if V1 in file.versions)
UID = f"{secrets.token_hex(4)}-5f3a-4a0e-9a53-0d6a6b2d9f11"
NEIGHBOUR = NodePod(
    f"{secrets.token_hex(4)}-5f3a-4a0e-9a53-0d6a6b2d9f12", "shop", "greedy", (Container("c"),), BURSTABLE
)
"""It weighs much, and requests nothing."""
KEY = ContainerKey(UID, "web")
KUBELETS = "102"
FLOOR = policy(
    key="shop/a",
    name="a",
    namespace="shop",
    selector=Selector((Requirement("app", "In", ("a",)),)),
    floor={"cpu": 500},
)


class Rig:
    """An agent without its process: everything that answers the runtime, on a scratch kubelet's cgroups."""

    def __init__(self, scratch: Scratch, run: Path) -> None:
        self.scratch, machine = scratch, ThisMachine()
        self.known = Known(pods={NEIGHBOUR.uid: KnownPod(NEIGHBOUR)}, policies={"shop/a": FLOOR})
        self.containers = Containers(machine.has, lambda: (f"{scratch.name}/kubepods",))
        self.originals = Originals(run)
        self.enforcer = Enforcer(machine.mounts, self.originals, run)
        planner = Planner(machine, machine.size(FILES), time.monotonic)
        files = HookFiles(run, lambda: True)
        self.reconciler = Reconciler(
            self.known, self.containers, planner, self.enforcer, self.originals, files, lambda: True
        )
        self.told = Told(run)
        telling = Telling(
            self.told,
            self.originals,
            self.reconciler.plan_of,
            machine.text,
            self.enforcer.writing.reclaims,
            unified=False,
        )
        self.events = RuntimeEvents(
            self.known,
            self.containers,
            self.reconciler,
            self.originals,
            lambda path: None,
            planner.read_pod,
            telling,
            unified=False,
        )
        self.pod = f"{scratch.name}/kubepods/burstable/pod{UID}"
        for path in ("kubepods", "kubepods/burstable"):
            scratch.make(*path.split("/"))
            self.file(f"{scratch.name}/{path}").write_text("200000")
        beside = scratch.make("kubepods", "burstable", f"pod{NEIGHBOUR.uid}").name
        self.file(beside).write_text("4096")

    def file(self, path: str) -> Path:
        return Path(self.scratch.mounts["cpu"], path.strip("/"), "cpu.shares")

    def weight(self) -> str:
        return self.file(self.pod).read_text().strip()

    def container(self, container_id: str, sandbox: str = "s1", state: State = State.RUNNING) -> NriContainer:
        """One whose cgroup is there, as kubelet and the runtime make it."""
        there = self.file(self.pod).exists()
        path = self.scratch.make("kubepods", "burstable", f"pod{UID}", container_id).name
        for group in (path,) if there else (path, self.pod):
            self.file(group).write_text(KUBELETS)
        return NriContainer(container_id, sandbox, "web", state, 0, path, resources=LinuxResources(102))

    def sandbox(self, name: str = "s1") -> NriPod:
        return NriPod(name, UID, "shop", "p0", {"app": "a"}, {}, self.pod)

    async def start(self, container: NriContainer) -> None:
        """The runtime makes it, and starts it."""
        sandbox = self.sandbox(container.pod_id)
        await self.events.create(sandbox, container)
        await self.events.starting(sandbox, container)
        await self.reconciler.reconcile()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    if "cpu" not in cgroups.hierarchies(Path("/proc/self/mountinfo").read_text()):
        pytest.skip("no cgroup v1 hierarchy of cpu here")
    if os.geteuid() != 0:
        pytest.skip("only root makes cgroups")
    with cgroups.scratch("events") as made:
        yield Rig(made, tmp_path)


async def test_the_end_of_the_sandbox_before_ends_nothing(rig: Rig) -> None:
    """Kubelet makes a new one for the same pod, and clears the old one away a minute later."""
    first = rig.container("1" * 64)
    await rig.events.synchronize([rig.sandbox()], [first])
    await rig.events.stopped(rig.sandbox(), first)
    await rig.events.pod_started(rig.sandbox("s2"))
    await rig.start(rig.container("2" * 64, "s2"))
    await rig.events.pod_gone(rig.sandbox("s1"))
    await rig.reconciler.reconcile()
    assert UID in rig.known.pods
    assert int(rig.weight()) > int(KUBELETS)
    await rig.events.pod_gone(rig.sandbox("s2"))
    assert UID not in rig.known.pods


async def test_the_end_of_a_sandbox_after_the_next_one_has_started(rig: Rig) -> None:
    """Before any container of it: then the pod is still the one that was told of."""
    await rig.events.synchronize([rig.sandbox()], [rig.container("1" * 64)])
    await rig.events.pod_started(rig.sandbox("s2"))
    await rig.events.pod_gone(rig.sandbox("s1"))
    assert UID in rig.known.pods


async def test_what_kubelet_wrote_for_the_pod_is_read_before_the_hook_writes(rig: Rig) -> None:
    await rig.events.synchronize([], [])
    await rig.reconciler.reconcile()
    container = rig.container("1" * 64, state=State.CREATED)
    await rig.events.create(rig.sandbox(), container)
    plan = rig.reconciler.plan_of(KEY)
    assert plan is not None
    [hooks] = [one.value for one in plan.settings if (one.level, one.file) == (1, "cpu.shares")]
    another_writes(rig.file(rig.pod), hooks)
    await rig.events.starting(rig.sandbox(), container)
    await rig.reconciler.reconcile()
    assert int(rig.weight()) > int(KUBELETS)
    rig.known.policies.clear()
    await rig.reconciler.reconcile()
    assert rig.weight() == KUBELETS


async def test_it_is_read_when_the_pod_starts_already(rig: Rig) -> None:
    """Then no container's start waits for that: what the hook writes from there on is not kubelet's."""
    await rig.events.synchronize([], [])
    await rig.reconciler.reconcile()
    container = rig.container("1" * 64, state=State.CREATED)
    await rig.events.pod_started(rig.sandbox())
    another_writes(rig.file(rig.pod), "9000")
    await rig.start(container)
    rig.known.policies.clear()
    await rig.reconciler.reconcile()
    assert rig.weight() == KUBELETS


async def test_what_ended_while_the_runtime_was_away_is_forgotten(rig: Rig) -> None:
    await rig.events.synchronize([rig.sandbox()], [rig.container("1" * 64)])
    assert rig.events.runs(UID)
    await rig.events.synchronize([], [])
    assert UID not in rig.known.pods
    assert not rig.events.runs(UID)


async def test_of_two_sandboxes_the_one_that_runs_counts(rig: Rig) -> None:
    old = rig.container("1" * 64, state=State.STOPPED)
    new = rig.container("2" * 64, "s2")
    await rig.events.synchronize([rig.sandbox("s2"), rig.sandbox("s1")], [new, old])
    await rig.events.pod_gone(rig.sandbox("s1"))
    assert UID in rig.known.pods


async def test_a_container_whose_end_is_told_late_is_not_held(rig: Rig) -> None:
    first, second = rig.container("1" * 64), rig.container("2" * 64)
    await rig.events.synchronize([rig.sandbox()], [first])
    await rig.start(second)
    assert rig.enforcer.ids() == (second.id,)
    await rig.events.stopped(rig.sandbox(), first)
    assert rig.containers[KEY].container_id == second.id


async def test_the_runtime_says_whose_a_uid_is(rig: Rig) -> None:
    """A forged mirror has the uid of another's cgroups."""
    forged = NodePod(UID, "aaa", "evil", (Container("web"),), BURSTABLE)
    rig.known.pods[UID] = KnownPod(forged)
    await rig.events.synchronize([rig.sandbox()], [rig.container("1" * 64)])
    assert (rig.known.pods[UID].pod.namespace, rig.known.pods[UID].provisional) == ("shop", True)


async def test_what_a_container_that_waits_for_its_start_was_told_is_known(rig: Rig) -> None:
    """The connection to the runtime broke in between."""
    made = rig.container("1" * 64, state=State.CREATED)
    assert await rig.events.create(rig.sandbox(), made) is not None
    await rig.events.synchronize([rig.sandbox()], [made])
    assert rig.told.paths() == {made.cgroups_path}
    await rig.events.synchronize([rig.sandbox()], [replace(made, state=State.STOPPED)])
    assert rig.told.paths() == frozenset()
