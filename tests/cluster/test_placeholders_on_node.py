"""Placeholders on a real kubelet: what bypasses the scheduler is refused, owners never are."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lab import extender_process, placeholders
from lab.cluster import Cluster
from lab.extender_process import ExtenderProcess
from lab.node.node import RealNode
from lab.node.rig import real_node
from lab.runtimes.images import PAUSE
from qos import keys
from qos.quantity import parse
from tests.waiting import until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.full,  # minutes, beside a load of 40 a quarter of an hour
    pytest.mark.timeout(3600),
    pytest.mark.skipif(os.geteuid() != 0, reason="a real node needs cgroups, namespaces and mounts: be root"),
]

SLOTS = 10
"""On the node; together all of its CPU but less than one slot."""
OWNERS = 200
PAST = 5
"""Times that as many pods as there are slots come past the scheduler."""
SECONDS = 240.0
Object = dict[str, Any]
HIGH = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 1000,
}


def is_taken(pod: Object) -> bool:
    """kubelet has admitted or refused it."""
    return "startTime" in pod["status"] or pod["status"]["phase"] == "Failed"


class Rig:
    """A real node that has nothing left beside one policy's placeholders, and our program that makes them."""

    def __init__(self, cluster: Cluster, node: RealNode, image: str) -> None:
        self.cluster, self.node, self.image = cluster, node, image
        placeholders.install(cluster)
        config = placeholders.config(cluster)
        config["placeholders"]["image"] = image
        self.program: ExtenderProcess = extender_process.start(
            cluster, config=config, extra=["--cap-percent=100"]
        )
        self.program.wait_ready()
        allocatable = self.get("node", node.name)["status"]["allocatable"]["cpu"]
        self.cpu = f"{parse('cpu', allocatable) // SLOTS}m"
        self.create(HIGH, self.policy())
        self.wait(lambda: len(self.taken()) == SLOTS, "a placeholder for each slot")

    def policy(self) -> Object:
        spec = {
            "selector": {"matchLabels": {"app": "checkout"}},
            "floor": {"resources": {"cpu": self.cpu}},
            "slots": {"count": SLOTS},
            "priorityClassName": "high",
        }
        kind = {"apiVersion": keys.API_VERSION, "kind": "MinimalReservationPolicy"}
        return {**kind, "metadata": {"name": "checkout", "namespace": "default"}, "spec": spec}

    def pod(self, name: str, **spec: Any) -> Object:
        container = {
            "name": "main",
            "image": PAUSE,
            "imagePullPolicy": "Never",
            "resources": {"requests": {"cpu": self.cpu}},
        }
        own = {
            "priorityClassName": "high",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "containers": [container],
        }
        metadata = {"name": name, "namespace": "default", "labels": {"app": name.partition("-")[0]}}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": own | spec}

    def create(self, *objects: Object) -> None:
        self.cluster.kubectl("create", "-f", "-", stdin="\n---\n".join(map(json.dumps, objects)))

    def get(self, *what: str) -> Any:
        return json.loads(self.cluster.kubectl("get", *what, "-o", "json"))

    def pods(self, namespace: str = "default") -> list[Object]:
        found: list[Object] = self.get("pods", "-n", namespace)["items"]
        return found

    def pods_of(self, name: str) -> list[Object]:
        return [one for one in self.pods() if one["metadata"]["name"].startswith(f"{name}-")]

    def held(self) -> int:
        slots = self.get("mrp", "checkout").get("status", {}).get("slots", {})
        return int(slots.get("held", 0))

    def taken(self) -> list[Object]:
        return [one for one in self.pods(placeholders.NAMESPACE) if is_taken(one)]

    def wait(self, ready: Callable[[], Any], what: str) -> None:
        until(ready, what, SECONDS, lambda: f"{self.told()} {self.program.last_words()}")

    def told(self) -> list[tuple[str, str, Any, Any]]:
        """Of each pod the name, the node, the phase and why it waits."""
        return [
            (
                one["metadata"]["name"],
                one["spec"].get("nodeName", ""),
                one["status"].get("phase"),
                [c.get("message") for c in one["status"].get("conditions", ()) if c["status"] == "False"],
            )
            for one in (*self.pods(), *self.pods(placeholders.NAMESPACE))
        ]

    def delete_pods(self) -> None:
        self.cluster.kubectl("delete", "pods", "-n", "default", "--all")


@pytest.fixture(params=["", PAUSE], ids=["never", "pause"])
def rig(request: pytest.FixtureRequest, make_cluster: Callable[..., Cluster]) -> Iterator[Rig]:
    cluster = make_cluster()
    with real_node(cluster) as node:
        yield Rig(cluster, node, request.param)


def test_a_pod_that_bypasses_the_scheduler_is_refused(rig: Rig) -> None:
    """Whoever waits for its turn gets nothing by that: the placeholders stay."""
    runs = "Running" if rig.image else "Pending"
    rig.wait(lambda: [one["status"]["phase"] for one in rig.taken()] == [runs] * SLOTS, f"all are {runs}")
    before = {one["metadata"]["uid"] for one in rig.taken()}
    rig.create(*(rig.pod(f"waits-{number}") for number in range(SLOTS)))
    for turn in range(PAST):
        past = f"past-{turn}"
        rig.create(*(rig.pod(f"{past}-{number}", nodeName=rig.node.name) for number in range(SLOTS)))
        rig.wait(lambda past=past: all(map(is_taken, rig.pods_of(past))), "kubelet has decided")
        told = {(one["status"]["phase"], one["status"]["reason"]) for one in rig.pods_of(past)}
        assert told == {("Failed", "OutOfcpu")}
    rig.wait(lambda: rig.held() == SLOTS, "all slots are held")
    assert {one["metadata"]["uid"] for one in rig.taken()} == before
    assert not any("nodeName" in one["spec"] for one in rig.pods_of("waits"))


def test_an_owner_is_admitted_every_time(rig: Rig) -> None:
    """On a node that has nothing else left, ten at once."""
    for turn in range(OWNERS // SLOTS):
        rig.create(*(rig.pod(f"checkout-{turn}-{number}") for number in range(SLOTS)))
        rig.wait(lambda: all(map(is_taken, rig.pods())), f"turn {turn}: kubelet has decided about all")
        assert {one["status"]["phase"] for one in rig.pods()} <= {"Pending", "Running"}, rig.told()
        rig.delete_pods()
        rig.wait(lambda: len(rig.taken()) == SLOTS, f"turn {turn}: placeholders are there again")
    events = rig.get("events", "-A")["items"]
    assert [one for one in events if one["reason"] in ("Preempted", "OutOfcpu")] == []
