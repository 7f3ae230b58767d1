"""A policy becomes a demand, or a problem with a stable reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qos import keys
from qos.cluster.objects import (
    Demand,
    NodePredicate,
    NodeSelectorTerm,
    PlacementMode,
    Requirement,
    Selector,
    Spread,
)
from qos.cluster.policy import Policy, Profile, ScaleTarget, Surge, Workload
from qos.cluster.precedence import PriorityClass, PriorityClasses, Problem
from qos.cluster.remembered import Remembered
from qos.cluster.resolve import resolve, slot_vector
from tests.qos.builders import CHECKOUT, policy

POLICY = policy(floor={"cpu": 2000, "memory": 4}, count=3)
TARGET = replace(POLICY, count=None, scale_target=ScaleTarget("apps/v1", "Deployment", "checkout"))
WORKLOAD = Workload(
    namespace="shop",
    kind="Deployment",
    name="checkout",
    replicas=10,
    requests={"cpu": 1000, "memory": 9, "pods": 1},
    where=NodePredicate(node_selector=(("disk", "ssd"),)),
    one_per_node=True,
    selected={"app": "checkout"},
)
CLASSES = PriorityClasses(
    {"high": PriorityClass(1000), "mid": PriorityClass(500), "usual": PriorityClass(7, is_default=True)}
)


def resolved(policy: Policy, workload: Workload | None = None, **profiles: Profile) -> Demand:
    demand = resolve(policy, profiles, CLASSES, workload, now=0.0)
    assert isinstance(demand, Demand), demand
    return demand


def test_a_count_of_slots_of_the_floor():
    assert resolved(POLICY) == Demand(
        key="shop/checkout",
        namespace="shop",
        selector=CHECKOUT,
        vector={"cpu": 2000, "memory": 4, "pods": 1},
        desired=3,
        priority=7,
        created=5.0,
        mode=PlacementMode.FLOATING,
        slots=3,
        asked=3,
    )


def test_a_suspended_policy_has_as_many_slots_and_holds_none():
    made = resolved(replace(POLICY, suspend=True))
    assert (made.desired, made.seats) == (0, 3)


def test_a_slot_is_the_larger_of_floor_and_request_in_each_dimension():
    assert slot_vector({"cpu": 2000, "memory": 4}, {"cpu": 1000, "memory": 9, "gpu": 1, "pods": 1}) == {
        "cpu": 2000,
        "memory": 9,
        "gpu": 1,
        "pods": 1,
    }
    assert resolved(TARGET, WORKLOAD).vector == {"cpu": 2000, "memory": 9, "pods": 1}


@pytest.mark.parametrize(
    ("surge", "desired"),
    [(Surge(0), 10), (Surge(3), 13), (Surge(25, percent=True), 13), (Surge(100, percent=True), 20)],
)
def test_replicas_and_surge_rounded_up(surge, desired):
    assert resolved(replace(TARGET, surge=surge), WORKLOAD).desired == desired


def test_suspended_holds_nothing():
    assert resolved(replace(POLICY, suspend=True)).desired == 0
    assert resolved(replace(TARGET, suspend=True), WORKLOAD).desired == 0


def test_a_workload_scaled_to_zero_holds_its_fixed_surge_only():
    empty = replace(WORKLOAD, replicas=0)
    assert resolved(replace(TARGET, surge=Surge(25, percent=True)), empty).desired == 0
    assert resolved(replace(TARGET, surge=Surge(2)), empty).desired == 2


def test_placement_is_inherited_only_where_asked():
    own = NodePredicate(node_selector=(("zone", "a"),))
    stated = replace(TARGET, where=own, max_slots_per_node=4)
    assert resolved(stated, WORKLOAD).where == own
    assert resolved(stated, WORKLOAD).max_slots_per_node == 4
    inherited = resolved(replace(stated, inherit_from_workload=True), WORKLOAD)
    assert inherited.where == WORKLOAD.where
    assert inherited.max_slots_per_node == 1
    several = replace(WORKLOAD, one_per_node=False)
    assert resolved(replace(stated, inherit_from_workload=True), several).max_slots_per_node == 4


@pytest.mark.parametrize(
    ("own", "of_profile", "priority"), [("high", "mid", 1000), ("", "mid", 500), ("", "", 7)]
)
def test_priority_is_the_policys_else_the_profiles_else_the_default(own, of_profile, priority):
    policy = replace(POLICY, profile_name="p", priority_class_name=own)
    assert resolved(policy, p=Profile("p", "LS", of_profile)).priority == priority


@pytest.mark.parametrize(
    ("asked", "classes"),
    [
        (replace(POLICY, priority_class_name="high"), replace(CLASSES, highest=999)),
        (replace(POLICY, profile_name="gold"), replace(CLASSES, highest=999)),
        (POLICY, PriorityClasses({"usual": PriorityClass(1000, is_default=True)}, highest=999)),
        (
            replace(POLICY, priority_class_name="system"),
            PriorityClasses({"system": PriorityClass(2_000_000_000)}),
        ),
    ],
)
def test_a_policy_above_the_highest_priority_that_is_allowed_has_a_problem(asked, classes):
    problem = resolve(asked, {"gold": Profile("gold", "LS", "high")}, classes, None, now=0.0)
    assert isinstance(problem, Problem)
    assert problem.reason == "PriorityTooHigh"
    assert "maxPolicyPriority" in problem.message


def test_the_highest_priority_that_is_allowed_is_allowed():
    asked = replace(POLICY, priority_class_name="high")
    assert isinstance(resolve(asked, {}, replace(CLASSES, highest=1000), None, now=0.0), Demand)


def test_without_any_priority_class_it_is_zero():
    demand = resolve(POLICY, {}, PriorityClasses(), None, now=0.0)
    assert isinstance(demand, Demand)
    assert demand.priority == 0


@pytest.mark.parametrize(
    ("policy", "workload", "reason", "words"),
    [
        (replace(POLICY, profile_name="nope"), None, "ProfileNotFound", "QoSProfile nope"),
        (replace(POLICY, profile_name="be"), None, "ProfileWithoutFloor", "class BE"),
        (replace(POLICY, priority_class_name="nope"), None, "PriorityClassNotFound", "PriorityClass nope"),
        (replace(POLICY, profile_name="bad"), None, "PriorityClassNotFound", "PriorityClass lost"),
        (TARGET, None, "WorkloadNotFound", "Deployment shop/checkout"),
        (TARGET, replace(WORKLOAD, selected={"app": "x"}), "SelectorMismatch", "Deployment shop/checkout"),
        (
            replace(TARGET, inherit_from_workload=True),
            replace(WORKLOAD, spread=tuple(Spread("host", skew, CHECKOUT) for skew in range(1, 18))),
            "TooManyConstraints",
            "Deployment shop/checkout has 17 topology spread constraints and required terms of pod affinity",
        ),
        (replace(POLICY, selector=Selector()), None, "SelectorUnusable", "every pod"),
        (
            replace(POLICY, selector=Selector((Requirement("app", "Gt", ("1",)),))),
            None,
            "SelectorUnusable",
            "Gt",
        ),
        (
            replace(POLICY, selector=Selector((Requirement("app", "In"),))),
            None,
            "SelectorUnusable",
            "In needs values",
        ),
        (
            replace(POLICY, selector=Selector((Requirement("app", "Exists", ("a",)),))),
            None,
            "SelectorUnusable",
            "takes no values",
        ),
    ],
)
def test_problems_have_stable_reasons(policy, workload, reason, words):
    profiles = {"be": Profile("be", "BE"), "bad": Profile("bad", "LS", "lost")}
    problem = resolve(policy, profiles, CLASSES, workload, now=0.0)
    assert isinstance(problem, Problem)
    assert problem.reason == reason
    assert words in problem.message
    assert resolve(policy, profiles, CLASSES, workload, now=0.0) == problem


def test_a_problem_shows_even_when_suspended():
    policy = replace(POLICY, suspend=True, profile_name="nope")
    assert isinstance(resolve(policy, {}, CLASSES, None, now=0.0), Problem)


def test_a_slot_is_one_pod_whatever_is_asked():
    assert slot_vector({}, {})[keys.PODS] == 1


def test_bandwidth_is_part_of_a_slot_and_owed_to_those_who_fill_one():
    asked = policy(floor={"cpu": 2000, keys.EGRESS_BANDWIDTH: 300, keys.INGRESS_BANDWIDTH: 5}, count=3)
    demand = resolve(asked, {}, CLASSES, None, {"cpu": 2500, keys.EGRESS_BANDWIDTH: 400, "pods": 1}, now=0.0)
    assert isinstance(demand, Demand)
    assert demand.vector == {
        "cpu": 2500,
        keys.EGRESS_BANDWIDTH: 400,
        keys.INGRESS_BANDWIDTH: 5,
        "pods": 1,
    }
    assert demand.owed == {keys.EGRESS_BANDWIDTH: 300, keys.INGRESS_BANDWIDTH: 5}
    assert resolved(POLICY).owed == {}


def test_spread_of_the_policy_counts_its_pods_and_admits_nodes_with_the_keys():
    zone = Spread("zone", 1, CHECKOUT)
    other = Spread("host", 2, Selector((Requirement("tier", "In", ("web",)),)), required=False)
    found = resolved(replace(POLICY, spread=(zone, other)))
    assert found.spread == (zone, replace(other, itself=False))
    assert found.where.affinity == (NodeSelectorTerm((Requirement("zone", "Exists"),)),)


def test_spread_of_the_workload_where_placement_is_inherited():
    zone = Spread("zone", 1, CHECKOUT)
    workload = replace(WORKLOAD, spread=(zone,), selected={"app": "checkout", "tier": "web"})
    inheriting = replace(TARGET, inherit_from_workload=True)
    assert resolved(inheriting, workload).spread == (zone,)
    assert resolved(inheriting, workload).where.node_selector == (("disk", "ssd"),)
    own = Spread("host", 1, Selector((Requirement("tier", "In", ("web",)),)))
    assert resolved(replace(TARGET, spread=(own,)), workload).spread == (own,)


@pytest.mark.parametrize(
    ("more", "desired", "spare"),
    [
        ({"max_slots_per_node": 4, "survives": 2}, 11, 8),
        ({"max_slots_per_node": 4, "survives": 2, "suspend": True}, 0, 0),
        ({"max_slots_per_node": 4, "survives": 2, "count": 0}, 0, 0),
        ({"max_slots_per_node": 4}, 3, 0),
    ],
)
def test_for_each_node_that_may_be_lost_there_are_as_many_slots_more_as_one_has_at_most(more, desired, spare):
    made = resolved(replace(POLICY, **more))
    assert (made.desired, made.spare, made.seats) == (desired, spare, more.get("count", 3))


def test_no_spare_slots_are_left_for_slots_that_are_all_used_up():
    once = replace(POLICY, max_slots_per_node=4, survives=1, once=True)
    left = [resolved(replace(once, remembered=Remembered(gone))) for gone in (2, 3)]
    assert [(one.desired, one.spare) for one in left] == [(5, 4), (0, 0)]


def test_a_workload_with_one_pod_a_node_has_one_slot_more_for_each():
    asked = replace(TARGET, max_slots_per_node=4, survives=2, inherit_from_workload=True)
    assert (resolved(asked, WORKLOAD).desired, resolved(asked, WORKLOAD).spare) == (12, 2)


def test_of_a_workload_without_a_template_the_policy_says_which_nodes():
    bare = replace(WORKLOAD, requests={}, selected=None, templated=False, one_per_node=False)
    inherits = replace(TARGET, inherit_from_workload=True)
    problem = resolve(inherits, {}, CLASSES, bare, now=0.0)
    assert isinstance(problem, Problem)
    assert (problem.reason, "inheritFromWorkload: false" in problem.message) == ("TemplateNotFound", True)
    demand = resolved(replace(TARGET, inherit_from_workload=False), bare)
    assert (demand.desired, demand.vector) == (10, {"cpu": 2000, "memory": 4, "pods": 1})
    other = replace(bare, selected={"app": "another"})
    mismatch = resolve(replace(TARGET, inherit_from_workload=False), {}, CLASSES, other, now=0.0)
    assert isinstance(mismatch, Problem)
    assert mismatch.reason == "SelectorMismatch"
