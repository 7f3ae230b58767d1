"""A real Karpenter beside the extender: nodes come for floors, and none goes that holds stand on."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from cli import uninstall
from cli.kubectl import find
from lab import extender_process, karpenter, placeholders
from lab.binaries import silent
from lab.cluster import Cluster
from lab.scheduler_config import with_extender

pytestmark = [pytest.mark.cluster, pytest.mark.full, pytest.mark.timeout(900)]

DEADLINE = 300.0
Object = dict[str, Any]
POLICY: Object = {
    "apiVersion": "j10ce.io/v1alpha1",
    "kind": "MinimalReservationPolicy",
    "metadata": {"name": "checkout", "namespace": "default"},
    "spec": {
        "selector": {"matchLabels": {"app": "checkout"}},
        "floor": {"resources": {"cpu": "3"}},
        "slots": {"count": 2},
    },
}


def batch(name: str) -> Object:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "3"}}}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    metadata = {"name": name, "namespace": "default", "labels": {"app": "batch"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


class Rig:
    """The cluster, and what is in it."""

    def __init__(self, cluster: Cluster, words: Callable[[], str]) -> None:
        self.cluster, self.words = cluster, words

    def create(self, *objects: Object) -> None:
        self.cluster.kubectl("create", "-f", "-", stdin="\n---\n".join(map(json.dumps, objects)))

    def get(self, *what: str) -> Any:
        return json.loads(self.cluster.kubectl("get", *what, "-o", "json"))

    def nodes(self) -> dict[str, Object]:
        """Those that are there to stay, by name."""
        items = self.get("nodes")["items"]
        return {one["metadata"]["name"]: one for one in items if "deletionTimestamp" not in one["metadata"]}

    def status(self) -> Object:
        found: Object = self.get("mrp", "checkout").get("status", {})
        return found

    def held(self) -> set[str]:
        return {one["nodeName"] for one in self.status().get("holds", [])}

    def bound(self) -> int:
        return sum(bool(one["spec"].get("nodeName")) for one in self.get("pods")["items"])

    def wait(self, what: str, ready: Callable[[], Any]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not ready():
            assert time.monotonic() < deadline, f"{what}: not within {DEADLINE:g} s; {self.words()}"
            time.sleep(0.2)


def test_nodes_come_for_slots_and_go_only_where_nothing_is_held(
    make_cluster: Callable[..., Cluster],
) -> None:
    """Two slots and two pods have a node each; when the pods are gone, so are the nodes without holds."""
    folder = karpenter.programs(os.environ, silent)
    cluster = make_cluster(scheduler_config=with_extender("guard"))
    karpenter.start(cluster, folder, idle="5s")
    config = {"autoscaling": {"buffers": True}, "capPercent": 100}
    extender = extender_process.start(cluster, config=config)
    extender.wait_ready()
    rig = Rig(cluster, extender.last_words)
    rig.create(batch("batch-0"), batch("batch-1"))
    rig.wait("the pods have their nodes", lambda: rig.bound() == 2)
    rig.create(POLICY)
    rig.wait("the slots have theirs", lambda: rig.status().get("slots", {}).get("held") == 2)
    held = rig.held()
    assert len(held) == 2
    assert len(rig.nodes()) == 4

    def kept() -> bool:
        nodes = rig.nodes()
        marks = [nodes[name]["metadata"].get("annotations", {}) for name in held]
        return all(one.get("karpenter.sh/do-not-disrupt") == "true" for one in marks)

    rig.wait("Karpenter is told which it must not take", kept)
    cluster.kubectl("delete", "pods", "--all", "--grace-period=0", "--force")

    def fewer() -> bool:
        slots = rig.status()["slots"]
        assert slots["held"] == 2, slots
        return len(rig.nodes()) == 2

    rig.wait("nodes without pods go", fewer)
    assert set(rig.nodes()) == held == rig.held()

    extender.kill()
    program = find(os.environ, cluster.kubeconfig, "")
    assert uninstall.survey(program).buffers == ("default/j10ce-checkout",)
    uninstall.unask(program)
    for kind in ("capacitybuffers", "podtemplates"):
        assert rig.get(kind)["items"] == []


def test_nodes_come_for_placeholders_that_wait(make_cluster: Callable[..., Cluster]) -> None:
    """A node each for two pods and two slots, and no more; without a buffer."""
    folder = karpenter.programs(os.environ, silent)
    cluster = make_cluster()
    karpenter.start(cluster, folder, idle="5s")
    placeholders.install(cluster)
    config = placeholders.config(cluster) | {"autoscaling": {"buffers": True}, "capPercent": 100}
    program = extender_process.start(cluster, config=config)
    program.wait_ready()
    rig = Rig(cluster, program.last_words)
    rig.create(batch("batch-0"), batch("batch-1"), POLICY)
    rig.wait("the pods have their nodes", lambda: rig.bound() == 2)
    rig.wait("the slots have theirs", lambda: rig.status().get("slots", {}).get("held") == 2)

    def guarded() -> bool:
        told = {one["type"]: one["status"] for one in rig.status()["conditions"]}
        return told["Guarded"] == told["Provisioned"] == "True"

    rig.wait("placeholders stand there", guarded)
    assert len(rig.nodes()) == 4
    assert rig.get("capacitybuffers")["items"] == []
    held = rig.held()
    cluster.kubectl("delete", "pods", "--all", "--grace-period=0", "--force")
    rig.wait("nodes without placeholders go", lambda: len(rig.nodes()) == 2)
    assert set(rig.nodes()) == held == rig.held()
