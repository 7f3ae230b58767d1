"""The arithmetic of spread domains, against all that could be done with a few of them."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ledger.levels import Levels, highest_first, lowest_first, most_more

AMOUNTS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=4)


def _split(domains: list[tuple[int, int]]) -> tuple[Levels, Levels]:
    levels, others = zip(*domains, strict=True)
    return np.asarray(levels, dtype=np.int64), np.asarray(others, dtype=np.int64)


def _even(levels: Levels, added: Levels, skew: int) -> bool:
    """No domain that got any is further above the lowest than it may be."""
    after = levels + added
    return bool((after[added > 0] - after.min() <= skew).all())


@given(AMOUNTS, st.integers(1, 3), st.integers(0, 12))
def test_as_many_as_any_distribution_has_find_a_domain(
    domains: list[tuple[int, int]], skew: int, want: int
) -> None:
    levels, room = _split(domains)
    most = most_more(levels, room, skew)
    got = lowest_first(levels, most, want, np.arange(levels.size))
    assert ((got >= 0) & (got <= room)).all()
    assert _even(levels, got, skew)
    others = (np.asarray(one) for one in product(*(range(n + 1) for n in room.tolist())))
    assert int(got.sum()) == max(int(o.sum()) for o in others if o.sum() <= want and _even(levels, o, skew))


@given(AMOUNTS, st.integers(0, 12))
def test_without_a_skew_the_lowest_come_first(domains: list[tuple[int, int]], want: int) -> None:
    levels, room = _split(domains)
    got = lowest_first(levels, room, want, np.arange(levels.size))
    by_hand = np.zeros_like(levels)
    for _ in range(min(want, int(room.sum()))):
        open_ones = np.flatnonzero(by_hand < room)
        by_hand[open_ones[np.lexsort((open_ones, (levels + by_hand)[open_ones]))[0]]] += 1
    assert (got == by_hand).all()


@given(AMOUNTS, st.integers(0, 12))
def test_the_highest_give_up_theirs_first(domains: list[tuple[int, int]], count: int) -> None:
    others, held = _split(domains)
    levels = others + held
    gone = highest_first(levels, held, count)
    by_hand = np.zeros_like(levels)
    for _ in range(min(count, int(held.sum()))):
        there = np.flatnonzero(by_hand < held)
        by_hand[there[np.lexsort((there, -(levels - by_hand)[there]))[0]]] += 1
    assert int(gone.sum()) == min(count, int(held.sum()))
    assert sorted((levels - gone).tolist()) == sorted((levels - by_hand).tolist())


def test_fewer_domains_than_asked_for_count_as_one_that_is_empty() -> None:
    levels, room = np.asarray([1, 3]), np.asarray([9, 9])
    assert most_more(levels, room, 2, floor=0).tolist() == [1, 0]
