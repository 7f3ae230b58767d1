"""Floors that are more than there is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qos.plan.node import Level, Rival
from qos.plan.overcommit import overcommitted


def levels(*floors: int) -> list[Level]:
    """A level for each floor of siblings, from the root's child down."""
    return [Level(f"/{number}", 1, (Rival(1, cpu_floor=floor),)) for number, floor in enumerate(floors)]


def test_who_comes_last_has_the_rest() -> None:
    short = overcommitted(levels(500, 1500), 2000, 700)
    assert short is not None
    assert (short.level, short.group, short.promised, short.kept) == (0, "/1", 700, 500)
    assert short.why == "2200m are promised below /, of 2 that there are"
    above = overcommitted(levels(1500, 500), 2000, 700)
    assert above is not None
    assert (above.level, above.group, above.kept) == (1, "/0", 0)


def test_what_fits_is_not_short() -> None:
    assert overcommitted(levels(500, 800), 2000, 700) is None
    assert overcommitted(levels(5000), 2000, 0) is None
    assert overcommitted([], 2000, 2000) is None


@given(st.lists(st.integers(0, 5000), max_size=4), st.integers(0, 9000), st.integers(0, 9000))
def test_it_is_short_exactly_where_the_sum_is_more(floors: list[int], cpus: int, floor: int) -> None:
    short = overcommitted(levels(*floors), cpus, floor)
    assert bool(short) == bool(floor and (floor + sum(floors) > cpus) and floors)
    assert short is None or 0 <= short.kept < floor
