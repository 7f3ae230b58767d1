"""The verbs with the real ledger: bytes in, bytes out."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from adapters.kubernetes import decode
from extender import verbs
from ledger.decisions import Mode
from ledger.ledger import Ledger
from ledger.refusals import IN_DOUBT
from qos.cluster.objects import Demand, NodePredicate, Requirement, Selector

IN_THE_WAY = "holds of default/checkout are in the way"
Object = dict[str, Any]


def demand(name: str = "checkout", slots: int = 1, cpu: int = 2000, **more: Any) -> Demand:
    selector = Selector((Requirement("app", "In", (name,)),))
    vector = {"cpu": cpu, "pods": 1} | more.pop("vector", {})
    return Demand(f"default/{name}", "default", selector, vector, slots, **more)


class Scheduler:
    """Speaks to the verbs as kube-scheduler does."""

    def __init__(self, make_node: Callable[..., Object], make_pod: Callable[..., Object]) -> None:
        self.ledger = Ledger(Mode.GUARD, cap_percent=100)
        self.make_node, self.make_pod = make_node, make_pod
        self.now = 1000.0

    def nodes(self, *names: str, cpu: str = "4", **more: Any) -> None:
        for name in names:
            node = self.make_node(name, cpu=cpu)
            node["status"]["allocatable"] |= more
            self.ledger.set_node(decode.node(orjson.dumps(node)))

    def pod(self, name: str, cpu: str = "1", app: str = "batch", **more: Any) -> Object:
        return self.make_pod(name, cpu=cpu, app=app, uid=f"uid-{name}", **more)

    def watch(self, pod: Object) -> None:
        self.ledger.set_pod(decode.pod(orjson.dumps(pod)))

    def filter(self, pod: Object, *names: str) -> Object:
        body = orjson.dumps({"Pod": pod, "Nodes": None, "NodeNames": names})
        reply = verbs.filter(body, self.ledger, self.now)
        assert reply.status == 200
        answer: Object = json.loads(reply.body)
        assert answer["Error"] == ""
        return answer

    def passes(self, pod: Object, *names: str) -> list[str]:
        found: list[str] = self.filter(pod, *names)["NodeNames"]
        return found

    def refusals(self, pod: Object, *names: str) -> dict[str, str]:
        refused: dict[str, str] = self.filter(pod, *names)["FailedAndUnresolvableNodes"]
        return refused

    def preempt(self, pod: Object, **victims: list[str]) -> set[str]:
        candidates = {node: {"Pods": [{"UID": uid} for uid in uids]} for node, uids in victims.items()}
        body = orjson.dumps({"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": candidates})
        kept: Object = json.loads(verbs.preempt(body, self.ledger, self.now).body)["NodeNameToMetaVictims"]
        return set(kept)


@pytest.fixture
def scheduler(make_node, make_pod) -> Scheduler:
    return Scheduler(make_node, make_pod)


def test_a_held_node_is_refused_by_name_and_given_to_its_owner(scheduler):
    scheduler.nodes("n1")
    scheduler.ledger.set_demand(demand(slots=2))
    assert scheduler.refusals(scheduler.pod("a"), "n1") == {"n1": IN_THE_WAY}
    assert scheduler.passes(scheduler.pod("o", app="checkout", cpu="2"), "n1") == ["n1"]


def test_an_owner_gets_exactly_one_name(scheduler):
    names = [f"n{i}" for i in range(5)]
    scheduler.nodes(*names)
    scheduler.ledger.set_demand(demand(slots=5))
    assert len(scheduler.passes(scheduler.pod("o", app="checkout", cpu="2"), *names)) == 1


def test_a_node_that_is_not_known_fails_resolvably(scheduler):
    """T06: the watch lags; the next attempt may help."""
    scheduler.nodes("n1")
    scheduler.ledger.set_demand(demand(slots=2))
    answer = scheduler.filter(scheduler.pod("a"), "n1", "new")
    assert set(answer["FailedNodes"]) == {"new"}
    assert set(answer["FailedAndUnresolvableNodes"]) == {"n1"}


def test_a_node_whose_taint_the_scheduler_saw_go_first_fails_resolvably(scheduler):
    """Its first pods would take what is unplaced and about to be held there."""
    scheduler.nodes("n1", cpu="1")
    scheduler.ledger.set_demand(demand(slots=1))
    back = scheduler.make_node("back", cpu="8")
    back["spec"] = {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]}
    scheduler.ledger.set_node(decode.node(orjson.dumps(back)))
    pod = scheduler.pod("a", cpu="4")
    pod["spec"]["tolerations"] = [
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
    ]
    assert set(scheduler.filter(pod, "back")["FailedNodes"]) == {"back"}
    pod["spec"]["tolerations"] = [{"operator": "Exists"}]
    assert scheduler.passes(pod, "back") == ["back"]


def test_t04_a_refused_bind_keeps_the_claim_of_an_earlier_one_in_doubt(scheduler):
    scheduler.ledger = Ledger(Mode.STRICT, cap_percent=100)
    scheduler.nodes("held", "free")
    only_there = NodePredicate(node_selector=(("kubernetes.io/hostname", "held"),))
    scheduler.ledger.set_demand(demand(slots=1, cpu=4000, where=only_there))
    pod = decode.pod(orjson.dumps(scheduler.pod("a", cpu="3")))
    assert not scheduler.ledger.bind(pod, "free", 1.0).refusal
    assert scheduler.ledger.bind(pod, "held", 2.0).refusal == IN_DOUBT
    assert scheduler.ledger.gauges()["claims"] == 1, "it may still land there"
    scheduler.ledger.release(pod.uid)
    assert scheduler.ledger.gauges()["claims"] == 0


def test_t08_nodes_that_need_no_move_are_answered_alone(scheduler):
    """In-tree scores prefer nodes that are kept free, so those are not offered while there are others."""
    scheduler.nodes("n1", "n2", "n3")
    scheduler.ledger.set_demand(demand(slots=1))
    (held,) = scheduler.ledger.held_nodes()
    free = sorted({"n1", "n2", "n3"} - {held})
    assert scheduler.passes(scheduler.pod("a"), "n1", "n2", "n3") == free


def test_t10_members_that_are_filtered_before_any_bind_count_against_each_other(scheduler):
    """A gang filters all members first: together they must not take what is held for others."""
    scheduler.nodes("n1", cpu="6")
    scheduler.ledger.set_demand(demand(slots=2))
    members = [scheduler.pod(f"m{i}") for i in range(3)]
    answers = [scheduler.passes(member, "n1") for member in members]
    assert answers == [["n1"], ["n1"], []], "6 cores less 4 held: two of three members"
    owners = [scheduler.pod(f"o{i}", app="checkout", cpu="2") for i in range(2)]
    assert [scheduler.passes(owner, "n1") for owner in owners] == [["n1"], ["n1"]]


def test_t14_nominated_pods_occupy_their_node_for_lower_priorities(scheduler):
    scheduler.nodes("n1", cpu="6")
    scheduler.ledger.set_demand(demand(slots=1))
    preemptor = scheduler.pod("p", cpu="3", priority=100)
    preemptor["status"]["nominatedNodeName"] = "n1"
    scheduler.watch(preemptor)
    assert not scheduler.passes(scheduler.pod("a", cpu="2"), "n1"), "6 less 2 held less 3 nominated"
    assert scheduler.passes(scheduler.pod("b"), "n1") == ["n1"]
    assert scheduler.passes(preemptor, "n1") == ["n1"], "its own nomination does not count against it"


def test_t14_its_own_nominated_node_fails_resolvably(scheduler):
    scheduler.nodes("n1")
    scheduler.ledger.set_demand(demand(slots=2))
    preemptor = scheduler.pod("p")
    preemptor["status"]["nominatedNodeName"] = "n1"
    assert set(scheduler.filter(preemptor, "n1")["FailedNodes"]) == {"n1"}


@pytest.mark.parametrize("resource", ["ephemeral-storage", "hugepages-2Mi", "example.com/gpu"])
def test_t17_every_dimension_of_a_floor_is_held(scheduler, resource):
    scheduler.nodes("n1", **{resource: "8"})
    scheduler.ledger.set_demand(demand(cpu=1000, vector={resource: 5}))
    pod = scheduler.pod("a", cpu="100m")
    pod["spec"]["containers"][0]["resources"]["requests"][resource] = "4"
    assert scheduler.refusals(pod, "n1") == {"n1": IN_THE_WAY}
    pod["spec"]["containers"][0]["resources"]["requests"][resource] = "3"
    assert scheduler.passes(pod, "n1") == ["n1"]


def test_t17_pods_are_a_dimension(scheduler):
    scheduler.nodes("n1", pods="2")
    scheduler.ledger.set_demand(demand(slots=2, cpu=100))
    assert scheduler.refusals(scheduler.pod("a", cpu="10m"), "n1") == {"n1": IN_THE_WAY}


def test_t17_what_no_floor_holds_is_none_of_our_business(scheduler):
    scheduler.nodes("n1")
    scheduler.ledger.set_demand(demand())
    pod = scheduler.pod("a")
    pod["spec"]["containers"][0]["resources"]["requests"]["example.com/gpu"] = "100"
    assert scheduler.passes(pod, "n1") == ["n1"]


def test_t18_a_pod_refused_on_a_sample_is_woken_when_others_would_do(scheduler):
    """kube-scheduler shows 100 nodes at least; beyond them there may be room, so the pod is to try again."""
    sample = [f"held-{i:03d}" for i in range(100)]
    scheduler.nodes(*sample)
    scheduler.ledger.set_demand(demand(slots=200))
    pod = scheduler.pod("a")
    scheduler.watch(pod)
    assert not scheduler.passes(pod, *sample)
    assert not scheduler.ledger.waiting()
    scheduler.nodes("outside")
    assert [one.name for one in scheduler.ledger.waiting()] == ["a"]
    assert not scheduler.ledger.waiting(), "once a change"


def test_t23_candidates_where_evicting_would_break_a_floor_are_dropped(scheduler):
    scheduler.nodes("n1", "n2")
    scheduler.ledger.set_demand(demand(slots=1, priority=1000))
    (held,) = scheduler.ledger.held_nodes()
    other = "n2" if held == "n1" else "n1"
    for node in ("n1", "n2"):
        scheduler.watch(scheduler.pod(f"victim-{node}", cpu="2", node=node))
    preemptor = scheduler.pod("p", cpu="4", priority=100)
    candidates = {node: [f"uid-victim-{node}"] for node in ("n1", "n2")}
    scheduler.watch(scheduler.pod("filler", cpu="2", node=other))
    assert scheduler.preempt(preemptor, **candidates) == set(), "one is held, the other has a second pod"
    candidates[other].append("uid-filler")
    assert scheduler.preempt(preemptor, **candidates) == {other}


def test_prioritize_scores_every_name(scheduler):
    scheduler.nodes("n1", "n2")
    scheduler.ledger.set_demand(demand(slots=1))
    body = orjson.dumps({"Pod": scheduler.pod("a"), "Nodes": None, "NodeNames": ["n1", "n2", "unknown"]})
    scores = {
        one["Host"]: one["Score"] for one in json.loads(verbs.prioritize(body, scheduler.ledger, 0.0).body)
    }
    assert set(scores) == {"n1", "n2", "unknown"}
    assert all(isinstance(score, int) and 0 <= score <= 10 for score in scores.values())
    (held,) = scheduler.ledger.held_nodes()
    assert scores[held] == min(scores["n1"], scores["n2"]) < max(scores["n1"], scores["n2"])


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({}, 2),
        ({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}}, 2),
        ({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}}, 4),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}, 2),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, 4),
        ({"volumes": [{"name": "a", "emptyDir": {}}]}, 2),
        ({"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "a"}}]}, 4),
        ({"volumes": [{"name": "a", "ephemeral": {"volumeClaimTemplate": {}}}]}, 4),
        ({"resourceClaims": None}, 2),
        ({"resourceClaims": [{"name": "gpu"}]}, 4),
    ],
)
def test_few_nodes_are_answered_to_whom_it_does_not_matter_which(scheduler, spec, named):
    scheduler.ledger = Ledger(Mode.GUARD, cap_percent=100, most_nodes=2)
    scheduler.nodes("n1", "n2", "n3", "n4")
    pod = scheduler.pod("a")
    pod["spec"] |= spec
    assert len(scheduler.passes(pod, "n1", "n2", "n3", "n4")) == named
