"""kube-scheduler as it comes, played: what was measured of the real one beside placeholders (cluster.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from adapters.api import NODES, PODS, PRIORITY_CLASSES, APIError
from qos.cluster.objects import Pod
from simulation import objects
from simulation.admission import Admission
from simulation.api import Client, Fault
from simulation.books import PLACEHOLDERS
from simulation.chance import Chance
from simulation.cluster import Cluster
from simulation.history import World
from simulation.loop import VirtualLoop
from simulation.scheduler.player import Scheduler
from simulation.store import EPOCH, Body, Store

OWNER, PLACEHOLDER, BATCH = 100, 99, 0


class Cluster1:
    """A store, kube-scheduler, and what kubelets and controllers do; nodes of 4 CPU."""

    def __init__(self) -> None:
        world = World(1, keeper="Placeholders", prebind=0.0)
        self.loop = VirtualLoop()
        self.store = Store(self.loop.time, lambda: EPOCH + self.loop.time())
        self.store.admit = Admission(self.store, lambda _review: None).admit
        self.evicted: list[str] = []
        chance = Chance(1)
        self._cluster = Cluster(self.store, self.loop, chance, world)
        self.client = Client("scheduler", self.store, self.loop, chance, latency=0.01)
        self.scheduler = Scheduler(world, self.client, self, self.loop, chance, self._cluster.evict)

    def stamp(self) -> str:
        return self.store.now()

    def assumed(self, pod: Pod, node: str) -> None:
        pass

    def unassumed(self, pod: Pod) -> None:
        pass

    def preempted(self, _pod: Pod, _node: str, victims: list[Pod], *, asked: bool) -> None:
        assert asked
        self.evicted += [one.name for one in victims]

    def node(self, name: str) -> None:
        self.store.write(NODES, objects.node(name, 4000, 8192, 110))

    def pod(self, name: str, priority: int, cpu: int = 1000, **spec: Any) -> None:
        self.store.create(PODS, objects.pod(name, cpu, 64, priority, {}, **spec))

    def placeholder(self, name: str, node: str, *, cpu: int = 1000, priority: int = PLACEHOLDER) -> None:
        body = objects.pod(name, cpu, 64, priority, {}, **_bound_to(node))
        body["metadata"]["namespace"] = PLACEHOLDERS
        self.store.create(PODS, body)

    def body(self, name: str, namespace: str = "default") -> Body:
        return self.store.get(PODS, namespace, name)

    def node_of(self, name: str, namespace: str = "default") -> str:
        node: str = self.body(name, namespace)["spec"].get("nodeName", "")
        return node

    def change(self, name: str, *, status: Body | None = None, spec: Body | None = None) -> None:
        body = self.body(name)
        changed = {
            **body,
            "status": {**body["status"], **(status or {})},
            "spec": {**body["spec"], **(spec or {})},
        }
        self.store.write(PODS, changed)

    def wait(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def close(self) -> None:
        self.scheduler.kill()
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.loop.close()


def _bound_to(node: str) -> Body:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {
        "affinity": {"nodeAffinity": required},
        "preemptionPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
    }


@pytest.fixture
def there() -> Iterator[Cluster1]:
    one = Cluster1()
    one.node("n0")
    one.node("n1")
    one.scheduler.start()
    one.wait(0.2)
    yield one
    one.close()


def full(there: Cluster1, *, batch: int) -> None:
    """So many batch pods a node, and placeholders in the rest."""
    for node in ("n0", "n1"):
        for number in range(4):
            if number < batch:
                there.pod(f"batch-{node}-{number}", BATCH, nodeName=node)
            else:
                there.placeholder(f"hold-{node}-{number}", node)
    there.wait(1.0)


def test_a_placeholder_goes_to_its_node_and_nowhere_else(there: Cluster1) -> None:
    full(there, batch=3)
    there.placeholder("more", "n0")
    there.wait(1.0)
    assert there.node_of("hold-n1-3", PLACEHOLDERS) == "n1"
    assert not there.node_of("more", PLACEHOLDERS)
    assert not there.evicted


def test_an_owner_preempts_a_placeholder_where_there_is_nothing_else(there: Cluster1) -> None:
    full(there, batch=0)
    there.pod("owner", OWNER)
    there.wait(0.2)
    assert there.node_of("owner")
    assert [name.startswith("hold") for name in there.evicted] == [True]


def test_an_owner_preempts_a_batch_pod_and_leaves_the_placeholders_beside_it(there: Cluster1) -> None:
    full(there, batch=2)
    there.pod("owner", OWNER)
    there.wait(4.0)
    assert there.node_of("owner")
    assert [name.startswith("batch") for name in there.evicted] == [True]


def test_a_gated_owner_is_handed_a_place_that_nobody_who_waits_slips_into(there: Cluster1) -> None:
    full(there, batch=2)
    for number in range(3):
        there.pod(f"waits-{number}", BATCH)
    there.pod("owner", OWNER, schedulingGates=[{"name": "j10ce.io/hand-over"}])
    there.wait(5.0)
    assert not there.node_of("owner")
    there.change("owner", status={"nominatedNodeName": "n1"})
    there.store.remove(PODS, PLACEHOLDERS, "hold-n1-2")
    there.change("owner", spec={"schedulingGates": None})
    there.wait(0.06)
    assert there.node_of("owner") == "n1"
    assert not there.evicted
    assert not any(there.node_of(f"waits-{number}") for number in range(3))


def test_a_nominated_pod_counts_against_lower_and_equal_priorities_until_it_moves(there: Cluster1) -> None:
    for node in ("n0", "n1"):
        there.pod(f"holds-{node}", PLACEHOLDER, 4000, **_bound_to("nowhere"))
        there.change(f"holds-{node}", status={"nominatedNodeName": node})
    there.wait(0.5)
    there.pod("below", BATCH)
    there.pod("equal", PLACEHOLDER)
    there.pod("above", OWNER)
    there.wait(1.5)
    assert [bool(there.node_of(name)) for name in ("below", "equal", "above")] == [False, False, True]
    there.change("holds-n1", status={"nominatedNodeName": "n0"})
    there.wait(0.3)
    assert there.node_of("below") == there.node_of("equal") == "n1"
    assert not there.evicted


def test_a_nomination_of_a_gated_pod_is_forgotten_by_a_restart_until_its_next_update(there: Cluster1) -> None:
    gates = {"schedulingGates": [{"name": "j10ce.io/hand-over"}]}
    there.pod("owner", OWNER, 4000, **gates)
    there.change("owner", status={"nominatedNodeName": "n0"})
    there.pod("other", BATCH, 4000, nodeName="n1")
    there.wait(0.5)
    there.pod("first", BATCH)
    there.wait(1.0)
    assert not there.node_of("first")
    there.scheduler.kill()
    there.scheduler.start()
    there.wait(3.0)
    assert there.node_of("first") == "n0"


def test_after_a_restart_nothing_is_tried_before_all_nodes_are_listed(there: Cluster1) -> None:
    there.scheduler.kill()
    there.pod("owner", OWNER)
    there.change("owner", status={"nominatedNodeName": "n0"})
    there.client.faults.append(Fault("list", "slow", 1.0))
    there.scheduler.start()
    there.wait(0.5)
    assert there.body("owner")["status"] == {"phase": "Pending", "nominatedNodeName": "n0"}
    there.wait(1.0)
    assert there.node_of("owner") == "n0"


def test_a_pod_with_gates_is_not_tried(there: Cluster1) -> None:
    there.pod("owner", OWNER, schedulingGates=[{"name": "someone/else"}])
    there.node("n2")
    there.wait(400.0)
    assert not there.node_of("owner")
    there.change("owner", spec={"schedulingGates": None})
    there.wait(0.05)
    assert there.node_of("owner")


def test_a_pod_that_may_not_preempt_waits(there: Cluster1) -> None:
    full(there, batch=4)
    there.pod("meek", OWNER, preemptionPolicy="Never")
    there.wait(20.0)
    assert not there.node_of("meek")
    assert not there.evicted


def test_a_pod_gets_the_priority_of_its_class_and_none_without_it(there: Cluster1) -> None:
    there.store.write(PRIORITY_CLASSES, {**objects.priority_class("meek", 7), "preemptionPolicy": "Never"})
    body = objects.pod("one", 100, 64, 0, {})
    body["spec"] = {**body["spec"], "priorityClassName": "meek"}
    there.store.create(PODS, body)
    assert there.body("one")["spec"]["priority"] == 7
    assert there.body("one")["spec"]["preemptionPolicy"] == "Never"
    missing = {**body, "metadata": {"name": "two"}, "spec": {**body["spec"], "priorityClassName": "gone"}}
    with pytest.raises(APIError, match="no PriorityClass"):
        there.store.create(PODS, missing)
