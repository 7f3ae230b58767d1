"""A whole node planned at once, against the kernel's rules."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.kernel_rules import cpu_time, protection
from qos.plan.node import V1, V2
from qos.plan.node_plan import PlannedNode
from qos.plan.placed_pod import placed
from qos.plan.planning import parts
from qos.plan.settings import RAISE
from qos.pods.containers import BURSTABLE, GUARANTEED, Container, NodePod
from qos.pods.decision import Decided
from qos.pods.expectation import expectation
from tests.qos.kubelet_nodes import (
    PAGE,
    TIERS,
    Node,
    kernel_tree,
    nodes,
    pods,
    running_now,
    settings_of,
    written,
)


@settings(max_examples=100)
@given(nodes(), st.booleans(), st.booleans(), st.data())
def test_every_container_gets_its_part_or_is_said_to_get_less(node, recursive, coming, data):
    plans = node.plans()
    if coming:
        node.start_all()
    running = running_now(data, node)
    root = kernel_tree(node, plans, running)
    received = cpu_time(root, node.cpus)
    protected = protection(root, recursive=recursive, memory=node.memory)
    for uid, made in plans.items():
        decided = node.decided[uid]
        percent = decided.expected.promises.memory_low_percent
        of_each = parts(decided.pod, decided.kept)
        for container in made:
            path, part = f"{node.path(uid)}/{container.name}", of_each[container.name]
            if path not in running:
                continue
            missing = {short.resource: short.missing for short in container.plan.shortfalls}
            assert received[path] >= part.get("cpu", 0) - missing.get("cpu", 0)
            kept = protected[path] if node.cgroup == V2 else 0
            assert kept >= part.get("memory", 0) * percent // 100 - missing.get("memory", 0)


@settings(max_examples=30)
@given(nodes(), st.data())
def test_the_order_of_pods_does_not_matter(node, data):
    before = written(node.plans())
    node.decided = dict(data.draw(st.permutations(list(node.decided.items()))))
    assert written(node.plans()) == before


@settings(max_examples=60)
@given(nodes())
def test_what_is_shared_is_raised_to_exactly_what_all_below_claim(node):
    plans = node.plans()
    for file in ("memory.min", "memory.low"):
        said = {(one.group, one.value) for one in settings_of(plans) if (one.file, one.mode) == (file, RAISE)}
        assert len(said) == len(dict(said)), "no two plans say different things of a shared cgroup"
        found = {group: int(value) for (group, name), value in written(plans).items() if name == file}
        claims = {
            path: int(values.get(file, 0)) for path, values in node.values.items() if path.count("/") > 0
        }
        for uid in node.decided:
            if node.path(uid) in found:
                claims[node.path(uid)] = found[node.path(uid)]
        for tier in ("/kubepods/burstable", "/kubepods/besteffort", "/kubepods"):
            inside = [claims[path] for path in claims if path.rpartition("/")[0] == tier]
            total = sum(-(-one // PAGE) * PAGE for one in inside)
            if tier in found:
                assert found[tier] == total
            claims[tier] = max(claims[tier], found.get(tier, 0))


@st.composite
def roomy(draw):
    """Nodes on which all floors come to less than 70 % of what reaches them."""
    cgroup = draw(st.sampled_from([V1, V2]))
    node = Node(cgroup, 64_000, 2**50)
    tier = draw(st.sampled_from([GUARANTEED, BURSTABLE]))
    weight = 10_000 if cgroup == V2 else 262_144
    node.add("/system.slice", draw(st.integers(2, weight // 100)))
    for path in TIERS.values():
        node.add(path, weight if path in ("/kubepods", TIERS[tier]) else 2)
    count = draw(st.integers(1, 12))
    for number in range(count):
        one = draw(pods(number))
        floor = one.floor and {"cpu": one.floor["cpu"] * 3, "memory": one.floor["memory"]}
        pod = replace(one.pod, qos=tier)
        expected = expectation(pod, one.profile, floor=bool(floor))
        node.add_pod(replace(one, pod=pod, expected=expected, floor=floor), there=draw(st.booleans()))
    return node


@settings(max_examples=60)
@given(roomy())
def test_where_there_is_room_every_floor_is_kept(node):
    for made in node.plans().values():
        for container in made:
            short = [one for one in container.plan.shortfalls if one.resource == "cpu"]
            assert short == []
            if node.cgroup == V2:
                assert container.plan.shortfalls == ()


@settings(max_examples=30)
@given(nodes())
def test_one_pod_alone_is_planned_as_with_all_where_nothing_changed(node):
    tree, machine = node.tree(), node.machine
    places = {uid: placed(tree, machine, one, node.running.get(uid, {})) for uid, one in node.decided.items()}
    together = PlannedNode.solved(tree, machine, places)
    for uid, place in places.items():
        assert together.plan_beside(place) == together.plan(uid)


@settings(max_examples=40)
@given(nodes(most=4), st.data())
def test_a_pod_that_was_not_planned_for_takes_no_floor_from_the_others(node, data):
    """Beside the others as they are planned, until all are planned with it."""
    node.start_all()
    before = node.plans()
    planned = PlannedNode.solved(node.tree(), node.machine, node.places())
    new = data.draw(pods(77))
    node.add_pod(new)
    place = placed(node.tree(), node.machine, new, node.running[new.pod.uid])
    plans = {**before, **node.named({new.pod.uid: planned.plan_beside(place)})}
    running = running_now(data, node)
    received = cpu_time(kernel_tree(node, plans, running), node.cpus)
    without = cpu_time(kernel_tree(node, {**plans, new.pod.uid: ()}, running), node.cpus)
    for uid, one in node.decided.items():
        path, floor = node.path(uid), one.kept.get("cpu", 0)
        if uid != new.pod.uid and without[path] >= floor > 0:
            assert received[path] >= floor


@settings(max_examples=40)
@given(roomy(), st.data())
def test_pods_that_come_one_after_the_other_are_planned_as_each_alone(node, data):
    """What was found for one that is alike is not found again."""
    node.start_all()
    tree, places, machine = node.tree(), node.places(), node.machine
    planned = PlannedNode.solved(tree, machine, places)
    for number in data.draw(st.lists(st.integers(70, 72), min_size=4, max_size=8)):
        new = data.draw(pods(number))
        place = placed(tree, machine, new, {})
        assert planned.plan_beside(place) == PlannedNode.solved(tree, machine, places).plan_beside(place)


@pytest.mark.parametrize("cgroup", [V1, V2])
def test_guaranteed_pods_and_the_burstable_ones_beside_them_keep_the_same_part(cgroup):
    """2400m are promised of 2 CPUs; the cgroup of all Burstable pods keeps the weight that it has."""
    node = Node(cgroup, 2000, 2**40)
    for path, weight in ((TIERS[GUARANTEED], 1000), (TIERS[BURSTABLE], 1000)):
        node.add(path, weight)
    for number, (qos, cpu) in enumerate(((GUARANTEED, 1500), (BURSTABLE, 900))):
        pod = NodePod(f"{number:08x}-0000-4000-8000-000000000000", "shop", qos, (Container("c", 10),), qos)
        node.add_pod(Decided(pod, expectation(pod, floor=True), floor={"cpu": cpu}))
    running = {path for paths in node.running.values() for path in paths.values()}
    received = cpu_time(kernel_tree(node, node.plans(), running), node.cpus)
    for uid, decided in node.decided.items():
        assert received[node.path(uid)] >= decided.kept["cpu"] * 0.8
        [made] = node.plans()[uid]
        assert [short.resource for short in made.plan.shortfalls] == ["cpu"]
