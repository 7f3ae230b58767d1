"""Whole passes over real cgroup v1: what a restart, a refusal or one bad pod may not cost the others."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace

import pytest

from adapters.machine import ThisMachine
from agent.containers import Containers
from agent.planner import Planner
from agent.reconciler import FIRST_PAUSE, Reconciler
from agent.state import ContainerKey, Known, KnownPod, Running
from agent.sync.hook_files import HookFiles
from kernel.apply import Outcome
from kernel.refused import Refused
from qos.cluster.objects import Requirement, Selector
from qos.plan.controller import all_files
from qos.plan.node import V1
from qos.pods.containers import BURSTABLE, Container, NodePod
from tests.agent.enforcement.conftest import UID, Rig, above
from tests.qos.builders import policy

SHARES = "cpu.shares"
KUBELETS = 102
NEXT_UID = "0a1b2c3d-0000-4000-8000-000000000002"
V1_FILES = frozenset(name for name, file in all_files().items() if V1 in file.versions)

RIVAL = "ffffffff-0000-4000-8000-000000000001"


@dataclass
class Node:
    """A pod with a floor on a busy node, and an agent's passes."""

    rig: Rig
    known: Known = field(default_factory=Known)
    spoken: bool = True
    listed: bool = False
    rests: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.one = self.rig.container()
        for up in (2, 3, 4):  # whatever else this machine runs
            self.rig.write(above(self.one.cgroup, up), SHARES, 200_000)
        for path in (self.one.cgroup, self.pod):
            self.rig.write(path, SHARES, KUBELETS)
        rival = self.rig.container("rival", "e" * 64, RIVAL)
        self.rig.write(above(rival.cgroup, 1), SHARES, 4096)
        greedy = NodePod(RIVAL, "shop", "greedy", (Container("rival"),), BURSTABLE)  # it requests nothing
        self.known.pods[RIVAL] = KnownPod(greedy)
        pod = NodePod(UID, "shop", "p0", (Container("app", 500),), BURSTABLE, {"app": "a"})
        self.known.pods[UID] = KnownPod(pod)
        selector = Selector((Requirement("app", "In", ("a",)),))
        self.known.policies["shop/a"] = policy(
            key="shop/a", name="a", namespace="shop", selector=selector, floor={"cpu": 500}
        )
        self.start()

    def start(self, known: Known | None = None) -> None:
        """A new agent; known: what its cache has."""
        self.known = known or self.known
        machine = ThisMachine()
        enforcer = self.rig.agent()
        self.containers = Containers(machine.has)
        self.planner = Planner(machine, machine.size(V1_FILES), time.monotonic)
        files = HookFiles(self.rig.run, lambda: self.spoken)
        self.reconciler = Reconciler(
            self.known, self.containers, self.planner, enforcer, enforcer.originals, files,
            lambda: self.spoken, sleep=self.rest, listed=lambda: self.listed,
        )  # fmt: skip

    async def rest(self, seconds: float) -> None:
        self.rests.append(seconds)

    @property
    def pod(self) -> str:
        return above(self.one.cgroup, 1)

    def weight(self) -> int:
        return int(self.rig.read(self.pod, SHARES))

    async def with_floor(self) -> int:
        self.containers.told(self.one)
        await self.reconciler.reconcile()
        assert self.weight() > KUBELETS
        return self.weight()


@pytest.fixture
def rig(kernel_rig: Rig) -> Rig:
    """Plans are made from this machine as it is."""
    return kernel_rig


@pytest.fixture
def node(rig: Rig) -> Node:
    return Node(rig)


async def test_after_a_restart_a_pod_keeps_its_floor_until_its_containers_are_known(node: Node) -> None:
    before = await node.with_floor()
    node.start()
    await node.reconciler.reconcile()
    assert node.weight() == before
    node.listed = True  # the runtime says now that there is none
    await node.reconciler.reconcile()
    assert node.weight() == KUBELETS


async def test_after_a_restart_without_a_cache_nothing_is_taken_back_before_the_source_spoke(
    node: Node,
) -> None:
    before, known = await node.with_floor(), node.known
    node.spoken = False
    pod = replace(known.pods[UID], provisional=True)
    node.start(Known(pods={UID: pod}))  # what the runtime tells; no policy is known
    node.containers.told(node.one)
    await node.reconciler.reconcile()
    assert node.weight() == before
    node.spoken = True
    await node.reconciler.reconcile()
    assert node.weight() == KUBELETS


async def test_a_source_that_speaks_in_the_middle_of_a_pass_counts_from_the_next(node: Node) -> None:
    before = await node.with_floor()
    node.known.policies.clear()
    node.spoken = False
    node.start()
    node.containers.told(node.one)
    prepare = node.planner.prepare

    def speaks(*arguments: object) -> object:
        yield from prepare(*arguments)  # type: ignore[arg-type]
        node.spoken = True

    node.planner.prepare = speaks  # type: ignore[method-assign, assignment]
    await node.reconciler.reconcile()
    assert node.weight() == before


async def test_what_was_refused_for_a_moment_is_tried_again(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object) -> Outcome:
        outcome = Outcome()
        outcome.refuse(Refused("the lock was held"))
        return outcome

    node.containers.told(node.one)
    with monkeypatch.context() as patch:
        patch.setattr(node.rig.enforcer.writing, "_under_lock", busy)
        await node.reconciler.reconcile()
    assert node.weight() == KUBELETS
    async with asyncio.timeout(20):
        await node.reconciler.run_once()  # nothing else happens
    assert node.weight() > KUBELETS


async def test_a_bug_with_one_container_stops_no_other(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = node.known.pods[UID].pod
    bad = Running(ContainerKey(UID, "bad"), "b" * 64, f"{node.pod}/{'b' * 64}")
    node.known.pods[UID] = KnownPod(replace(pod, containers=(Container("bad", 100), *pod.containers)))
    node.containers.told(bad)
    apply = node.rig.enforcer.apply

    def odd(running: Running, *arguments: object, **more: object) -> object:
        if running == bad:
            raise KeyError("odd")
        return apply(running, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(node.rig.enforcer, "apply", odd)
    assert await node.with_floor()
    assert node.reconciler.problem() == ""


async def test_a_pass_that_fails_is_said_and_followed_by_longer_and_longer_rests(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise KeyError("odd")

    await node.with_floor()
    with monkeypatch.context() as patch:
        patch.setattr(node.containers, "found", fails)
        node.reconciler.changed()
        for _ in range(3):
            with pytest.raises(KeyError):
                await node.reconciler.run_once()
    assert "odd" in node.reconciler.problem()
    assert node.rests[1:] == [FIRST_PAUSE, 2 * FIRST_PAUSE]
    await node.reconciler.run_once()
    assert node.reconciler.problem() == ""


async def test_a_pod_that_cannot_be_planned_now_starts_with_its_last_plan(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.with_floor()
    before = node.reconciler.plan_now(UID)

    def fails(*_: object) -> None:
        raise KeyError("odd")

    monkeypatch.setattr(node.planner, "plan_pod", fails)
    assert {name: one.plan for name, one in node.reconciler.plan_now(UID).items()} == {
        name: one.plan for name, one in before.items()
    }
    assert node.reconciler.plan_now(NEXT_UID) == {}
