"""Placeholders keep holds on a kube-scheduler that was never told of us."""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from typing import Any

import pytest

from cli import admission, installation
from cli.install import apply
from cli.kubectl import find
from lab import extender_process, nodes, placeholders
from lab.cluster import Cluster, LabError
from lab.extender_process import ExtenderProcess
from manifests import OVERLAYS
from qos import keys
from tests.cluster.test_installed_rights import as_account
from tests.waiting import until

pytestmark = pytest.mark.cluster

Object = dict[str, Any]
HIGH = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 1000,
}

BACK_OFF_SECONDS = 5.0
"""kube-scheduler's own is one at first, ten at the most."""


def pod(name: str, cpu: str, app: str, **spec: Any) -> Object:
    container = {"name": "main", "image": "registry.invalid/none", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "namespace": "default", "labels": {"app": app}}
    body = {"containers": [container], "terminationGracePeriodSeconds": 0} | spec
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}


def policy(slots: int, cpu: str, **spec: Any) -> Object:
    body = {
        "selector": {"matchLabels": {"app": "checkout"}},
        "floor": {"resources": {"cpu": cpu}},
        "slots": {"count": slots},
    }
    metadata = {"name": "checkout", "namespace": "default"}
    kind = {"apiVersion": keys.API_VERSION, "kind": "MinimalReservationPolicy"}
    return {**kind, "metadata": metadata, "spec": body | spec}


