"""CPU time under contention: every sibling at full load, at every level, on two CPUs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lab.contention import measures
from lab.contention.groups import Group
from lab.contention.node import Node, best_effort, pod, small
from lab.contention.work import Load
from qos.classes import promises_of
from qos.keys import CPU
from qos.plan.planning import plan
from qos.pods.containers import BURSTABLE, GUARANTEED, Container, NodePod

CPUS = 2
FLOOR = 300
"""Millicores: less than the host's slices leave to a pod of each tier, more than kubelet's weights give."""
ON_ONE = 200
"""Of a single CPU, where half as much reaches all pods."""
SMALL = 18
"""Pods that together weigh half as much again as ours, by kubelet: without a plan it gets about 0.22 CPUs."""
NEARLY = 0.95
"""What the scheduler's rounding, and its moving of work between CPUs, may cost."""
NEARLY_ALL = 0.8
"""What is left when the rest of the machine has had what it needs."""

Record = Callable[[str, object], None]


def ours(qos: str) -> NodePod:
    return pod("ours", qos, Container("app", cpu_request=FLOOR))


def rivals(node: Node, qos: str) -> list[Group]:
    """What a full node has beside our pod: slices of the host, a pod of the lowest tier, and in our own tier
    pods that have more than they request.
    """
    pods = [best_effort("besteffort"), *small(qos, SMALL)]
    return [*node.slices(), *(node.start(one)["app"] for one in pods)]


WITH_FLOORS = (
    ("LS", BURSTABLE),
    ("LS", GUARANTEED),
    ("LSR", GUARANTEED),
    ("LSE", GUARANTEED),
    ("SYSTEM", BURSTABLE),
)


def first_at_least(cpus: float) -> Callable[[list[float]], bool]:
    return lambda used: used[0] >= cpus


@pytest.mark.parametrize(
    ("system", "class_name", "qos"),
    [
        *(("plain", *one) for one in WITH_FLOORS[:2]),
        *(pytest.param("plain", *one, marks=pytest.mark.full) for one in WITH_FLOORS[2:]),  # 13 s each
        ("systemd", *WITH_FLOORS[0]),
        *(pytest.param("systemd", *one, marks=pytest.mark.full) for one in WITH_FLOORS[1:]),  # 30 s each
    ],
)
def test_the_floor_of_a_class_is_kept_through_all_levels(
    node: Node, load: Load, class_name: str, qos: str, record_property: Record
) -> None:
    groups = [node.start(ours(qos))["app"], *rivals(node, qos)]
    for group in groups:
        load.spin(group, CPUS)
    least = NEARLY * FLOOR / 1000
    without = measures.cpus_used(groups, CPUS, lambda used: used[0] < least, cpu_seconds=1.5)[0]
    node.keep(ours(qos), "app", promises_of(class_name), {CPU: FLOOR})
    kept = measures.cpus_used(groups, CPUS, first_at_least(least))[0]
    record_property("CPUs without the plan, and with it", (without, kept))
    assert without < least <= kept


@pytest.mark.parametrize("system", ["plain", pytest.param("systemd", marks=pytest.mark.full)])
def test_cpus_of_its_own(node: Node, load: Load, record_property: Record) -> None:
    groups = [node.start(ours(GUARANTEED))["app"], *rivals(node, GUARANTEED)]
    for group in groups:
        load.spin(group, CPUS)
    node.keep(ours(GUARANTEED), "app", promises_of("LSR"), {CPU: ON_ONE}, own_cpus="1")
    assert groups[0].read("cpuset.cpus.effective") == "1"
    least = NEARLY * ON_ONE / 1000
    kept = measures.cpus_used(groups, CPUS, first_at_least(least))[0]
    record_property("CPUs on CPU 1 alone", kept)
    assert least <= kept <= 1


