"""The simulator against what the kernel's own documents and measurements say."""

from __future__ import annotations

from fractions import Fraction

import pytest

from lab.kernel_rules import Group, cpu_time, protection

GI = 2**30


def test_weights_divide_and_what_is_left_goes_to_those_who_want_it():
    tree = Group("/", children=[Group("a", 100), Group("b", 300), Group("c", 100, demand=0)])
    assert cpu_time(tree, 2000) == {"/": 2000, "a": 500, "b": 1500, "c": 0}


def test_satisfied_groups_leave_the_rest():
    tree = Group("/", children=[Group("a", 100), Group("b", 300, demand=200), Group("c", 100, quota=100)])
    assert cpu_time(tree, 1000) == {"/": 1000, "a": 700, "b": 200, "c": 100}


@pytest.mark.parametrize(("weight", "load"), [(1, 10), (2, 20), (8, 82), (100, 1024), (10_000, 102_400)])
def test_weights_are_rounded_as_the_scheduler_does(weight, load):
    tree = Group("/", children=[Group("a", weight), Group("idle", idle=True)])
    assert cpu_time(tree, 1000)["a"] == Fraction(1000 * load, load + 3)


def test_shares_are_on_the_same_scale():
    tree = Group("/", children=[Group("a", shares=1024), Group("b", 100), Group("c", shares=1)])
    assert cpu_time(tree, 2050) == {"/": 2050, "a": 1024, "b": 1024, "c": 2}


def test_claims_above_the_parents_are_divided_by_use():
    # cgroup-v2's example in mm/memcontrol.c: A 2G; B 3G of which 2G used, C 1G, 2G used, D 0, E 10G unused.
    below = [
        Group("b", memory_min=3 * GI, memory_usage=2 * GI),
        Group("c", memory_min=GI, memory_usage=2 * GI),
        Group("d", memory_usage=2 * GI),
        Group("e", memory_min=10 * GI),
    ]
    tree = Group("/", children=[Group("a", memory_min=2 * GI, children=below)])
    effective = protection(tree, recursive=True)
    assert (effective["b"], effective["c"]) == (2 * GI * 2 // 3, 2 * GI // 3)
    assert (effective["d"], effective["e"]) == (0, 0)


@pytest.mark.parametrize(("recursive", "b", "c"), [(True, 1.5 * GI, 0.5 * GI), (False, GI, 0)])
def test_what_is_not_claimed_is_handed_on_only_by_recursive_protection(recursive, b, c):
    below = [Group("b", memory_min=GI, memory_usage=2 * GI), Group("c", memory_usage=GI)]
    tree = Group("/", children=[Group("a", memory_min=2 * GI, children=below)])
    effective = protection(tree, recursive=recursive)
    assert (effective["b"], effective["c"]) == (b, c)


def test_a_child_alone_is_not_protected():
    # real-node.md: memory.min on the container alone does nothing.
    tree = Group("/", children=[Group("a", children=[Group("b", memory_min=GI, memory_usage=GI)])])
    assert protection(tree, recursive=True)["b"] == protection(tree, recursive=False)["b"] == 0
