"""Koordinator's Reservations on a real control plane: their definition, our extender, an unmodified
kube-scheduler.
"""

from __future__ import annotations

import json
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import cluster as lab_cluster
from lab import extender_process, nodes
from lab.binaries import Binaries
from lab.cluster import Cluster
from lab.extender_process import ExtenderProcess

pytestmark = [pytest.mark.cluster, pytest.mark.full]

ROOT = Path(__file__).parents[2]
STRICT = ROOT / "scheduler-config" / "strict.yaml"
DEFINITION = ROOT / "lab" / "reservations.yaml"
DEADLINE = 120.0

ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"
AFFINITY = "scheduling.koordinator.sh/reservation-affinity"

Object = dict[str, Any]


def template(cpu: str, **spec: Any) -> Object:
    container = {"name": "main", "image": "registry.invalid/none", "resources": {"requests": {"cpu": cpu}}}
    return {"spec": {"containers": [container], "terminationGracePeriodSeconds": 0} | spec}


def pod(name: str, cpu: str, app: str, **annotations: str) -> Object:
    metadata = {"name": name, "namespace": "default", "labels": {"app": app}, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, **template(cpu)}


def reservation(name: str, cpu: str, app: str, **spec: Any) -> Object:
    owners = [{"labelSelector": {"matchLabels": {"app": app}}}]
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name},
        "spec": {"template": template(cpu, **spec.pop("pod", {})), "owners": owners} | spec,
    }