def test_each_container_of_a_pod_gets_its_part(node: Node, load: Load, record_property: Record) -> None:
    two = pod("two", GUARANTEED, Container("app", cpu_request=200), Container("sidecar", cpu_request=100))
    app, sidecar = node.start(two).values()
    groups = [app, sidecar, *rivals(node, GUARANTEED)]
    for group in groups:
        load.spin(group, CPUS)
    for name in ("app", "sidecar"):
        node.keep(two, name, promises_of("LS"), {CPU: 300})
    kept = measures.cpus_used(groups, CPUS, lambda used: used[0] >= NEARLY * 0.2 and used[1] >= NEARLY * 0.1)
    record_property("CPUs of 0.2 and 0.1", kept[:2])
    assert kept[0] >= NEARLY * 0.2
    assert kept[1] >= NEARLY * 0.1


@pytest.mark.systems("plain", "systemd")
def test_what_cannot_be_kept_is_said_and_the_rest_is_kept(
    node: Node, load: Load, record_property: Record
) -> None:
    groups = [node.start(ours(BURSTABLE))["app"], *rivals(node, BURSTABLE)]
    for group in groups:
        load.spin(group, CPUS)
    planned = plan(ours(BURSTABLE), "app", promises_of("LS"), {CPU: 1500}, node.facts(ours(BURSTABLE), "app"))
    (shortfall,) = planned.shortfalls
    assert (shortfall.resource, shortfall.promised) == (CPU, 1500)
    assert 0 < shortfall.kept < 1500
    node.apply(ours(BURSTABLE), "app", planned)
    least = NEARLY * shortfall.kept / 1000
    kept = measures.cpus_used(groups, CPUS, first_at_least(least))[0]
    record_property("CPUs that the plan says are kept, and that were", (shortfall.kept / 1000, kept))
    assert kept >= least


def test_best_effort_runs_only_when_a_latency_sensitive_pod_does_not(
    node: Node, load: Load, record_property: Record
) -> None:
    batch, sensitive_pod = (pod(name, BURSTABLE, Container("app", cpu_request=500)) for name in ("be", "ls"))
    groups = [node.start(one)["app"] for one in (sensitive_pod, batch)]
    for group in groups:
        load.spin(group, CPUS)
    sensitive, equal = measures.cpus_used(groups, CPUS, lambda used: used[1] > used[0] / 2, cpu_seconds=1.5)
    assert equal > sensitive / 2
    node.keep(batch, "app", promises_of("BE"), None)
    # the kernel counts an idle cgroup as a weight of 0.3: against 20, kubelet's for 500m, that is 1 to 68
    sensitive, idle = measures.cpus_used(groups, CPUS, lambda used: used[0] > 50 * used[1])
    record_property("CPUs of LS and BE", (sensitive, idle))
    assert sensitive > 30 * idle


def test_a_best_effort_pod_has_kubelets_share_for_its_tier_and_no_more(
    node: Node, load: Load, record_property: Record
) -> None:
    # cpu.idle counts among the pods of its tier; against the other tiers it is besteffort's own weight of 1
    batch = best_effort("batch")
    groups = [node.start(one)["app"] for one in (ours(BURSTABLE), batch)]
    for group in groups:
        load.spin(group, CPUS)
    node.keep(batch, "app", promises_of("BE"), None)
    sensitive, idle = measures.cpus_used(groups, CPUS, lambda used: used[0] > 6 * used[1])
    record_property("CPUs of LS and BE", (sensitive, idle))
    assert sensitive > 5 * idle


def test_best_effort_gets_all_that_is_idle(node: Node, load: Load, record_property: Record) -> None:
    batch = best_effort("batch")
    app = node.start(batch)["app"]
    load.spin(app, CPUS)
    node.keep(batch, "app", promises_of("BE"), None)
    used = measures.deltas(
        {
            "group": lambda: app.number("cpu.stat", "usage_usec"),
            "all": lambda: Group(Path("/sys/fs/cgroup")).number("cpu.stat", "usage_usec"),
        },
        # the host may stop the guest between both readings
        lambda grown: grown["group"] > (1e6 if grown["group"] > NEARLY_ALL * grown["all"] else 1e7),
    )
    record_property("CPU seconds of BE, and of all", [microseconds / 1e6 for microseconds in used.values()])
    assert used["group"] > NEARLY_ALL * used["all"]
