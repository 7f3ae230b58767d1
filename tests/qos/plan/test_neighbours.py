"""Nobody falls below its request: kubelet's own weights against the plan's, by the kernel's rules."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.kernel_rules import cpu_time
from qos.plan.node import V1, V2
from qos.pods.containers import BEST_EFFORT, BURSTABLE, GUARANTEED, Container, NodePod, request
from qos.pods.decision import Decided
from qos.pods.expectation import expectation
from tests.qos.kubelet_nodes import TIERS, Node, kernel_tree, nodes, pods

FINEST = Fraction(1, 1000)
"""Millicores: what a pod must keep is counted in whole microcores."""


def before_and_after(node):
    """What each cgroup receives when all want what they can get."""
    running = {path for paths in node.running.values() for path in paths.values()}
    plans = node.plans()
    return (
        cpu_time(kernel_tree(node, dict.fromkeys(plans, ()), running), node.cpus),
        cpu_time(kernel_tree(node, plans, running), node.cpus),
    )


def asked_for_less(node, decided):
    """Its own class is an idle one, or weighs less than its request does."""
    promises = decided.expected.promises
    return promises.cpu_idle or promises.cpu_weight is not None


def assert_nobody_is_worse_off(node):
    before, after = before_and_after(node)
    for uid, decided in node.decided.items():
        path = node.path(uid)
        if path in before and not asked_for_less(node, decided):
            keeps = min(Fraction(request(decided.pod)[0]), before[path])
            assert after[path] >= keeps - FINEST, (path, float(before[path]), float(after[path]))


@settings(max_examples=150)
@given(nodes(most=8))
def test_no_pod_falls_below_its_request_or_what_it_had(node):
    node.start_all()
    assert_nobody_is_worse_off(node)


@st.composite
def kubelets(draw):
    """Nodes whose cgroups weigh what kubelet writes for the requests in them."""
    node = Node(draw(st.sampled_from([V1, V2])), draw(st.sampled_from([2, 8, 32])) * 1000, 2**35)
    machine, made = node.machine, [draw(pods(number)) for number in range(draw(st.integers(1, 10)))]
    default = 100 if node.cgroup == V2 else 1024
    node.empty = {path for path in ("/user.slice", "/dev-mqueue.mount") if draw(st.booleans())}
    for path in ("/system.slice", "/user.slice", "/dev-mqueue.mount"):
        node.add(path, default)
    for qos, path in TIERS.items():
        inside = [request(one.pod)[0] for one in made if one.pod.qos == qos]
        node.add(path, machine.kubelet_weight(node.cpus if qos == GUARANTEED else sum(inside)))
    for one in made:
        limited = one.pod.qos == GUARANTEED or draw(st.booleans())
        quota = max(request(one.pod)[0] * draw(st.sampled_from([1, 2])), 10) if limited else None
        node.add_pod(one, quota=quota if request(one.pod)[0] else None)
    return node


@settings(max_examples=150)
@given(kubelets())
def test_nor_on_nodes_whose_weights_are_kubelets(node):
    assert_nobody_is_worse_off(node)


def pod(number, cpu, floor=0, qos=BURSTABLE):
    one = NodePod(
        f"{number:08x}-0000-4000-8000-000000000000", "shop", f"p{number}", (Container("c", cpu),), qos
    )
    return Decided(one, expectation(one, floor=bool(floor)), floor={"cpu": floor} if floor else None)


def with_pods(cgroup, *decided, host=True):
    node = Node(cgroup, 8000, 2**35)
    machine = node.machine
    if host:
        node.add("/system.slice", 100 if cgroup == V2 else 1024)
    for qos, path in TIERS.items():
        node.add(path, machine.kubelet_weight(0 if qos == BEST_EFFORT else 8000))
    for one in decided:
        node.add_pod(one)
    return node


@pytest.mark.parametrize("cgroup", [V1, V2])
def test_a_pod_of_two_cpus_keeps_them_beside_a_floor(cgroup):
    """8 CPUs, 7 of them requested: a floor of 4 took the other pods' (936m were left of 2)."""
    small = [pod(number, 1000) for number in range(2, 5)]
    node = with_pods(cgroup, pod(0, 2000, floor=4500), pod(1, 2000), *small, host=False)
    before, after = before_and_after(node)
    assert before[node.path(pod(1, 0).pod.uid)] >= 2000
    for uid, one in node.decided.items():
        assert after[node.path(uid)] >= min(request(one.pod)[0], before[node.path(uid)]) - FINEST
    [container] = node.plans()[pod(0, 0).pod.uid]
    [short] = container.plan.shortfalls
    assert short.why.endswith("more weight would take siblings below their floors or requests")


@pytest.mark.parametrize("cgroup", [V1, V2])
def test_what_nobody_requested_goes_to_the_floor(cgroup):
    node = with_pods(cgroup, pod(0, 500, floor=3000), pod(1, 2000), pod(2, 0), host=False)
    before, after = before_and_after(node)
    assert before[node.path(pod(0, 0).pod.uid)] < 3000 <= after[node.path(pod(0, 0).pod.uid)]
    assert after[node.path(pod(1, 0).pod.uid)] >= 2000


def test_where_the_nodes_own_slices_take_it_no_pod_pays_for_a_floor():
    node = with_pods(V2, pod(0, 4000, floor=4000), pod(1, 4000))
    before, after = before_and_after(node)
    assert after == before
    [container] = node.plans()[pod(0, 0).pod.uid]
    [short] = container.plan.shortfalls
    assert 3000 < short.kept <= after[node.path(pod(0, 0).pod.uid)] < 3100
