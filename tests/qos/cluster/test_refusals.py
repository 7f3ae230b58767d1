"""How seldom a node is asked that refuses placeholders, and when that is forgotten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qos.cluster.refusals import CALM_SECONDS, FIRST_SECONDS, LONGEST_SECONDS, Refusals

HOUR = 3600


def tries(takes: float, hours: int) -> list[float]:
    """When placeholders are made on a node that refuses each after so many seconds."""
    refusals, now, made = Refusals(), 0.0, list[float]()
    while now < hours * HOUR:
        if "n1" not in refusals.barred(now):
            made.append(now)
            refusals.note("n1", "OutOfcpu", now + takes)
            now += takes
        now += 0.25
    return made


@given(st.floats(0.01, 10.0))
def test_a_node_that_refuses_always_is_asked_twelve_times_an_hour(takes):
    made = tries(takes, 2)
    assert sum(at >= HOUR for at in made) <= HOUR / LONGEST_SECONDS + 1
    assert len(made) <= 9 + 2 * HOUR / LONGEST_SECONDS + 1


def test_many_that_are_refused_together_are_one_refusal():
    refusals = Refusals()
    assert refusals.note("n1", "OutOfcpu", 0.0)
    assert not refusals.note("n1", "Evicted", 0.5)
    assert refusals.barred(0.9) == {"n1": "Evicted"}
    assert refusals.bars("n1", 0.9)
    assert not refusals.bars("n2", 0.9)
    assert refusals.barred(FIRST_SECONDS) == {}
    assert not refusals.bars("n1", FIRST_SECONDS)


def test_a_node_that_was_calm_begins_anew():
    refusals = Refusals()
    now = 0.0
    for _ in range(4):
        refusals.note("n1", "Evicted", now)
        now += 10.0
    assert refusals.barred(30.0 + 7.9)
    assert not refusals.barred(30.0 + 8.0)
    later = 38.0 + CALM_SECONDS
    refusals.note("n1", "Evicted", later)
    assert not refusals.barred(later + FIRST_SECONDS)
