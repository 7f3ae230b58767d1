"""All pods of a node planned together and kept on cgroup v2: steady, and back again when a floor leaves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from adapters.machine import ThisMachine
from agent.enforcement.enforcer import Enforcer
from agent.enforcement.originals import Originals
from agent.planner import Planner
from agent.state import ContainerKey, Known, KnownPod, Running
from lab.contention.node import Node, best_effort, container_id, path, pod
from qos.cluster.objects import Requirement, Selector
from qos.cluster.policy import Policy
from qos.pods.containers import BURSTABLE, GUARANTEED, Container, NodePod

MIB = 1 << 20
PODS = [
    pod(
        "first",
        BURSTABLE,
        Container("app", 100, memory_request=64 * MIB),
        Container("side", 50, memory_request=64 * MIB),
    ),
    pod("second", BURSTABLE, Container("app", 200, memory_request=64 * MIB)),
    pod("third", GUARANTEED, Container("app", 100, 100, 64 * MIB, 64 * MIB)),
    best_effort("last"),
]
FLOORS = {"first": (150, 32 * MIB), "second": (200, 16 * MIB), "third": (100, 8 * MIB)}


def policy(name: str) -> Policy:
    cpu, memory = FLOORS[name]
    selector = Selector((Requirement("app", "In", (name,)),))
    floor = {"cpu": cpu, "memory": memory}
    return Policy(f"default/{name}", "default", name, "u", 1, "1", 1.0, selector, floor)


def labelled(one: NodePod) -> NodePod:
    return replace(one, labels={"app": one.name})


class Agent:
    """What plans and what writes, on the pods that were started."""

    def __init__(self, run: Path) -> None:
        self._machine = ThisMachine()
        self._run = run
        self.known = Known({one.uid: KnownPod(labelled(one)) for one in PODS})
        self.known.policies = {f"default/{name}": policy(name) for name in FLOORS}
        self.running = {
            key: Running(key, container_id(one, each.name), path(one, each.name))
            for one in PODS
            for each in one.containers
            for key in [ContainerKey(one.uid, each.name)]
        }
        self.start()

    def start(self) -> None:
        """It was killed, and is started anew."""
        self.enforcer = Enforcer(self._machine.mounts, Originals(self._run), self._run)
        self.planner = Planner(self._machine, self._machine.size(frozenset()), lambda: 0.0)

    def plans(self):
        for _ in self.planner.prepare(self.known, self.running, self.enforcer.originals):
            pass
        return {
            ContainerKey(one.uid, container.name): container.plan
            for one in self.planner.plans()
            for container in one.containers
        }

    def keep(self) -> int:
        """Apply all plans; the number of writes."""
        reports = [self.enforcer.apply(self.running[key], plan) for key, plan in self.plans().items()]
        assert not [one for report in reports for one in report.refusals]
        return sum(report.written for report in (*reports, *self.enforcer.shared()))


@pytest.fixture
def agent(node: Node, tmp_path: Path) -> Agent:
    for one in PODS:
        node.start(one)
    return Agent(tmp_path)


def read(where: str, file: str) -> int:
    return int(Path(f"/sys/fs/cgroup{where}/{file}").read_text())


def settings_of(plans):
    return {key: [one.entry for one in plan.settings] for key, plan in plans.items()}


def test_all_floors_are_kept_steadily_and_the_others_fall_back(agent: Agent) -> None:
    before = agent.plans()
    assert not [short for plan in before.values() for short in plan.shortfalls]
    assert agent.keep() > 0
    assert read("/kubepods/burstable", "memory.low") == 48 * MIB
    assert read("/kubepods", "memory.low") == 56 * MIB
    assert settings_of(agent.plans()) == settings_of(before)
    agent.start()
    assert settings_of(agent.plans()) == settings_of(before)
    assert agent.keep() == 0

    del agent.known.policies["default/first"]
    agent.keep()
    assert read("/kubepods/burstable", "memory.low") == 16 * MIB
    assert read("/kubepods", "memory.low") == 24 * MIB
    first = path(PODS[0], "app").rpartition("/")[0]
    assert read(first, "memory.low") == 0
    agent.known.policies.clear()
    agent.keep()
    list(agent.enforcer.sweep())
    assert [read(where, "memory.low") for where in ("/kubepods/burstable", "/kubepods")] == [0, 0]
    assert [read(path(one, "app"), "cpu.weight") for one in PODS[:3]] == [17, 29, 17]


def test_a_pod_that_starts_is_planned_beside_what_is_kept(agent: Agent, node: Node) -> None:
    agent.keep()
    new = labelled(pod("new", BURSTABLE, Container("app", 100, memory_request=64 * MIB)))
    node.start(new)
    agent.known.pods[new.uid] = KnownPod(new)
    wanted = replace(policy("first"), key="default/new", name="new", floor={"cpu": 50, "memory": 4 * MIB})
    agent.known.policies["default/new"] = replace(
        wanted, selector=Selector((Requirement("app", "In", ("new",)),))
    )
    key = ContainerKey(new.uid, "app")
    agent.running[key] = Running(key, container_id(new, "app"), path(new, "app"))
    [made] = agent.planner.plan_pod(new.uid, agent.known, agent.running, agent.enforcer.originals).containers
    assert made.plan.shortfalls == ()
    report = agent.enforcer.apply(agent.running[key], made.plan)
    assert report.applied
    assert read("/kubepods/burstable", "memory.low") == 52 * MIB