class Rig:
    """A cluster, and our program beside it; `account`: by its rights; `config`: of its own."""

    def __init__(self, cluster: Cluster, account: Cluster | None = None, **config: Any) -> None:
        self.cluster = cluster
        if account is None:
            placeholders.install(cluster)
        lease = [] if account is None else ["--lease=j10ce-system/j10ce-extender"]
        self.program: ExtenderProcess = extender_process.start(
            account or cluster,
            config={**placeholders.config(cluster), **config},
            extra=["--cap-percent=100", *lease],
        )
        self.program.wait_ready()

    def create(self, *objects: Object) -> None:
        self.cluster.kubectl("create", "-f", "-", stdin="\n---\n".join(json.dumps(one) for one in objects))

    def get(self, *what: str) -> Any:
        return json.loads(self.cluster.kubectl("get", *what, "-o", "json"))

    def with_nodes(self, count: int, cpu: str) -> None:
        self.create(*nodes.nodes("node", count, {"cpu": cpu}))
        self.cluster.kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=60s")

    def bound(self, app: str) -> list[Object]:
        return [one for one in self.get("pods", "-l", f"app={app}")["items"] if one["spec"].get("nodeName")]

    def stand(self) -> int:
        there = self.get("pods", "-n", placeholders.NAMESPACE)["items"]
        return sum(bool(one["spec"].get("nodeName")) for one in there)

    def stand_by(self) -> int:
        there = self.get("pods", "-n", placeholders.NAMESPACE)["items"]
        return sum("nodeName" not in one["spec"] and "nominatedNodeName" in one["status"] for one in there)

    def refused(self, app: str) -> int:
        """How many kube-scheduler has no place for."""
        return _refused(self.get("pods", "-l", f"app={app}")["items"])

    def priorities(self) -> Counter[tuple[int, bool]]:
        """Of placeholders: how many there are of each, bound or not."""
        there = self.get("pods", "-n", placeholders.NAMESPACE)["items"]
        return Counter((one["spec"]["priority"], bool(one["spec"].get("nodeName"))) for one in there)

    def refused_placeholders(self) -> int:
        """Likewise, since so long ago that its first back-off is over."""
        return _refused(self.get("pods", "-n", placeholders.NAMESPACE)["items"], BACK_OFF_SECONDS)

    def classes(self, app: str) -> dict[str, tuple[str, int]]:
        """PriorityClass and priority of the bound pods."""
        specs = {one["metadata"]["name"]: one["spec"] for one in self.bound(app)}
        return {name: (spec.get("priorityClassName", ""), spec["priority"]) for name, spec in specs.items()}

    def refuses(self, one: Object) -> str:
        """What the API server says to a tenant's object that it does not take."""
        tenant = ("--as=tenant", "--as-group=system:masters")
        with pytest.raises(LabError) as raised:
            self.cluster.kubectl("create", "-f", "-", *tenant, stdin=json.dumps(one))
        return str(raised.value)

    def places(self) -> Counter[str]:
        there = self.get("pods", "-n", placeholders.NAMESPACE)["items"]
        return Counter(one["spec"]["nodeName"] for one in there if one["spec"].get("nodeName"))

    def evicted(self) -> int:
        events = self.get("events", "-A")["items"]
        return sum(one["reason"] == "Preempted" for one in events)

    def counts_evictions(self) -> bool:
        """Whether each eviction is in the metric, and told by an Event of the policy."""
        told = [one for one in self.get("events", "-A")["items"] if one["reason"] == "EvictedForOwner"]
        return self.metric("j10ce_owner_evictions_total") == len(told) == self.evicted()

    def story(self) -> str:
        """Why there may have been evictions."""
        with urllib.request.urlopen(f"{self.program.url}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        told = [line for line in lines if line.startswith(("j10ce_hand_overs", "j10ce_gate_reviews"))]
        events = [f"{one['reason']}: {one['message']}" for one in self.get("events", "-A")["items"]]
        return "\n".join(
            [*told, *(line for line in events if line.startswith("Preempted")), self.program.last_words()]
        )

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(f"{self.program.url}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    def wait(self, ready: Callable[[], Any], what: str, seconds: float = 60.0) -> float:
        began = time.monotonic()
        until(ready, what, seconds, self.program.last_words)
        return time.monotonic() - began


def _refused(pods: list[Object], seconds: float = 0.0) -> int:
    """How many have no node, and have been said to be unschedulable for so long."""
    waiting = [one for one in pods if "nodeName" not in one["spec"]]
    conditions = (one for pod in waiting for one in pod["status"].get("conditions", ()))
    since = [one["lastTransitionTime"] for one in conditions if one.get("reason") == "Unschedulable"]
    return sum(time.time() - datetime.fromisoformat(one).timestamp() >= seconds for one in since)


@pytest.fixture
def rig(make_cluster: Callable[..., Cluster]) -> Iterator[Rig]:
    return Rig(make_cluster())


def full_of_batch(rig: Rig, slots: int, nodes: int, **spec: Any) -> int:
    """So many nodes of 8 CPUs full of placeholders for slots of 2 CPUs and batch pods of 1, more of which
    wait; how many are bound.
    """
    rig.with_nodes(nodes, "8")
    rig.create(HIGH, policy(slots, "2", **spec))
    rig.wait(lambda: rig.stand() == slots, "a placeholder for each slot")
    room = 8 * nodes - 2 * slots
    rig.create(*(pod(f"batch-{number}", "1", "batch") for number in range(room + 10)))
    rig.wait(lambda: len(rig.bound("batch")) == room, "batch pods take the rest")
    return room


@pytest.mark.full
def test_owners_get_their_places_on_a_full_cluster_and_nobody_is_evicted(rig: Rig) -> None:
    """First with the program there, then while it is dead, and what that costs is mended when it is back."""
    room = full_of_batch(rig, 6, 3, priorityClassName="high")
    rig.create(*(pod(f"checkout-{number}", "2", "checkout", priorityClassName="high") for number in range(4)))
    rig.wait(lambda: len(rig.bound("checkout")) == 4, "four owners are bound")
    assert rig.evicted() == 0, rig.story()
    assert len(rig.bound("batch")) == room
    assert rig.metric('j10ce_hand_overs_total{outcome="handed"}') == 4
    assert rig.metric('j10ce_gate_reviews_total{outcome="gated"}') == 4
    assert rig.stand() == 2
    rig.program.kill()
    rig.create(pod("checkout-4", "2", "checkout", priorityClassName="high"))
    rig.wait(lambda: len(rig.bound("checkout")) == 5, "an owner is bound while nobody hands over")
    rig.program.restart()
    rig.program.wait_ready()
    rig.wait(lambda: slots(rig) == (5, 1, 0), "one hold is left, and none too many")
    rig.wait(lambda: rig.stand() == 1, "and its placeholder")
    rig.wait(lambda: rig.counts_evictions(), "what that cost is counted")


def test_a_stranger_of_the_owners_own_priority_takes_no_hold(rig: Rig) -> None:
    """On an idle cluster and on a full one; owners get in with the program there, and while it is dead."""
    rig.with_nodes(2, "8")
    rig.create(HIGH, policy(2, "2", priorityClassName="high"))
    rig.wait(lambda: rig.stand() == 2, "a placeholder for each slot")
    rig.wait(
        lambda: rig.get("mrp", "checkout").get("status", {}).get("ownerPriority") == 1001, "owners are raised"
    )
    rig.wait(lambda: registered(rig), "the webhook is registered")
    high = {"priorityClassName": "high"}
    rig.create(pod("large-0", "8", "stranger", **high), pod("large-1", "8", "stranger", **high))
    rig.wait(lambda: len(rig.bound("stranger")) == 1 and rig.refused("stranger") == 1, "one has no place")
    rig.cluster.kubectl("delete", "pods", "-l", "app=stranger")
    rig.create(*(pod(f"batch-{number}", "1", "batch") for number in range(12)))
    rig.wait(lambda: len(rig.bound("batch")) == 12, "batch pods take the rest")
    rig.create(*(pod(f"small-{number}", "1", "stranger", **high) for number in range(7)))
    rig.wait(lambda: len(rig.bound("stranger")) == 7, "strangers evict whom they outrank")
    rig.create(pod("large-2", "8", "stranger", **high))
    rig.wait(lambda: rig.refused("stranger") == 1, "and nobody else")
    assert rig.stand() == 2
    evicted = rig.evicted()
    rig.create(pod("checkout-0", "2", "checkout", **high))
    rig.wait(lambda: rig.classes("checkout") == {"checkout-0": ("high", 1000)}, "an owner is bound as it was")
    assert (rig.stand(), rig.evicted()) == (1, evicted)
    rig.program.kill()
    rig.create(pod("checkout-1", "2", "checkout", **high))
    raised = ("j10ce-owner-1001", 1001)
    rig.wait(lambda: rig.classes("checkout").get("checkout-1") == raised, "one is raised, and bound")
    forged = pod("forged", "1", "checkout", priorityClassName="j10ce-owner-1001")
    forged["metadata"]["labels"][keys.RAISED_PRIORITY_LABEL] = "true"
    assert "j10ce-owner-N are given by j10ce-qos alone" in rig.refuses(forged)
    own_class = HIGH | {"metadata": {"name": "j10ce-owner-5"}}
    assert "j10ce-owner-N are made by j10ce-qos" in rig.refuses(own_class)


@pytest.mark.parametrize("named", [True, False])
def test_owners_that_crash_on_a_full_cluster_lose_no_slot(rig: Rig, named: bool) -> None:
    """With a class above ordinary pods' and without one; one after the other, and two at once."""
    spec = {"priorityClassName": "high"} if named else {}
    room = full_of_batch(rig, 6, 3, **spec)
    rig.create(*(pod(f"checkout-{number}", "2", "checkout", **spec) for number in range(6)))
    rig.wait(lambda: len(rig.bound("checkout")) == 6, "owners are bound")
    for gone, more in (
        (["checkout-0"], []),
        (["checkout-1"], []),
        (["checkout-2", "checkout-3"], ["checkout-6"]),
    ):
        rig.wait(lambda: rig.stand_by() == len(rig.bound("checkout")), "for each owner one stands by")
        before = len(rig.bound("checkout"))
        rig.cluster.kubectl("delete", "pods", *gone)
        if more:
            rig.create(*(pod(name, "2", "checkout", **spec) for name in more))
        left = before - len(gone) + len(more)
        rig.wait(lambda left=left: slots(rig) == (left, 6 - left, 0), "no slot is lost")  # type: ignore[misc]
        rig.wait(lambda left=left: rig.stand() == 6 - left, "placeholders stand")  # type: ignore[misc]
        assert len(rig.bound("batch")) == room, rig.story()
    assert rig.evicted() == 0, rig.story()


def test_who_stands_by_is_in_nobodys_way_for_long(rig: Rig) -> None:
    """Room for less than a slot is for others; that of an owner is not."""
    rig.with_nodes(1, "8")
    rig.create(policy(1, "3"))
    rig.wait(lambda: rig.stand() == 1, "a placeholder for the slot")
    rig.create(pod("checkout-0", "3", "checkout"), *(pod(f"batch-{n}", "1", "batch") for n in range(4)))
    rig.wait(lambda: len(rig.bound("batch")) == 4 and rig.stand_by() == 1, "one CPU is free, one stands by")
    rig.create(pod("fits", "1", "batch"), pod("waits", "1", "batch"))
    rig.wait(lambda: len(rig.bound("batch")) == 5 and rig.stand_by() == 1, "one more gets in")
    rig.cluster.kubectl("delete", "pods", "checkout-0")
    rig.wait(lambda: slots(rig) == (0, 1, 0) and rig.stand() == 1, "the slot is held")
    assert len(rig.bound("batch")) == 5


def test_an_unplaced_slot_comes_before_pods_that_wait(rig: Rig) -> None:
    """A lower policy gives a hold to a higher one: it waits below all policies, and is held at its own."""
    rig.with_nodes(2, "4")
    middle = HIGH | {"metadata": {"name": "middle"}, "value": 500}
    other = policy(1, "1", priorityClassName="middle", selector={"matchLabels": {"app": "other"}})
    rig.create(HIGH, middle, policy(3, "1", priorityClassName="high"))
    rig.create(other | {"metadata": {"name": "other", "namespace": "default"}})
    rig.wait(lambda: rig.priorities() == Counter({(1000, True): 3, (500, True): 1}), "one for each slot")
    rig.create(*(pod(f"batch-{number}", "1", "batch") for number in range(14)))
    rig.wait(lambda: len(rig.bound("batch")) == 4 and rig.refused("batch") == 10, "batch pods take the rest")
    rig.cluster.kubectl("patch", "mrp", "checkout", "--type=merge", "-p", '{"spec": {"slots": {"count": 4}}}')
    rig.wait(lambda: rig.refused_placeholders() == 1, "one waits for the slot that has no place")
    assert rig.priorities() == Counter({(1000, True): 4, (499, False): 1})
    first, *_ = rig.bound("batch")
    rig.cluster.kubectl("delete", "pod", first["metadata"]["name"])
    every = Counter({(1000, True): 4, (500, True): 1})
    rig.wait(lambda: rig.priorities() == every, "it gets the first that comes free")
    assert slots(rig) == (0, 4, 0)
    assert (len(rig.bound("batch")), rig.evicted()) == (3, 0), rig.story()


def slots(rig: Rig) -> tuple[int, int, int]:
    found = rig.get("mrp", "checkout").get("status", {}).get("slots", {})
    return found.get("filled", 0), found.get("held", 0), found.get("unplaced", 0)


def test_a_gate_that_was_left_is_lifted(rig: Rig) -> None:
    """The program died between gate and hand-over: the owner is handed over to when it is back."""
    rig.with_nodes(1, "8")
    rig.create(HIGH, policy(2, "2", priorityClassName="high"))
    rig.wait(lambda: rig.stand() == 2, "a placeholder for each slot")
    rig.program.kill()
    gated = {"schedulingGates": [{"name": keys.HAND_OVER_GATE}], "priorityClassName": "high"}
    rig.create(pod("checkout-0", "2", "checkout", **gated))
    rig.program.restart()
    rig.wait(lambda: len(rig.bound("checkout")) == 1, "the owner is bound")
    rig.wait(lambda: rig.stand() == 1, "one placeholder is left")


def test_a_node_is_drained_and_deleted_and_made_again(rig: Rig) -> None:
    rig.with_nodes(2, "8")
    rig.create(HIGH, policy(3, "2", priorityClassName="high"))
    rig.wait(lambda: rig.stand() == 3, "a placeholder for each slot")
    (left, *_) = rig.places()
    (other,) = {"node-0", "node-1"} - {left}
    rig.cluster.kubectl("cordon", left)
    rig.wait(lambda: rig.places() == {other: 3}, "placeholders have left the node")
    rig.cluster.kubectl("drain", left, "--timeout=10s")  # it refuses pods without a controller
    rig.cluster.kubectl("delete", "node", left)
    rig.cluster.kubectl("patch", "mrp", "checkout", "--type=merge", "-p", '{"spec": {"slots": {"count": 7}}}')
    rig.wait(lambda: rig.places() == {other: 4} and slots(rig) == (0, 4, 3), "the other node is full")
    rig.create(*(one for one in nodes.nodes("node", 2, {"cpu": "8"}) if one["metadata"]["name"] == left))
    rig.wait(lambda: rig.places() == {other: 4, left: 3}, "and the rest lies on the node that is back")


@pytest.mark.full
def test_a_hundred_owners_at_once_on_a_full_cluster(rig: Rig) -> None:
    room = full_of_batch(rig, 100, 30, priorityClassName="high")
    owners = [pod(f"checkout-{n}", "2", "checkout", priorityClassName="high") for n in range(100)]
    rig.create(*owners)
    rig.wait(lambda: len(rig.bound("checkout")) == 100, "all owners are bound")
    assert rig.evicted() == 0, rig.story()
    assert len(rig.bound("batch")) == room
    assert rig.metric('j10ce_hand_overs_total{outcome="handed"}') == 100


@pytest.mark.full
def test_floors_stay_while_the_program_is_dead_for_a_whole_flood(rig: Rig) -> None:
    """Owners get in by preemption then; what it costs is one batch pod each at the most."""
    rig.with_nodes(3, "8")
    rig.create(HIGH, policy(4, "2", priorityClassName="high"))
    rig.wait(lambda: rig.stand() == 4, "a placeholder for each slot")
    rig.program.kill()
    rig.create(*(pod(f"batch-{number}", "1", "batch") for number in range(40)))
    rig.wait(lambda: len(rig.bound("batch")) == 16, "batch pods take what is not held")
    rig.cluster.kill("kube-scheduler")
    rig.cluster.start("kube-scheduler")
    assert rig.stand() == 4
    rig.create(*(pod(f"checkout-{n}", "2", "checkout", priorityClassName="high") for n in range(4)))
    rig.wait(lambda: len(rig.bound("checkout")) == 4, "owners are bound")
    assert len(rig.bound("batch")) >= 8
    rig.program.restart()
    rig.wait(lambda: slots(rig) == (4, 0, 0), "every slot is filled")
    rig.wait(lambda: rig.stand() == 0, "no hold is left")
    rig.wait(lambda: len(rig.bound("batch")) == 16, "batch pods have the rest again")
    rig.wait(lambda: rig.counts_evictions(), "what that cost is counted")


@pytest.mark.full
def test_eighty_owners_at_once_on_three_nodes_evict_nobody(rig: Rig) -> None:
    """One owner a node at a time: kube-scheduler counts who is nominated beside the placeholder that goes."""
    rig.with_nodes(3, "80")
    rig.create(HIGH, policy(100, "2", priorityClassName="high"))
    rig.wait(lambda: rig.stand() == 100, "a placeholder for each slot")
    rig.create(*(pod(f"batch-{number}", "1", "batch") for number in range(80)))
    rig.wait(lambda: len(rig.bound("batch")) == 40, "batch pods take the rest")
    rig.create(*(pod(f"checkout-{n}", "2", "checkout", priorityClassName="high") for n in range(80)))
    rig.wait(lambda: len(rig.bound("checkout")) == 80, "all owners are bound")
    assert rig.evicted() == 0, rig.story()
    assert len(rig.bound("batch")) == 40


@pytest.mark.full
def test_a_refused_pod_is_bound_soon_after_a_hold_has_moved(rig: Rig) -> None:
    """Ten pods, each of which a hold has to leave its node for; the goal is a median of 0.3 s."""
    rig.with_nodes(10, "8")
    rig.create(
        *(
            pod(f"a-{n}", "4", "batch", nodeSelector={"kubernetes.io/hostname": f"node-{n}"})
            for n in range(10)
        )
    )
    rig.wait(lambda: len(rig.bound("batch")) == 10, "half of each node is taken")
    rig.create(HIGH, policy(10, "2", priorityClassName="high", placement={"maxSlotsPerNode": 1}))
    rig.wait(lambda: rig.stand() == 10, "a placeholder on each")
    rig.create(*nodes.nodes("more", 10, {"cpu": "8"}))
    rig.cluster.kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=60s")
    rig.create(
        *(
            pod(f"b-{n}", "6", "batch", nodeSelector={"kubernetes.io/hostname": f"more-{n}"})
            for n in range(10)
        )
    )
    rig.wait(lambda: len(rig.bound("batch")) == 20, "and more of the other ones")
    for number in range(10):
        rig.create(pod(f"large-{number}", "4", "large"))
        rig.wait(partial(bound_now, rig, "large", number + 1), "a hold moves out of its way")
    took = sorted(from_refusal_to_bind(rig, "large-"))
    assert len(took) == 10
    assert took[5] <= 3.0, took
    assert rig.stand() == 10
    assert rig.evicted() == 0


def bound_now(rig: Rig, app: str, count: int) -> bool:
    return len(rig.bound(app)) == count


def from_refusal_to_bind(rig: Rig, prefix: str) -> list[float]:
    """Seconds from the first refusal of each pod to its bind, by kube-scheduler's Events."""
    at: dict[tuple[str, str], float] = {}
    for one in rig.get("events")["items"]:
        key = one["involvedObject"]["name"], one["reason"]
        if key[0].startswith(prefix) and one.get("eventTime"):
            seconds = datetime.fromisoformat(one["eventTime"]).timestamp()
            at[key] = min(seconds, at.get(key, seconds))
    return [at[name, "Scheduled"] - since for (name, why), since in at.items() if why == "FailedScheduling"]


def test_it_does_its_work_with_the_installed_rights_and_nobody_else_makes_placeholders(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster(crds=False)
    kubectl = find(os.environ, cluster.kubeconfig, "")
    chosen = installation.Choices(placeholders=True, manager=False, raising=admission.raising(kubectl))
    wanted = installation.objects(kubectl, OVERLAYS[0], chosen)
    apply(kubectl, [item for item in wanted if item["kind"] != "Deployment"], force_conflicts=False)
    rig = Rig(cluster, as_account(cluster, kubectl))
    rig.with_nodes(1, "8")
    rig.create(HIGH, policy(2, "2", priorityClassName="high"))
    rig.wait(lambda: rig.stand() == 2, "a placeholder for each slot")
    rig.wait(lambda: registered(rig), "the webhook is registered")
    rig.create(pod("checkout-0", "2", "checkout", priorityClassName="high"))
    rig.wait(lambda: len(rig.bound("checkout")) == 1, "the owner is bound")
    rig.wait(lambda: slots(rig) == (1, 1, 0), "the status says so")
    assert rig.metric('j10ce_hand_overs_total{outcome="handed"}') == 1
    assert rig.metric('j10ce_gate_reviews_total{outcome="gated"}') == 1
    said = rig.program.log.read_text().splitlines()
    assert [line for line in said if "forbidden" in line.lower() or " 403 " in line] == []
    restricted = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    stranger = pod("stranger", "1", "batch", securityContext=restricted)
    stranger["spec"]["containers"][0]["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    stranger["metadata"] |= {"namespace": placeholders.NAMESPACE, "labels": {keys.PLACEHOLDER_LABEL: "true"}}
    with pytest.raises(LabError, match="is for placeholders of j10ce-qos"):
        rig.create(stranger)
    with pytest.raises(LabError, match="are for placeholders of j10ce-qos"):
        rig.create(pod("disguised", "1", "batch", priorityClassName="j10ce-placeholder-1000"))
    of_that_name = HIGH | {"metadata": {"name": "j10ce-placeholder-5"}}
    with pytest.raises(LabError, match="are for placeholders of j10ce-qos"):
        rig.create(of_that_name)


def registered(rig: Rig) -> bool:
    return bool(rig.get("mutatingwebhookconfigurations", "j10ce-hand-over").get("webhooks"))
