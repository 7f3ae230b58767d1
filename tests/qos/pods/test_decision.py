"""Which policy and profile a pod has, and which pods get nothing by default."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qos import keys
from qos.cluster.policy import Profile
from qos.cluster.precedence import PriorityClass, PriorityClasses
from qos.pods.containers import BEST_EFFORT, Container, NodePod
from qos.pods.decision import EXEMPT_NAMESPACES, decide, is_exempt
from tests.qos.builders import policy

POD = NodePod("u-1", "shop", "web", (Container("web", 2000),), labels={"app": "checkout"})
HIGH = PriorityClasses({"high": PriorityClass(100)})


def named(name, **others):
    return policy(key=f"shop/{name}", name=name, **others)


def decided(*policies, pod=POD, annotated=None, profiles=(), classes=HIGH):
    return decide(
        pod, annotated, {one.key: one for one in policies}, {one.name: one for one in profiles}, classes
    )


def test_without_a_policy_there_is_no_floor():
    one = decided(replace(policy(), namespace="other"))
    assert (one.policy, one.floor, one.kept, one.problem, one.exempt) == (None, None, {}, "", True)


def test_priority_then_age_then_name_decide():
    old, young = named("z", created=1.0), named("a", created=2.0)
    first = named("m", created=9.0, priority_class_name="high")
    one = decided(young, first, old)
    assert one.policy == first
    assert one.others == (old, young)
    assert decided(named("b", created=1.0), named("a", created=1.0)).policy.name == "a"


def test_a_policy_without_a_creation_time_is_the_youngest():
    assert decided(named("a", created=0.0), named("b", created=5.0)).policy.name == "b"


def test_the_policy_whose_slot_it_fills_wins_as_long_as_it_selects_the_pod():
    old, young = named("old", created=1.0), named("young", created=2.0)
    one = decided(old, young, annotated="shop/young")
    assert (one.policy, one.others) == (young, (old,))
    elsewhere = replace(young, namespace="other")
    assert decided(old, elsewhere, annotated="shop/young").policy == old
    assert decided(old, annotated="shop/gone").policy == old


def test_a_pod_beyond_the_slots_has_no_floor_and_keeps_its_class():
    fast = Profile("fast", "LSR")
    one = decided(named("a", profile_name="fast"), annotated="", profiles=[fast])
    assert (one.slotless, one.floor, one.kept, one.exempt) == (True, None, {}, False)
    assert (one.policy.name, one.expected.class_name) == ("a", "LSR")
    assert decided(named("a", profile_name="fast"), annotated="shop/a", profiles=[fast]).kept
    assert not decided(annotated="").slotless, "no policy selects it"


def test_a_pod_beyond_the_slots_of_a_policy_without_a_profile_is_left_alone():
    """Not made an idle one, because it requests nothing and no floor says otherwise."""
    pod = replace(POD, containers=(Container("web"),), qos=BEST_EFFORT)
    one = decided(named("a"), pod=pod, annotated="")
    assert (one.exempt, one.policy.name) == (True, "a")


def test_what_nobody_has_counted_has_the_floor_of_the_policy_that_selects_it():
    """Bound by another scheduler, before the policy was made, or where no extender runs."""
    assert decided(named("a"), annotated=None).kept == {"cpu": 2000}


def test_a_profiles_priority_counts_where_the_policy_names_none():
    fast = Profile("fast", "LS", "high")
    one = decided(named("a", created=1.0), named("b", profile_name="fast"), profiles=[fast])
    assert one.policy.name == "b"
    assert (one.profile, one.expected.class_source) == (fast, "QoSProfile fast")


def test_a_profile_that_is_missing_is_told_and_the_floor_kept():
    one = decided(named("a", profile_name="fast"))
    assert one.problem == "there is no QoSProfile fast"
    assert one.kept == {"cpu": 2000}


def test_a_class_without_floors_keeps_none():
    one = decided(named("a", profile_name="be"), profiles=[Profile("be", "BE")])
    assert one.floor == {"cpu": 2000}
    assert one.kept == {}


@pytest.mark.parametrize(
    "own",
    [
        *({"namespace": name} for name in EXEMPT_NAMESPACES),
        {"priority": keys.SYSTEM_CRITICAL_PRIORITY},
        {"uid": "0123456789abcdef0123456789abcdef"},
    ],
)
def test_the_nodes_own_pods_get_nothing_by_default(own):
    pod = replace(POD, **own)
    assert decided(pod=pod).exempt
    assert not decided(pod=replace(pod, labels={keys.KOORDINATOR_CLASS_LABEL: "BE"})).exempt
    assert not decided(pod=replace(pod, annotations={keys.KATALYST_LEVEL: "reclaimed_cores"})).exempt
    assert decided(pod=replace(pod, labels={keys.KOORDINATOR_CLASS_LABEL: "none"})).exempt
    assert not decided(replace(policy(), namespace=pod.namespace), pod=replace(pod, labels=POD.labels)).exempt


def test_a_usual_pod_is_not_exempt():
    assert not is_exempt(replace(POD, qos=BEST_EFFORT, priority=keys.SYSTEM_CRITICAL_PRIORITY - 1))
    assert not is_exempt(replace(POD, uid="3c0f1d2e-aaaa-4bbb-8ccc-0123456789ab"))


def test_a_floor_counts_as_far_as_the_pod_requests_it():
    """Nobody but the pod has been charged: 10m are no right to 16 CPUs, nor 64Mi to a TiB."""
    greedy = named("a", floor={"cpu": 16_000, "memory": 2**40, "network.egress": 5})
    small = replace(POD, containers=(Container("web", 10, memory_request=2**26), Container("log", 5)))
    one = decided(greedy, pod=small)
    assert one.floor == {"cpu": 16_000, "memory": 2**40, "network.egress": 5}
    assert one.kept == {"cpu": 15, "memory": 2**26, "network.egress": 5}
    assert decided(greedy, pod=replace(small, cpu_request=20_000)).kept["cpu"] == 16_000


def test_what_only_the_runtime_knows_of_a_pod_bounds_no_floor():
    little = replace(POD, containers=(Container("web", 10),))
    one = decide(little, None, {"shop/a": named("a")}, {}, HIGH, requests_known=False)
    assert one.kept == {"cpu": 2000}
