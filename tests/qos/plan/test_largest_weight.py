"""Floors beside a cgroup of the largest weight: raised as far as the kernel can weigh, and then all alike."""

from __future__ import annotations

import pytest

from lab.kernel_rules import cpu_time
from qos.plan.node import V1, V2
from qos.pods.containers import BURSTABLE, Container, NodePod
from qos.pods.decision import Decided
from qos.pods.expectation import expectation
from tests.qos.kubelet_nodes import Node, kernel_tree

PODS = 20
LARGEST = {V1: 262_144, V2: 10_000}
USUAL = {V1: 1024, V2: 100}


def received(cgroup: str, floor: int) -> tuple[int, list[float], tuple[str, ...]]:
    """(kubelet's weight of a pod, what each receives of one CPU, shortfalls of the first)."""
    node = Node(cgroup, 2000, 2**33)
    for path in ("/kubepods", "/kubepods/burstable", "/system.slice"):
        node.add(path, USUAL[cgroup])
    node.add("/kubepods/burstable/stranger", LARGEST[cgroup])
    for number in range(PODS):
        uid = f"{number:08x}-0000-4000-8000-000000000000"
        pod = NodePod(uid, "shop", f"p{number}", (Container("c", floor),), BURSTABLE)
        node.add_pod(Decided(pod, expectation(pod, floor=True), floor={"cpu": floor}))
    plans = node.plans()
    running = {path for paths in node.running.values() for path in paths.values()}
    got = cpu_time(kernel_tree(node, plans, running), node.cpus)
    short = next(iter(plans.values()))[0].plan.shortfalls
    kubelets = node.machine.kubelet_weight(floor)
    return kubelets, [float(got[node.path(uid)]) for uid in plans], tuple(one.why for one in short)


@pytest.mark.parametrize("cgroup", [V1, V2])
@pytest.mark.parametrize("floor", [42, 44, 45, 46])
def test_floors_that_the_largest_weight_keeps_are_raised(cgroup: str, floor: int) -> None:
    """kubelet gives 45m no more on v2 than 42m; that is no reason to leave them there."""
    kubelets, got, short = received(cgroup, floor)
    assert kubelets == {V1: floor * 1024 // 1000, V2: 2}[cgroup]
    assert min(got) >= floor
    assert short == ()


@pytest.mark.parametrize("cgroup", [V1, V2])
def test_beyond_it_each_keeps_the_same_part(cgroup: str) -> None:
    _, got, short = received(cgroup, 48)
    assert min(got) == max(got) == pytest.approx(1000 * PODS / (PODS + 1) / PODS, rel=0.01)
    assert len(short) == 1