class Rig:
    """The cluster, the extender, and what they say."""

    def __init__(self, cluster: Cluster, extender: ExtenderProcess) -> None:
        self.cluster, self.extender = cluster, extender

    def create(self, *objects: Object) -> None:
        self.cluster.kubectl("create", "-f", "-", stdin="\n---\n".join(map(json.dumps, objects)))

    def get(self, *what: str) -> Any:
        return json.loads(self.cluster.kubectl("get", *what, "-o", "json"))

    def status(self, name: str) -> Object:
        found: Object = self.get("reservation", name).get("status", {})
        return found

    def node_of(self, name: str) -> str:
        return str(self.get("pod", name)["spec"].get("nodeName", ""))

    def used(self, name: str) -> str:
        """The Reservation that a pod says it uses, "" without one."""
        said = self.get("pod", name)["metadata"].get("annotations", {})
        return str(json.loads(said.get(ALLOCATED, "{}")).get("name", ""))

    def wait(self, ready: Callable[[], Any]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not ready():
            assert time.monotonic() < deadline, f"not within {DEADLINE} s; {self.extender.last_words()}"
            time.sleep(0.05)

    def in_phase(self, name: str, phase: str) -> None:
        self.wait(lambda: self.status(name).get("phase") == phase)

    def uses(self, name: str, reservation: str) -> None:
        """Wait until a pod is bound; it uses this Reservation, "": none."""
        self.wait(lambda: self.node_of(name))
        assert self.used(name) == reservation

    def waits(self, name: str) -> None:
        """Wait until kube-scheduler has tried a pod and found no node for it."""

        def said() -> bool:
            conditions = self.get("pod", name)["status"].get("conditions", [])
            return any(one.get("reason") == "Unschedulable" for one in conditions)

        self.wait(said)
        assert self.node_of(name) == ""


class Case:
    """One node of 4 CPUs, and what is to be there alone: all share a cluster."""

    def __init__(self, rig: Rig, name: str) -> None:
        self.rig, self.name = rig, name
        rig.create(nodes.node(name, {"cpu": "4"}, labels={"case": name}))
        rig.cluster.kubectl("wait", "--for=condition=Ready", "node", name, "--timeout=60s")

    def of(self, name: str) -> str:
        """A name that no other case has."""
        return f"{self.name}-{name}"

    def reserve(self, name: str, cpu: str, labels: dict[str, str] | None = None, **spec: Any) -> str:
        """A Reservation for this case's pods, Available; its name."""
        made = reservation(self.of(name), cpu, self.name, pod={"nodeSelector": {"case": self.name}}, **spec)
        made["metadata"]["labels"] = labels or {}
        self.rig.create(made)
        self.rig.in_phase(self.of(name), "Available")
        return self.of(name)

    def pod(self, name: str, cpu: str, labels: dict[str, str] | None = None, **affinity: Any) -> str:
        """A pod that the case's Reservations are for; its name. `affinity`: its reservation-affinity."""
        said = {AFFINITY: json.dumps(affinity)} if affinity else {}
        made = pod(self.of(name), cpu, self.name, **said)
        made["metadata"]["labels"] |= labels or {}
        made["spec"]["nodeSelector"] = {"case": self.name}
        self.rig.create(made)
        return self.of(name)


@pytest.fixture(scope="module")
def rig(binaries: Binaries) -> Iterator[Rig]:
    """A control plane with the definition and our extender, for the cases of Koordinator's documentation."""
    name = f"test-{secrets.token_hex(3)}"
    cluster = lab_cluster.up(name, binaries=binaries, scheduler_config=STRICT)
    cluster.kubectl("create", "-f", str(DEFINITION))
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", str(DEFINITION))
    yield Rig(cluster, start(cluster))
    lab_cluster.down(name)


def start(cluster: Cluster) -> ExtenderProcess:
    """Our extender, ready, which heeds Reservations."""
    config = {"koordinator": {"reservations": True}}
    extender = extender_process.start(cluster, mode="Strict", config=config, extra=["--cap-percent", "100"])
    extender.wait_ready()
    return extender


def test_reservations_from_a_missing_definition_to_their_end(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(STRICT)
    extender = start(cluster)
    rig = Rig(cluster, extender)
    assert "reservations.scheduling.koordinator.sh not listed" in extender.log.read_text()
    rig.create(*nodes.nodes("node", 2, {"cpu": "4"}))
    cluster.kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=60s")
    cluster.kubectl("create", "-f", str(DEFINITION))
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", str(DEFINITION))

    # Held against everybody, and used up by the first owner.
    rig.create(reservation("once", "3", "web"), reservation("pool", "3", "job", allocateOnce=False))
    for name in ("once", "pool"):
        rig.in_phase(name, "Available")
    kept = rig.status("once")
    assert kept["allocatable"] == {"cpu": "3"}
    assert kept["nodeName"] != rig.status("pool")["nodeName"]
    rig.create(pod("large", "2", "other"), pod("web-0", "2", "web"))
    rig.in_phase("once", "Succeeded")
    assert (rig.node_of("web-0"), rig.used("web-0")) == (kept["nodeName"], "once")
    done = rig.status("once")
    assert [one["name"] for one in done["currentOwners"]] == ["web-0"]
    assert done["allocated"] == {"cpu": "2"}
    rig.wait(lambda: rig.node_of("large") == kept["nodeName"])  # what the owner did not need is free

    # Shared: what its pods leave is held, over a kill -9, and given back when one ends.
    pool = rig.status("pool")["nodeName"]
    rig.create(pod("job-0", "2", "job"))
    rig.wait(lambda: rig.status("pool").get("allocated") == {"cpu": "2"})
    extender.kill(signal.SIGKILL)
    extender.restart()
    extender.wait_ready()
    must = json.dumps({"name": "pool"})
    rig.create(pod("other-0", "2", "other"), pod("job-1", "1", "job", **{AFFINITY: must}))
    rig.wait(lambda: rig.node_of("job-1") == pool)
    rig.wait(lambda: rig.status("pool").get("allocated") == {"cpu": "3"})
    assert rig.node_of("other-0") == ""
    cluster.kubectl("delete", "pod", "job-0", "--wait=false")
    rig.wait(lambda: rig.status("pool").get("allocated") == {"cpu": "1"})

    # Its time is over: what it held is free.
    soon = {"spec": {"ttl": "1s"}}
    cluster.kubectl("patch", "reservation", "pool", "--type=merge", "-p", json.dumps(soon))
    rig.in_phase("pool", "Failed")
    rig.wait(lambda: rig.node_of("other-0") == pool)

    # What is not honoured is said, and a node that is lost ends it.
    rig.create(reservation("tiny", "10m", "nobody", preAllocation=True, pod={"nodeName": pool}))
    rig.in_phase("tiny", "Available")
    conditions = {one["type"]: one for one in rig.status("tiny")["conditions"]}
    assert "spec.preAllocation" in conditions["Honoured"]["message"]
    cluster.kubectl("delete", "node", pool)
    rig.in_phase("tiny", "Failed")


@pytest.mark.parametrize(("policy", "given"), [("Restricted", False), ("Aligned", True)])
def test_a_pod_that_asks_for_more_than_remains_is_an_owner_where_the_node_may_give_it(
    rig: Rig, policy: str, given: bool
) -> None:
    case = Case(rig, policy.lower())
    shared = case.reserve("shared", "3", allocateOnce=False, allocatePolicy=policy)
    rig.uses(case.pod("first", "2"), shared)
    second = case.pod("second", "2")  # 1 is left of the Reservation, and 1 of the node
    if given:
        rig.uses(second, shared)
        return
    rig.waits(second)
    rig.uses(case.pod("third", "1"), shared)
    rig.wait(lambda: rig.status(shared).get("allocated") == {"cpu": "3"})
    rig.uses(case.pod("fourth", "1"), "")  # no owner, but any pod may have what the node has left


def test_the_lowest_order_is_used_first_and_none_last(rig: Rig) -> None:
    case, label = Case(rig, "order"), "scheduling.koordinator.sh/reservation-order"
    last = case.reserve("a", "1")
    second = case.reserve("b", "1", {label: "20"})
    first = case.reserve("c", "1", {label: "3"})
    for number, expected in enumerate((first, second, last)):
        rig.uses(case.pod(str(number), "1"), expected)


def test_a_taint_is_tolerated_in_the_affinity_alone(rig: Rig) -> None:
    case, labels = Case(rig, "taint"), {"team": "gold"}
    taint = {"key": "team", "value": "gold", "effect": "NoSchedule"}
    tainted = case.reserve("tainted", "3", labels, taints=[taint])
    rig.waits(case.pod("none", "2"))
    rig.waits(case.pod("selects", "1", reservationSelector=labels))  # and so may not have what is free
    tolerations = [{"operator": "Equal"} | taint]
    rig.uses(case.pod("tolerates", "3", reservationSelector=labels, tolerations=tolerations), tainted)


def test_one_that_is_unschedulable_keeps_its_room_and_takes_nobody_new(rig: Rig) -> None:
    case = Case(rig, "cordon")
    closed = case.reserve("closed", "3", unschedulable=True)
    owner = case.pod("owner", "2")
    rig.waits(owner)
    assert rig.status(closed)["phase"] == "Available"
    opened = json.dumps({"spec": {"unschedulable": False}})
    rig.cluster.kubectl("patch", "reservation", closed, "--type=merge", "-p", opened)
    rig.uses(owner, closed)


def test_owners_by_controller_are_its_pods_only(rig: Rig) -> None:
    case = Case(rig, "controller")
    labels = {"app": case.name}
    body = {"metadata": {"labels": labels}, **template("2", nodeSelector={"case": case.name})}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": body}
    kind = {"apiVersion": "apps/v1", "kind": "ReplicaSet"}
    rig.create(kind | {"metadata": {"name": case.name, "namespace": "default"}, "spec": spec})
    by = kind | {"name": case.name, "uid": rig.get("replicaset", case.name)["metadata"]["uid"]}
    kept = case.reserve("kept", "3", owners=[{"controller": by | {"namespace": "default"}}])
    # A pod of the ReplicaSet's labels would be adopted by it.
    rig.waits(case.pod("alone", "2", {"app": "another"}))
    rig.cluster.kubectl("scale", "replicaset", case.name, "--replicas=1")
    rig.in_phase(kept, "Succeeded")
    (owner,) = rig.status(kept)["currentOwners"]
    rig.uses(owner["name"], kept)
    assert owner["name"].startswith(f"{case.name}-")


def test_an_owner_by_object_is_this_pod_only(rig: Rig) -> None:
    case = Case(rig, "object")
    kept = case.reserve("kept", "3", owners=[{"object": {"name": case.of("owner"), "namespace": "default"}}])
    rig.waits(case.pod("another", "2"))
    rig.uses(case.pod("owner", "2"), kept)


def test_a_pod_that_ignores_reservations_uses_none_and_leaves_what_they_hold(rig: Rig) -> None:
    case, label = Case(rig, "ignored"), {"scheduling.koordinator.sh/reservation-ignored": "true"}
    kept = case.reserve("kept", "3")
    rig.waits(case.pod("large", "2", label))
    rig.uses(case.pod("small", "1", label), "")
    assert rig.status(kept)["phase"] == "Available"
    rig.uses(case.pod("owner", "3"), kept)
