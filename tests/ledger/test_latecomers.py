"""Where pods that came late took the room of what stood there before."""

from __future__ import annotations

import pytest

from tests.ledger.builders import demand, ledger, node, pod

TWO_EACH = {"a": {"default/checkout": 2}, "b": {"default/checkout": 2}}


@pytest.mark.parametrize(
    ("early", "late", "found"),
    [
        ([], [], ""),
        ([], [("a", 4)], ""),
        ([], [("a", 5)], "a"),
        ([("b", 5)], [("a", 5)], "a"),  # where it was like that before, nobody will be refused
        ([("b", 5)], [("b", 1)], ""),
        ([("b", 4)], [("b", 1), ("a", 1), ("a", 4)], "ab"),
    ],
)
def test_only_where_they_would_have_room_but_for_those_that_came_late(early, late, found):
    """Nodes of 8 CPUs, two slots of 2 on each: what pods leave, by node and CPUs."""
    account = ledger(node("a"), node("b"), demand("checkout", 4))
    for number, (name, cpus) in enumerate(early):
        account.set_pod(pod(f"early-{number}", cpus, node=name))
    account.advance(100.0)
    for number, (name, cpus) in enumerate(late):
        account.set_pod(pod(f"late-{number}", cpus, node=name))
    assert account.overcommitted(TWO_EACH, 99.0) == frozenset(found)
    assert not account.overcommitted(TWO_EACH, 100.0)


def test_what_is_not_there_is_nowhere():
    account = ledger(node("a"))
    account.set_pod(pod("late", 9, node="a"))
    assert not account.overcommitted({"a": {"default/gone": 1}, "gone": {"default/gone": 1}}, -1.0)
    assert not account.overcommitted({}, -1.0)
