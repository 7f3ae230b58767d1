"""The weight of all pods at the root with which allocatable CPU is true, judged by the kernel's rules."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.kernel_rules import Group, cpu_time
from qos.plan.layout import kubelet_weight, shares
from qos.plan.node import V1, V2, Level, Rival
from qos.plan.node_share import allocatable_weight, node_share, pods_level, scale_of, with_weight
from tests.qos.kubelet_nodes import Node


def reaching(level: Level, cpus: int, unified: bool, weight: int):
    """What reaches all pods under full contention of what is populated, in exact millicores."""

    def group(name: str, weight: int, *, idle: bool = False) -> Group:
        return Group(name, weight=weight, shares=None if unified else weight, idle=idle)

    beside = [
        group(f"{number}", one.weight, idle=one.idle)
        for number, one in enumerate(level.rivals)
        if one.populated
    ]
    return cpu_time(Group("/", children=[group("pods", weight), *beside]), cpus)["pods"]


def of_kubelet(millicores: int, unified: bool) -> int:
    return kubelet_weight(shares(millicores)) if unified else shares(millicores)


@st.composite
def contests(draw):
    """(level of all pods, the node's millicores, unified): with any reservation and any neighbours."""
    unified = draw(st.booleans())
    cpus = draw(st.sampled_from([1, 2, 8, 64, 192])) * 1000
    allocatable = cpus - draw(st.integers(0, cpus - 1))
    usual = 100 if unified else 1024
    weights = st.sampled_from([usual, usual // 4, usual * 10])
    rivals = st.builds(Rival, weights, idle=st.booleans(), populated=st.booleans())
    level = Level("/kubepods", of_kubelet(allocatable, unified), tuple(draw(st.lists(rivals, max_size=8))))
    return level, cpus, unified


@settings(max_examples=400)
@given(contests())
def test_it_is_the_smallest_with_which_allocatable_is_true(contest):
    level, cpus, unified = contest
    scale, weight = scale_of(unified), allocatable_weight(*contest)
    share = node_share(level, cpus, unified, weight)
    assert level.weight <= weight <= scale.high
    exact = reaching(level, cpus, unified, weight)
    assert share.reaching == int(exact), "the judge agrees"
    if weight == level.weight:
        return
    assert share.due < cpus, "nothing is reserved: no weight but kubelet's"
    assert reaching(level, cpus, unified, weight - 1) < share.due
    assert exact >= share.due or weight == scale.high
    if exact > share.due:  # what runs beside it has what is reserved, but for the last step of the weight
        step = exact - reaching(level, cpus, unified, weight - 1)
        assert cpus - exact > share.reserved - step
    assert not share.beside_lacks or weight <= 10  # the least weights are a large step apart


@settings(max_examples=200)
@given(contests())
def test_what_is_allocatable_is_never_less_true_than_by_kubelets_weight(contest):
    level, cpus, unified = contest
    before, after = node_share(level, cpus, unified), node_share(*contest, allocatable_weight(*contest))
    assert after.reaching >= before.reaching
    assert (after.due, after.reserved) == (before.due, before.reserved)


def systemd_node(allocatable: int, cgroup: str = V2) -> Node:
    node = Node(cgroup, 8000, 2**35)
    node.empty = {"/dev-mqueue.mount"}
    for path in ("/init.scope", "/system.slice", "/user.slice", "/dev-mqueue.mount"):
        node.add(path, 100 if cgroup == V2 else 1024)
    node.add("/kubepods", of_kubelet(allocatable, cgroup == V2))
    return node


@pytest.mark.parametrize("cgroup", [V1, V2])
def test_on_a_systemd_node_kubepods_gets_what_is_allocatable(cgroup):
    node = systemd_node(7500, cgroup)
    level = pods_level(node.tree(), node.machine)
    assert level is not None
    unified = cgroup == V2
    before = node_share(level, 8000, unified)
    assert before.pods_lack
    assert (before.reaching // 1000, before.due // 100) == (3, 74) if unified else (5, 75)
    weight = allocatable_weight(level, 8000, unified)
    after = node_share(level, 8000, unified, weight)
    assert not after.pods_lack
    assert not after.beside_lacks
    tree = with_weight(node.tree(), "/kubepods", weight, unified)
    again = pods_level(tree, node.machine)
    assert again == replace(level, weight=weight)


@pytest.mark.parametrize("cgroup", [V1, V2])
def test_where_nothing_is_reserved_nothing_is_taken_from_the_system(cgroup):
    node = systemd_node(8000, cgroup)
    level = pods_level(node.tree(), node.machine)
    assert level is not None
    assert allocatable_weight(level, 8000, cgroup == V2) == level.weight
    assert node_share(level, 8000, cgroup == V2).pods_lack, "and that is said"


def test_what_the_kernel_cannot_weigh_gets_the_most_and_is_said():
    level = Level("/kubepods", of_kubelet(63_900, True), (Rival(1000), Rival(1000)))
    weight = allocatable_weight(level, 64_000, True)
    assert weight == 10_000
    assert node_share(level, 64_000, True, weight).pods_lack


def test_the_cgroup_of_another_driver_without_processes_is_not_the_one():
    node = systemd_node(7500)
    node.empty |= {"/kubepods.slice"}
    node.add("/kubepods.slice", 300)
    level = pods_level(node.tree(), node.machine)
    assert level is not None
    assert level.path == "/kubepods"
