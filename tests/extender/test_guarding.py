"""Guarded is derived from what lasts: the annotation that our Binding writes."""

from __future__ import annotations

import pytest

from extender.guarding import Guarding
from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos.cluster.objects import Demand, Node, NodePredicate, OwnerReference, Pod, Selector

NOW = 10_000.0
NODES = [Node("n1", "u", {"pods": 9}), Node("n2", "u", {"pods": 9}, labels={"pool": "x"})]
ANYWHERE = Demand("a/b", "a", Selector(), {"pods": 1}, 1)
POOL = Demand("a/c", "a", Selector(), {"pods": 1}, 1, where=NodePredicate(node_selector=(("pool", "x"),)))


def guarding(mode: Mode = Mode.GUARD, *, binds: bool = True) -> Guarding:
    found = Guarding(mode, binds=binds, schedulers=["default-scheduler"], window=300.0)
    found.installed = NOW - 1000
    return found


def pod(**fields: object) -> Pod:
    at = {"created": NOW - 10, "scheduled": NOW - 5}
    return Pod(
        **({"uid": "u", "namespace": "a", "name": "p", "requests": {}, "node_name": "n1"} | at | fields)
    )


def reason(found: Guarding, demand: Demand | None = ANYWHERE, now: float = NOW) -> str:
    ledger = Ledger(Mode.GUARD)
    for node in NODES:
        ledger.set_node(node)
    for one in (ANYWHERE, POOL):
        ledger.set_demand(one)
    recent = found.recent(now)
    key = demand.key if demand is not None else "a/problem"
    return found.judge(key, recent, ledger.exposed(recent.bypassed)).reason


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"bound_by": "extender-1"}, "Guarded"),
        ({"node_name": ""}, "Guarded"),
        ({}, "ExtenderAway"),
        ({"bound_by": "x", "scheduler_name": "other"}, "Guarded"),
        ({"scheduler_name": "other"}, "PodsBypass"),
        ({"scheduled": 0.0}, "PodsBypass"),
        ({"mirror": True}, "Guarded"),
        ({"controller": OwnerReference("DaemonSet", "d", "u")}, "Guarded"),
        ({"controller": OwnerReference("Node", "n1", "u")}, "Guarded"),
        ({"controller": OwnerReference("ReplicaSet", "r", "u")}, "ExtenderAway"),
        ({"scheduled": NOW - 301}, "Guarded"),
        ({"scheduled": NOW - 2000}, "Guarded"),
    ],
)
def test_who_bound_a_pod_decides(fields, expected):
    found = guarding()
    found.see(pod(**fields))
    assert reason(found) == expected


def test_pods_from_before_the_installation_are_no_breach():
    found = guarding()
    found.installed = NOW - 2
    found.see(pod())
    assert reason(found) == "Guarded"


def test_breaches_seen_before_the_installation_is_known_are_judged_once_it_is():
    found = guarding()
    found.installed = None
    found.see(pod())
    assert found.count(NOW) == 0
    assert not found.recent(NOW).away
    found.installed = NOW - 1000
    assert reason(found) == "ExtenderAway"


def test_it_is_true_again_when_the_window_has_passed():
    found = guarding()
    found.see(pod())
    assert reason(found, now=NOW + 294) == "ExtenderAway"
    assert reason(found, now=NOW + 296) == "Guarded"


def test_a_pod_that_is_gone_was_bound_without_us_all_the_same():
    found = guarding()
    found.see(pod())
    found.forget("u")
    assert reason(found) == "ExtenderAway"


def test_a_pod_seen_pending_was_bound_by_a_binding_even_without_its_condition():
    found = guarding()
    found.see(pod(node_name="", scheduled=0.0))
    found.see(pod(scheduled=0.0))
    assert found.recent(NOW).away
    assert not found.recent(NOW).bypassed


def test_t15_a_bypass_concerns_the_policies_that_may_hold_there():
    found = guarding()
    found.see(pod(scheduler_name="other", node_name="n1"))
    assert reason(found, ANYWHERE) == "PodsBypass"
    assert reason(found, POOL) == "Guarded"
    found.see(pod(uid="v", scheduler_name="other", node_name="n2"))
    assert reason(found, POOL) == "PodsBypass"


def test_a_bypass_on_a_node_that_is_gone_concerns_nobody():
    found = guarding()
    found.see(pod(scheduler_name="other", node_name="lost"))
    assert reason(found) == "Guarded"


def test_an_absent_extender_concerns_even_policies_with_a_problem():
    found = guarding()
    found.see(pod())
    assert reason(found, None) == "ExtenderAway"


def test_observe_guards_nothing():
    assert reason(guarding(Mode.OBSERVE)) == "ObserveMode"


def test_without_binds_nothing_lasting_tells():
    found = guarding(binds=False)
    found.see(pod())
    judged = found.judge(ANYWHERE.key, found.recent(NOW), frozenset())
    assert judged.reason == "NotBinding"
    assert judged.unknown


def test_the_same_pod_is_judged_once():
    found = guarding()
    found.see(pod())
    found.see(pod(bound_by="x"))
    assert reason(found) == "ExtenderAway"
    assert found.count(NOW) == 1


def test_breaches_that_nobody_asks_for_do_not_pile_up():
    found = guarding()
    for second in range(5_000):
        found.see(pod(uid=str(second), scheduler_name="other", scheduled=NOW + second))
    assert len(found._breaches) <= 301
    assert found.count(NOW + 4_999) == 301
