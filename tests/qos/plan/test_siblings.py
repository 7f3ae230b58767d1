"""Weights of siblings that are solved together, and sums over siblings that are taken once."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.plan.hierarchy import MOST_TIMES, load_of
from qos.plan.node import Rival
from qos.plan.rivals import Children, largest, total
from qos.plan.siblings import Capacity, Member, Siblings
from qos.plan.weights import LEGACY, UNIFIED

SCALES = st.sampled_from([UNIFIED, LEGACY])


@st.composite
def siblings(draw):
    scale = draw(SCALES)
    loads = st.integers(scale.low, 300).map(scale.load)
    members = st.tuples(loads, st.integers(1, 2000)).map(lambda one: Member(*one))
    return Siblings(
        Capacity(
            draw(st.integers(0, 16)) * 1000 + draw(st.integers(0, 999)), draw(st.sampled_from([1, 3, 1000]))
        ),
        scale,
        tuple(draw(st.lists(members, max_size=6))),
        draw(st.one_of(st.just(0), st.integers(1, 5000))),
        tuple(draw(st.lists(members, max_size=2))),
    )


def shares(one: Siblings, loads: list[int]) -> tuple[list[Fraction], list[Fraction]]:
    """What the members get, and what the fixed ones get."""
    whole = sum(loads) + one.unpromised + sum(each.load for each in one.fixed)
    unit = Fraction(one.capacity.numerator, one.capacity.denominator) / max(whole, 1)
    return [unit * load for load in loads], [unit * each.load for each in one.fixed]


@given(siblings())
def test_all_have_their_floors_or_the_same_part_of_them(one):
    loads = one.together(MOST_TIMES)
    assert all(load >= member.load for load, member in zip(loads, one.members, strict=True))
    assert all(one.scale.load(one.scale.most(load)) == load for load in loads)
    theirs, fixed = shares(one, loads)
    before = shares(one, [member.load for member in one.members])[1]
    helped = [
        (got, each) for got, each, had in zip(fixed, one.fixed, before, strict=True) if had * 2 >= each.floor
    ]
    everyone = [*zip(theirs, one.members, strict=True), *helped]
    part = min((int(min(got / each.floor, 1) * 1000) for got, each in everyone), default=1000)
    if part < 1000:
        step = one.scale.load(2) - one.scale.load(1) + 1
        for got, load, each in zip(theirs, loads, one.members, strict=True):
            if load > each.load:  # not raised for more than that part, but for whole numbers
                assert got * (load - step) / load <= Fraction(each.floor * (part + 2), 1000) + 1
        whole = sum(loads) + one.unpromised + sum(each.load for each in one.fixed)
        assert not one.unpromised or whole <= max(one.load, one.unpromised * (MOST_TIMES + 1))


@given(siblings())
def test_floors_that_come_to_less_than_four_fifths_are_all_kept(one):
    floors = sum(member.floor for member in one.members)
    room = Siblings(Capacity(floors * 5 // 4 + 20), one.scale, one.members, min(one.unpromised, 1000))
    theirs, _ = shares(room, room.together(MOST_TIMES))
    assert all(got >= member.floor for got, member in zip(theirs, one.members, strict=True))


def test_what_is_fixed_bounds_what_the_others_weigh():
    both = Siblings(Capacity(1000), LEGACY, (Member(100, 600),), 0, (Member(100, 400),))
    assert both.together(MOST_TIMES) == [150]
    # 1100 are promised of 1000: the same part for both, and no weight below what it is
    more = Siblings(Capacity(1000), LEGACY, (Member(100, 600),), 0, (Member(100, 500),))
    assert more.together(MOST_TIMES) == [120]


def test_the_bound_of_one_more_heeds_what_is_fixed():
    assert Siblings(Capacity(1000), LEGACY, (), 0, (Member(100, 400),)).bound(50) == 150


RIVALS = st.lists(
    st.builds(Rival, st.integers(2, 500), st.booleans(), st.integers(0, 300), st.integers(0, 99)), min_size=1
)


def claimed(rival: Rival, times: int) -> int:
    return rival.memory_min * times


def floor(rival: Rival) -> int:
    return rival.cpu_floor


@given(RIVALS, SCALES, st.data())
def test_who_is_left_out_is_in_no_sum(rivals, scale, data):
    children = Children(rivals)
    for index in (data.draw(st.integers(0, len(rivals) - 1)), None):
        beside = children.beside(index)
        plain = tuple(one for place, one in enumerate(rivals) if place != index)
        assert (tuple(beside), len(beside), bool(beside)) == (plain, len(plain), bool(plain))
        assert beside == plain
        assert hash(beside) == hash(plain)
        assert load_of(beside, scale) == load_of(plain, scale)
        assert total(beside, claimed, 3) == total(plain, claimed, 3)
        assert largest(beside, floor) == largest(plain, floor)
    with pytest.raises(IndexError):
        children.beside(None)[len(rivals)]
