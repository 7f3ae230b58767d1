"""The CPU floor along the hierarchy, against the simulator of the kernel's rules."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.kernel_rules import cpu_time
from qos.plan.hierarchy import CpuDemand, keep_cpu
from qos.plan.node import Level, Rival
from qos.plan.weights import LEGACY, UNIFIED

SCALES = st.sampled_from([UNIFIED, LEGACY])


def weights(scale):
    return st.one_of(st.integers(scale.low, 400), st.integers(scale.low, scale.high))


@st.composite
def rivals(draw, scale, most=5):
    floors = st.one_of(st.just(0), st.integers(1, 3000))
    one = st.builds(Rival, weights(scale), idle=st.sampled_from([False] * 5 + [True]), cpu_floor=floors)
    return tuple(draw(st.lists(one, max_size=most)))


@st.composite
def hierarchies(draw, scale):
    """Levels from the root's child down; the last one or two are ours."""
    depth = draw(st.integers(1, 5))
    owned = draw(st.integers(1, min(2, depth)))
    levels = []
    for index in range(depth):
        ours = index >= depth - owned
        levels.append(
            Level(
                f"/{index}",
                draw(weights(scale)),
                draw(rivals(scale)),
                owned=ours,
                idle=not ours and draw(st.sampled_from([False] * 9 + [True])),
                cpu_quota=draw(st.sampled_from([None] * 4 + [500, 2000])),
            )
        )
    return levels


@st.composite
def cases(draw):
    scale = draw(SCALES)
    levels = draw(hierarchies(scale))
    floor = draw(st.integers(1, 4000))
    pod = floor + draw(st.integers(0, 1000))
    fixed = draw(st.one_of(st.just({}), st.builds(lambda w: {0: w}, weights(scale))))
    return scale, levels, draw(st.integers(1, 16)) * 1000, CpuDemand(floor, pod, weights=fixed)


def planned(kept):
    return {one.number: one.weight for one in kept.weighings}


@settings(deadline=None)
@given(cases())
def test_the_floor_is_kept_or_at_least_what_is_missing_is_said(tree_of, case):
    scale, levels, cpus, demand = case
    kept = keep_cpu(levels, scale, cpus, demand)
    tree = tree_of(levels, unified=scale is UNIFIED, weights=planned(kept))
    received = cpu_time(tree, cpus)["level0"]
    if kept.shortfall is None:
        assert received >= demand.floor
    else:
        assert kept.shortfall.promised == demand.floor
        assert kept.shortfall.missing > 0
        assert kept.shortfall.kept == int(received) < demand.floor
        assert kept.shortfall.group == levels[len(levels) - 1 - kept.shortfall.level].path


@settings(deadline=None)
@given(cases())
def test_no_sibling_loses_a_floor_that_it_has(tree_of, case):
    scale, levels, cpus, demand = case
    demand = replace(demand, weights={})
    kept = keep_cpu(levels, scale, cpus, demand)
    before = cpu_time(tree_of(levels, unified=scale is UNIFIED), cpus)
    after = cpu_time(tree_of(levels, unified=scale is UNIFIED, weights=planned(kept)), cpus)
    for index, level in enumerate(levels):
        for position, rival in enumerate(level.rivals):
            name = f"rival{len(levels) - 1 - index}.{position}"
            if not rival.idle and before[name] >= rival.cpu_floor:
                assert after[name] >= rival.cpu_floor


@settings(deadline=None)
@given(cases())
def test_weights_are_in_range_and_parents_come_first(case):
    scale, levels, cpus, demand = case
    kept = keep_cpu(levels, scale, cpus, demand)
    numbers = [one.number for one in kept.weighings]
    assert numbers == sorted(numbers, reverse=True)
    for one in kept.weighings:
        assert scale.low <= one.weight <= scale.high
        assert one.level.owned
        if one.number not in demand.weights:
            assert one.weight >= one.level.weight


@settings(deadline=None)
@given(cases())
def test_planning_again_changes_nothing(case):
    scale, levels, cpus, demand = case
    demand = replace(demand, weights={})
    first = planned(keep_cpu(levels, scale, cpus, demand))
    again = [
        replace(level, weight=first.get(len(levels) - 1 - index, level.weight))
        for index, level in enumerate(levels)
    ]
    assert planned(keep_cpu(again, scale, cpus, demand)) == first


