"""CPU weights on the scheduler's scale."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.kernel_rules import Group, cpu_time
from qos.plan.cpu_list import cpu_count
from qos.plan.weights import LEGACY, UNIFIED

SCALES = st.sampled_from([UNIFIED, LEGACY])


@pytest.mark.parametrize(
    ("weight", "load"),
    # real-node.md: kubelet's 8 and runc's 29 for the same 200m; runc's 4 and 17 for 100m
    [(1, 10), (4, 41), (8, 82), (17, 174), (29, 297), (100, 1024), (10_000, 102_400)],
)
def test_a_weight_comes_to_what_the_scheduler_makes_of_it(weight, load):
    assert UNIFIED.load(weight) == load


def test_shares_are_the_scale():
    assert [LEGACY.load(shares) for shares in (2, 1024, 262_144)] == [2, 1024, 262_144]


@settings(deadline=None)
@given(st.integers(1, 10_000))
def test_the_simulator_agrees(weight):
    tree = Group("/", children=[Group("a", weight), Group("b", shares=1024)])
    received = cpu_time(tree, 1)
    assert received["a"] / received["b"] * 1024 == UNIFIED.load(weight)


@settings(deadline=None)
@given(SCALES, st.integers(0, 300_000))
def test_least_and_most_are_the_neighbours_of_a_load(scale, load):
    least, most = scale.least(load), scale.most(load)
    if least is None:
        assert load > scale.load(scale.high)
    else:
        assert scale.load(least) >= load
        assert least == scale.low or scale.load(least - 1) < load
    assert scale.load(most) <= load or most == scale.low
    assert most == scale.high or scale.load(most + 1) > load


@settings(deadline=None)
@given(SCALES, st.integers(1, 10_000))
def test_a_class_weight_stays_in_range_and_keeps_its_proportion(scale, weight):
    native = scale.native(weight)
    assert scale.low <= native <= scale.high
    assert native in (weight, weight * 1024 // 100, scale.low)


@pytest.mark.parametrize(("cpus", "count"), [("", 0), ("3", 1), ("0-3,8", 5), ("0,2,4-5", 4)])
def test_cpus_of_a_list(cpus, count):
    assert cpu_count(cpus) == count


@pytest.mark.parametrize("cpus", ["a", "3-1", "1,,2", "-1"])
def test_what_is_no_list_is_refused(cpus):
    with pytest.raises(ValueError, match=r"CPUs|invalid"):
        cpu_count(cpus)
