"""Matching of holds with pods that may run on some nodes only, against all ways to do it."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from ledger.matching import Matching


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[list[int]], list[int], list[int]]:
    """The groups of each class, the groups' sizes, and holds by class in the order they come."""
    groups, kinds = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    fits = [sorted(draw(st.sets(st.integers(0, groups - 1)))) for _ in range(kinds)]
    sizes = [draw(st.integers(0, 2)) for _ in range(groups)]
    return fits, sizes, draw(st.lists(st.integers(0, kinds - 1), max_size=5))


def most(fits: list[list[int]], sizes: list[int], holds: list[int]) -> int:
    """How many of the holds find a pod, by trying each order of the pods."""
    pods = [group for group, size in enumerate(sizes) for _ in range(size)]
    pods += [-1] * len(holds)
    pairs = (zip(order, holds, strict=False) for order in set(permutations(pods, len(holds))))
    return max(sum(pod in fits[hold] for pod, hold in pair) for pair in pairs)


def filled(fits: list[list[int]], sizes: list[int], holds: list[int]) -> Matching:
    made = Matching(fits, sizes)
    for hold in holds:
        made.add(hold, 1)
    return made


def matched(of: Matching) -> int:
    return sum(sum(given.values()) for given in of.given)


@given(cases())
def test_no_way_to_give_holds_to_pods_finds_more(case: tuple[list[list[int]], list[int], list[int]]) -> None:
    fits, sizes, holds = case
    made = filled(fits, sizes, holds)
    assert matched(made) == most(fits, sizes, holds)
    assert all(spare >= 0 for spare in made.spare)
    for kind, may in enumerate(made.open()):
        assert may == (most(fits, sizes, [*holds, kind]) > matched(made))


@given(cases())
def test_many_at_once_are_as_many_as_one_by_one(case: tuple[list[list[int]], list[int], list[int]]) -> None:
    fits, sizes, holds = case
    made = Matching(fits, sizes)
    for kind in range(len(fits)):
        made.add(kind, holds.count(kind))
    assert matched(made) == most(fits, sizes, holds)


@given(cases(), st.integers(0, 2))
def test_a_pod_takes_a_hold_that_no_other_needs(
    case: tuple[list[list[int]], list[int], list[int]], group: int
) -> None:
    fits, sizes, holds = case
    made = filled(fits, sizes, holds)
    if group >= len(sizes) or not sizes[group]:
        return
    without = [size - (place == group) for place, size in enumerate(sizes)]
    suiting = made.suiting(group)
    for kind in set(holds):
        rest = [*holds]
        rest.remove(kind)
        surplus = sum(made.given[kind].values()) < holds.count(kind)
        as_before = most(fits, without, rest) >= matched(made) - 1
        assert (suiting[kind] or surplus) == as_before
