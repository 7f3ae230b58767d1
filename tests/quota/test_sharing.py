"""One resource shared among children: Koordinator's own figures, and what must hold for any."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.sharing import least, share

AMOUNT = st.one_of(st.integers(0, 12), st.integers(0, 2**48))
CHILD = st.tuples(AMOUNT, AMOUNT, st.integers(0, 2**40), st.booleans(), AMOUNT)
"""What it wants, its min, its weight, whether it lends, what floors hold in it."""


@pytest.mark.parametrize(
    ("total", "wants", "mins", "weights", "shares"),
    [
        # Figures of Koordinator's runtime_quota_calculator_test.go and group_quota_manager_test.go.
        (100, [5, 20, 40, 70], [10, 15, 20, 15], [40, 60, 50, 80], [5, 20, 35, 40]),
        (100, [0, 90], [60, 50], [1, 1], [0, 90]),
        (100, [30, 90], [60, 40], [1, 1], [30, 70]),
        (120, [80, 100], [50, 50], [1, 1], [60, 60]),
        (120, [80], [50], [1], [80]),
        (96, [96, 96], [50, 40], [96, 96], [53, 43]),
        (50, [30, 30], [10, 0], [40, 40], [30, 20]),
        (50, [35, 35], [10, 10], [40, 40], [25, 25]),
        (50, [40, 40], [40, 5], [40, 40], [40, 10]),
    ],
)
def test_their_figures(
    total: int, wants: list[int], mins: list[int], weights: list[int], shares: list[int]
) -> None:
    assert share(total, wants, least(total, mins, [0] * len(mins)), weights, [True] * len(mins)) == shares


def test_one_that_does_not_lend_keeps_its_min() -> None:
    assert share(100, [96, 40], [60, 40], [96, 96], [True, False]) == [60, 40]
    assert share(100, [96, 0], [60, 40], [96, 96], [True, False]) == [60, 40]


def test_units_that_do_not_divide_go_by_the_largest_remainder_then_the_name() -> None:
    leasts = least(200_000, [100_000] * 3, [0] * 3)
    assert leasts == [66_666] * 3
    assert share(200_000, [200_000] * 3, leasts, [1_000_000] * 3, [True] * 3) == [66_667, 66_667, 66_666]
    assert share(10, [10, 10, 10], [0, 0, 0], [3, 2, 1], [True] * 3) == [5, 3, 2]
    assert share(1, [1, 1], [0, 0], [1, 2], [True] * 2) == [0, 1]


def test_mins_are_scaled_in_proportion() -> None:
    assert least(100, [100, 50, 50], [0, 0, 0]) == [50, 25, 25]
    assert least(0, [100, 50], [0, 0]) == [0, 0]
    assert least(200, [100, 50], [0, 0]) == [100, 50]


def test_what_floors_hold_comes_before_every_min() -> None:
    assert least(200, [100, 50], [30, 70]) == [100, 70]
    assert least(100, [100, 50], [50, 0]) == [75, 25]
    assert least(100, [0, 100], [50, 0]) == [50, 50]
    assert least(40, [100, 100], [60, 20]) == [30, 10]


def test_a_weight_of_nothing_gets_no_more_than_the_min() -> None:
    assert share(100, [50, 50], [10, 10], [0, 1], [True, True]) == [10, 50]
    assert share(100, [50], [10], [0], [True]) == [10]


@given(AMOUNT, st.lists(CHILD, max_size=8))
def test_always(total: int, children: list[tuple[int, int, int, bool, int]]) -> None:
    held = [each[4] for each in children]
    mins, weights, lends = ([each[i] for each in children] for i in (1, 2, 3))
    wants = [max(want, kept) if lent else max(want, own, kept) for want, own, _, lent, kept in children]
    leasts = least(total, mins, held)
    shares = share(total, wants, leasts, weights, lends)
    assert sum(leasts) <= total
    assert sum(shares) <= total
    for want, own, kept, has, given_least in zip(wants, mins, held, shares, leasts, strict=True):
        assert has <= max(want, given_least)
        assert has >= min(want, given_least)
        if sum(max(pair) for pair in zip(mins, held, strict=True)) <= total:
            assert given_least == max(own, kept)
        if sum(held) <= total:
            assert given_least >= kept, "what floors hold is never lent"
    served = [
        max(want, has) if w or want <= own else has
        for want, own, w, has in zip(wants, leasts, weights, shares, strict=True)
    ]
    assert sum(shares) == min(total, sum(served)), "nothing is left while one that has a weight wants more"


@given(st.integers(1, 2**40), st.lists(st.tuples(AMOUNT, st.integers(1, 2**20)), min_size=2, max_size=6))
def test_those_that_want_more_have_it_by_weight(total: int, children: list[tuple[int, int]]) -> None:
    wants, weights = [each[0] for each in children], [each[1] for each in children]
    shares = share(total, wants, [0] * len(wants), weights, [True] * len(wants))
    levels = [Fraction(has, weight) for has, weight in zip(shares, weights, strict=True)]
    for i, want in enumerate(wants):
        if shares[i] < want:
            # No other has more by weight, but for the unit by which each round may round.
            assert all(level <= levels[i] + Fraction(8, min(weights)) for level in levels)


@given(AMOUNT, st.lists(CHILD, max_size=6), st.randoms(use_true_random=False))
def test_the_order_changes_only_who_gets_the_last_units(
    total: int, children: list[tuple[int, int, int, bool, int]], random: object
) -> None:
    def shared(order: list[int]) -> list[int]:
        chosen = [children[i] for i in order]
        wants, mins, weights, lends = ([each[i] for each in chosen] for i in range(4))
        found = share(total, wants, least(total, mins, [0] * len(mins)), weights, lends)
        return [found[order.index(i)] for i in range(len(children))]

    order = list(range(len(children)))
    random.shuffle(order)  # type: ignore[attr-defined]
    apart = [abs(a - b) for a, b in zip(shared(sorted(order)), shared(order), strict=True)]
    assert all(units <= len(children) for units in apart)
