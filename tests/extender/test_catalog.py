"""What policies refer to may be deleted and made again: nothing is released before the grace is over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender import status
from extender.catalog import Catalog
from extender.owners import Owners
from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos.cluster.objects import OwnerReference, PlacementMode, Pod
from qos.cluster.policy import Autoscaler, Profile, ScaleTarget, Workload
from qos.cluster.precedence import Problem
from tests.ledger.builders import node
from tests.qos.builders import policy

GRACE = 60.0
KEY = "shop/checkout"
PROFILE = Profile("gold", "LS")
TARGET = ScaleTarget("apps/v1", "Deployment", "checkout")
WORKLOAD = Workload(
    "shop", "Deployment", "checkout", 2, {"cpu": 1000, "pods": 1}, selected={"app": "checkout"}
)


class Desk:
    """A catalog before a ledger, with one policy that refers to all there is."""

    def __init__(self, clock) -> None:
        self.clock = clock
        self.owners = Owners()
        self.ledger = Ledger(Mode.GUARD, cap_percent=100)
        self.ledger.set_node(node("n0", 64, 64))
        self.catalog = Catalog(self.ledger, lambda: None, self.owners, clock=clock, wall=clock, grace=GRACE)
        self.catalog.set_profile(PROFILE)
        self.catalog.set_priority_class("high", 1000, False)
        self.catalog.set_workload(WORKLOAD)
        self.catalog.open()
        self.catalog.set_policy(
            replace(
                policy(),
                profile_name="gold",
                priority_class_name="high",
                count=None,
                scale_target=TARGET,
                floor={"cpu": 1000},
            )
        )

    def held(self) -> int:
        report = self.ledger.report().get(KEY)
        return report.held if report else 0

    def delete(self, what: str) -> None:
        match what:
            case "ProfileNotFound":
                self.catalog.remove_profile("gold")
            case "PriorityClassNotFound":
                self.catalog.remove_priority_class("high")
            case _:
                self.catalog.remove_workload("shop", "Deployment", "checkout")

    def make(self, what: str) -> None:
        match what:
            case "ProfileNotFound":
                self.catalog.set_profile(PROFILE)
            case "PriorityClassNotFound":
                self.catalog.set_priority_class("high", 1000, False)
            case _:
                self.catalog.set_workload(WORKLOAD)

    def problem(self) -> str:
        postponed = self.catalog.postponed.get(KEY)
        return postponed.reason if postponed else ""


@pytest.fixture
def desk(clock) -> Desk:
    return Desk(clock)


WHAT = ("ProfileNotFound", "PriorityClassNotFound", "WorkloadNotFound")


@pytest.mark.parametrize("what", WHAT)
def test_what_is_deleted_and_made_again_costs_no_hold(desk, what):
    demand = desk.catalog.resolved[KEY]
    desk.delete(what)
    assert (desk.held(), desk.problem()) == (2, what)
    desk.clock.advance(GRACE - 1)
    desk.catalog.expire()
    desk.make(what)
    assert (desk.held(), desk.problem()) == (2, "")
    desk.clock.advance(10 * GRACE)
    desk.catalog.expire()
    assert desk.held() == 2
    assert desk.catalog.resolved[KEY] is demand


@pytest.mark.parametrize("what", WHAT)
def test_when_the_grace_is_over_nothing_is_held(desk, what):
    desk.delete(what)
    desk.clock.advance(GRACE)
    desk.catalog.expire()
    assert (desk.held(), desk.problem()) == (0, "")
    assert desk.catalog.resolved[KEY].reason == what


def test_what_is_made_again_with_other_words_counts_at_once(desk):
    desk.delete("WorkloadNotFound")
    desk.catalog.set_workload(replace(WORKLOAD, replicas=5))
    assert (desk.held(), desk.problem()) == (5, "")


def test_a_policy_that_is_deleted_releases_at_once(desk):
    desk.delete("WorkloadNotFound")
    desk.catalog.remove_policy(KEY)
    assert (desk.held(), desk.problem()) == (0, "")


def _named(name):
    return policy(key=f"shop/{name}", name=name, uid=name)


def _with_many(desk, count=300):
    for number in range(count):
        desk.catalog.set_policy(
            replace(_named(f"many-{number}"), priority_class_name="high", count=1, floor={"cpu": 10})
        )


def _resolved_with_problem(desk):
    return sum(isinstance(one, Problem) for one in desk.catalog.resolved.values())


def test_what_hundreds_of_policies_refer_to_is_followed_some_at_a_time(desk):
    _with_many(desk)
    desk.delete("PriorityClassNotFound")
    desk.clock.advance(GRACE)
    desk.catalog.expire()
    assert 0 < _resolved_with_problem(desk) < 20
    desk.catalog.remove_policy("shop/many-299")
    for done, _ in enumerate(desk.catalog.catch_up()):
        if done == 5:
            desk.catalog.remove_policy("shop/many-298")
    assert (len(desk.catalog.resolved), _resolved_with_problem(desk)) == (299, 299)
    assert desk.ledger.gauges()["holds"] == 0
    desk.make("PriorityClassNotFound")
    assert _resolved_with_problem(desk) > 200
    assert len(list(desk.catalog.catch_up())) > 200
    assert (_resolved_with_problem(desk), desk.ledger.report()["shop/many-0"].held) == (0, 1)


def test_nothing_is_remembered_of_targets_that_no_policy_names(desk):
    for number in range(20):
        target = ScaleTarget("apps/v1", "Deployment", f"other-{number}")
        desk.catalog.set_policy(replace(_named("other"), count=None, scale_target=target, generation=number))
    assert len(desk.catalog._users) == 2


def _injected(name: str, cpu: int, template: str = "7f", **more: Any) -> Pod:
    """A pod of the Deployment, as admission left it."""
    replica_set = OwnerReference("ReplicaSet", f"checkout-{template}", f"uid-{template}")
    labels = {"app": "checkout", "pod-template-hash": template}
    requests = {"cpu": cpu, "pods": 1}
    return Pod(name, "shop", name, requests, labels=labels, controller=replica_set, node_name="n0", **more)


def test_a_slot_is_as_large_as_what_admission_makes_of_the_pods(desk):
    """A sidecar, a LimitRange, the overhead of a RuntimeClass: the template says nothing of them."""
    assert desk.catalog.resolved[KEY].vector["cpu"] == 1000
    desk.owners.set_pod(_injected("p", 1250))
    desk.catalog.follow_owners()
    assert desk.catalog.resolved[KEY].vector["cpu"] == 1250
    assert status._slot(desk.catalog.resolved[KEY]) == [{"resource": "cpu", "quantity": "1250m"}]


def test_a_policy_with_a_count_of_its_own_does_not_follow_its_pods(desk):
    """Who may make pods must not make the slots of a policy larger: its author states the floor."""
    counted = replace(desk.catalog.policies[KEY], count=3, scale_target=None, generation=2)
    desk.catalog.set_policy(counted)
    desk.owners.set_pod(_injected("p", 60_000))
    desk.catalog.follow_owners()
    assert desk.catalog.resolved[KEY].vector["cpu"] == 1000


def test_pods_that_request_less_than_the_floor_make_no_slot_smaller(desk):
    desk.owners.set_pod(_injected("p", 10))
    desk.catalog.follow_owners()
    assert desk.catalog.resolved[KEY].vector["cpu"] == 1000


def test_what_was_learned_ends_with_the_workload(desk):
    desk.owners.set_pod(_injected("p", 1250))
    desk.catalog.follow_owners()
    desk.owners.remove_pod("p")
    desk.catalog.follow_owners()
    assert desk.catalog.resolved[KEY].vector["cpu"] == 1250
    desk.delete("WorkloadNotFound")
    desk.clock.advance(GRACE)
    desk.catalog.expire()
    desk.make("WorkloadNotFound")
    assert desk.catalog.resolved[KEY].vector["cpu"] == 1000


def test_a_catalog_opens_in_steps_and_a_policy_may_go_in_between(clock):
    ledger = Ledger(Mode.GUARD, cap_percent=100)
    ledger.set_node(node("n0", 64, 64))
    catalog = Catalog(ledger, lambda: None, Owners(), clock=clock, wall=clock, grace=GRACE)
    for name in "abc":
        catalog.set_policy(replace(policy(), key=f"shop/{name}", name=name, count=1, floor={"cpu": 1000}))
    steps = catalog.open_in_steps()
    next(steps)
    assert set(catalog.resolved) == {"shop/a"}
    catalog.remove_policy("shop/b")
    assert [None for _ in steps] == [None]
    assert set(catalog.resolved) == {"shop/a", "shop/c"}
    assert {key: one.held for key, one in ledger.report().items()} == {"shop/a": 1, "shop/c": 1}


@pytest.mark.parametrize(("mode", "where"), [(PlacementMode.PINNED, "n2"), (PlacementMode.FLOATING, "n0")])
def test_pinned_holds_stand_after_a_restart_where_the_status_says(clock, mode, where):
    desk = Desk(clock)
    for name in ("n1", "n2"):
        desk.ledger.set_node(node(name, 64, 64))
    held = {"holds": [{"nodeName": "n2", "slots": 2}]}
    before = desk.catalog.policies[KEY]
    desk.catalog.remove_policy(KEY)
    desk.catalog.set_policy(replace(before, mode=mode, status=held))
    assert desk.ledger.report()[KEY].holds == ((where, 2),)


@pytest.mark.parametrize("late", [0.0, 3600.0])
def test_what_expires_is_released_at_that_instant_and_not_held_after_a_restart(clock, late):
    desk = Desk(clock)
    desk.catalog.set_policy(replace(desk.catalog.policies[KEY], generation=4, expires=clock.now + 100))
    clock.advance(99.9)
    assert [None for _ in desk.catalog.catch_up()] == []
    assert desk.held() == 2
    clock.advance(0.1)
    assert [None for _ in desk.catalog.catch_up()] == [None]
    assert (desk.held(), desk.catalog.resolved[KEY].seats) == (0, 2), "pods keep their floors"
    assert [None for _ in desk.catalog.catch_up()] == [], "once is enough"
    clock.advance(late)
    again = Desk(clock)
    again.catalog.set_policy(desk.catalog.policies[KEY])
    assert again.held() == 0


def test_an_end_that_is_moved_counts_from_then_on(clock):
    desk = Desk(clock)
    policy = replace(desk.catalog.policies[KEY], generation=4, expires=clock.now + 100)
    desk.catalog.set_policy(policy)
    desk.catalog.set_policy(replace(policy, generation=5, expires=clock.now + 200))
    clock.advance(150)
    assert [None for _ in desk.catalog.catch_up()] == []
    assert desk.held() == 2
    clock.advance(50)
    list(desk.catalog.catch_up())
    assert desk.held() == 0
    desk.catalog.set_policy(replace(policy, generation=6, expires=None))
    assert desk.held() == 2
    desk.catalog.remove_policy(KEY)
    clock.advance(1000)
    assert [None for _ in desk.catalog.catch_up()] == []


def autoscaler(name: str, maximum: int, target: str = "checkout") -> Autoscaler:
    return Autoscaler("shop", name, ScaleTarget("apps/v1", "Deployment", target), maximum)


def test_headroom_is_held_up_to_what_autoscalers_may_scale_to(desk):
    before = desk.catalog.policies[KEY]
    desk.catalog.set_autoscaler(autoscaler("a", 5))
    assert desk.held() == 2, "it does not ask"
    assert not desk.catalog.asks_for_autoscalers.is_set()
    desk.catalog.set_policy(replace(before, generation=4, headroom=True))
    assert desk.catalog.asks_for_autoscalers.is_set()
    assert desk.held() == 5
    desk.catalog.set_autoscaler(autoscaler("b", 7))
    assert desk.held() == 7, "the largest of several"
    desk.catalog.set_autoscaler(autoscaler("b", 7, target="cart"))
    assert desk.held() == 5
    desk.catalog.set_workload(replace(WORKLOAD, replicas=6))
    assert desk.held() == 6, "somebody has scaled beyond it"
    desk.catalog.set_workload(replace(WORKLOAD, replicas=0))
    assert desk.held() == 0, "no autoscaler touches that"
    desk.catalog.set_workload(WORKLOAD)
    desk.catalog.remove_autoscaler("shop/a")
    assert (desk.held(), desk.catalog.ceiling(desk.catalog.policies[KEY])) == (2, None)
    desk.catalog.remove_autoscaler("shop/never")


def test_kinds_are_named_as_long_as_a_policy_names_them(desk):
    policy = desk.catalog.policies[KEY]
    deployment, rollout = (
        ScaleTarget("apps/v1", "Deployment", ""),
        ScaleTarget("argoproj.io/v1", "Rollout", ""),
    )
    assert desk.catalog.target_kinds() == [deployment]
    desk.catalog.set_policy(replace(policy, key="shop/b", scale_target=replace(rollout, name="b")))
    desk.catalog.set_policy(replace(policy, key="shop/c", scale_target=replace(rollout, name="c")))
    assert desk.catalog.target_kinds() == [deployment, rollout]
    desk.catalog.set_policy(replace(policy, key="shop/b", generation=9, scale_target=None, count=1))
    assert desk.catalog.target_kinds() == [deployment, rollout]
    desk.catalog.remove_policy("shop/c")
    assert desk.catalog.target_kinds() == [deployment]