@st.composite
def neighbours(draw):
    """Pods whose floors fit: scale, capacity, floors, weights; and the weights of what has no floor."""
    scale = draw(SCALES)
    capacity = draw(st.integers(1, 16)) * 1000
    count = draw(st.integers(1, 5))
    floors = draw(st.lists(st.integers(1, capacity), min_size=count, max_size=count))
    room = capacity * 9 // 10
    floors = [max(floor * room // max(sum(floors), room), 1) for floor in floors]
    some = st.integers(scale.low, 400)
    weights = draw(st.lists(some, min_size=count, max_size=count))
    return scale, capacity, floors, weights, draw(st.lists(some, max_size=3))


def plan_of(index, scale, capacity, floors, now, others, **demand):
    beside = [Rival(weight, cpu_floor=floor) for weight, floor in zip(now, floors, strict=True)]
    del beside[index]
    level = Level("/pod", now[index], (*beside, *map(Rival, others)), owned=True)
    return keep_cpu([level], scale, capacity, CpuDemand(floors[index], **demand))


@settings(deadline=None)
@given(neighbours())
def test_floors_that_fit_are_all_kept_when_they_are_planned_together(case):
    scale, capacity, floors, weights, others = case
    plans = [
        plan_of(index, scale, capacity, floors, weights, others, together=True)
        for index in range(len(floors))
    ]
    assert not any(kept.shortfall for kept in plans)
    now = [planned(kept)[0] for kept in plans]
    again = [
        plan_of(index, scale, capacity, floors, now, others, together=True) for index in range(len(floors))
    ]
    assert not any(kept.shortfall for kept in again)
    assert [planned(kept)[0] for kept in again] == now


@settings(deadline=None)
@given(neighbours())
def test_floors_that_fit_are_kept_one_plan_after_another_unless_a_siblings_floor_is_in_the_way(case):
    scale, capacity, floors, now, others = case
    for _ in range(len(floors) + 1):
        plans = []
        for index in range(len(floors)):
            kept = plan_of(index, scale, capacity, floors, now, others)
            now[index] = planned(kept)[0]
            plans.append(kept)
    for kept in plans:
        assert kept.shortfall is None or "below their floors" in kept.shortfall.why


@settings(deadline=None)
@given(st.data())
def test_one_pod_among_others_without_floors_is_never_short_where_there_is_room(data):
    scale = data.draw(SCALES)
    capacity = data.draw(st.integers(1, 32)) * 1000
    floor = data.draw(st.integers(1, capacity * 9 // 10))
    beside = data.draw(st.lists(st.integers(scale.low, scale.unit * 3), max_size=3))
    inside = data.draw(st.lists(st.integers(scale.low, scale.unit), max_size=2))
    levels = [
        Level("/pod", data.draw(weights(scale)), tuple(map(Rival, beside)), owned=True),
        Level("/pod/c", data.draw(weights(scale)), tuple(map(Rival, inside)), owned=True),
    ]
    assert keep_cpu(levels, scale, capacity, CpuDemand(floor, floor)).shortfall is None


def test_the_reason_names_floor_capacity_rivals_and_place():
    levels = [
        Level("/kubepods", 100, ()),
        Level("/kubepods/burstable", 100, ()),
        Level("/kubepods/burstable/pod", 8, (Rival(100), Rival(200)), owned=True),
    ]
    [weighing] = keep_cpu(levels, UNIFIED, 2000, CpuDemand(500)).weighings
    assert weighing.reason == "floor 500m of 2 CPUs against weights 100+200 at /kubepods/burstable"
    assert weighing.weight == 100  # a third of the 300 beside it


def test_an_idle_rival_counts_as_three():
    level = Level("/c", 1, (Rival(0, idle=True),), owned=True)
    [weighing] = keep_cpu([level], UNIFIED, 1000, CpuDemand(900)).weighings
    assert weighing.weight == ceil(27 / 10.24)


def test_exact_thirds_and_quarters_have_an_exact_solution():
    """The floors come to the whole capacity: only one solution is left, and it is found."""
    level = Level("/c", 100, (Rival(100, cpu_floor=500),), owned=True)
    kept = keep_cpu([level], UNIFIED, 2000, CpuDemand(1500))
    assert kept.weighings[0].weight == 300
    assert kept.shortfall is None


def test_a_shared_level_that_gets_too_little_is_named():
    levels = [Level("/low", 10, (Rival(90),)), Level("/low/c", 100, (), owned=True)]
    shortfall = keep_cpu(levels, UNIFIED, 1000, CpuDemand(500)).shortfall
    assert shortfall is not None
    assert (shortfall.level, shortfall.group, shortfall.kept) == (1, "/low", 99)
    assert "cpu.weight 10 against weight 90" in shortfall.why


@pytest.mark.parametrize("weight", [0, 1])
def test_nothing_to_share_is_a_shortfall_too(weight):
    levels = [Level("/none", weight, (), cpu_quota=0), Level("/none/c", weight, (Rival(0),), owned=True)]
    shortfall = keep_cpu(levels, UNIFIED, 1000, CpuDemand(500)).shortfall
    assert shortfall is not None
    assert (shortfall.level, shortfall.kept) == (1, 0)


def test_a_quota_above_it_is_named():
    levels = [Level("/low", 100, (), cpu_quota=200), Level("/low/c", 100, (), owned=True)]
    shortfall = keep_cpu(levels, UNIFIED, 1000, CpuDemand(500)).shortfall
    assert shortfall is not None
    assert (shortfall.level, shortfall.missing) == (1, 300)
    assert "200m" in shortfall.why


def test_a_container_alone_on_its_cpus_needs_no_weight():
    level = Level("/c", 1, (Rival(10_000),), owned=True)
    kept = keep_cpu([level], UNIFIED, 8000, CpuDemand(2000, alone=True, most=2000))
    assert kept.shortfall is None
    assert kept.weighings[0].weight == 1
    short = keep_cpu([level], UNIFIED, 8000, CpuDemand(2500, alone=True, most=2000)).shortfall
    assert short is not None
    assert short.missing == 500


def test_more_weight_than_a_siblings_floor_allows_is_not_taken():
    level = Level("/c", 100, (Rival(100, cpu_floor=1000), Rival(100)), owned=True)
    kept = keep_cpu([level], UNIFIED, 3000, CpuDemand(1900))
    assert kept.weighings[0].weight == 100
    assert kept.shortfall is not None
    assert "1 of it promised to siblings" in kept.shortfall.why
    assert kept.shortfall.why.endswith("more weight would take siblings below their floors or requests")


@pytest.mark.parametrize(("scale", "new"), [(UNIFIED, 100), (LEGACY, 1024)])
def test_a_cgroup_of_ours_that_was_idle_starts_from_a_new_ones_weight(scale, new):
    level = Level("/c", 0, (), owned=True, idle=True)
    assert planned(keep_cpu([level], scale, 1000, CpuDemand(0))) == {0: new}


def test_a_pod_gets_more_than_its_floor_for_what_has_none_in_it():
    levels = [
        Level("/pod", 1, (Rival(100),), owned=True),
        Level("/pod/c", 100, (Rival(100), Rival(50, cpu_floor=250)), owned=True),
    ]
    kept = keep_cpu(levels, UNIFIED, 2000, CpuDemand(750, 1000))
    assert [one.need for one in kept.weighings] == [ceil(1000 * 50 / 49), 750]
    assert kept.shortfall is None
    received = kept.weighings[1].capacity
    assert received.holds(1020)
    assert kept.weighings[1].weight <= 49 * 100  # not at any price


def test_floors_that_a_level_names_are_needed_there():
    levels = [Level("/pod", 1, (Rival(100),), owned=True, floor_cpu=1500), Level("/pod/c", 1, owned=True)]
    kept = keep_cpu(levels, UNIFIED, 2000, CpuDemand(500))
    assert [(one.need, one.weight) for one in kept.weighings] == [(1500, 300), (500, 1)]


def test_the_pods_whole_floor_reaches_the_pod():
    levels = [Level("/pod", 1, (Rival(100),), owned=True), Level("/pod/c", 1, owned=True)]
    kept = keep_cpu(levels, UNIFIED, 2000, CpuDemand(500, 1500))
    assert [(one.need, one.weight) for one in kept.weighings] == [(1500, 300), (500, 1)]


def test_a_floor_that_cannot_be_kept_leaves_something_to_the_others():
    level = Level("/pod", 1024, (Rival(1024),), owned=True)
    kept = keep_cpu([level], LEGACY, 4000, CpuDemand(5000))
    assert kept.weighings[0].weight == 49 * 1024
    assert kept.shortfall is not None
    assert kept.shortfall.kept == 3920
