"""Where pods that came late took the room of what stood there before."""

from __future__ import annotations

import pytest

from tests.ledger.builders import demand, ledger, node, pod

TWO = {"default/checkout": 2}


def late_pods(account, late):
    for number, (name, cpus) in enumerate(late):
        account.set_pod(pod(f"late-{number}", cpus, node=name))


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
def test_only_where_there_would_be_room_but_for_those_that_came_late(early, late, found):
    """Nodes of 8 CPUs, two slots of 2 on each: what pods leave, by node and CPUs."""
    account = ledger(node("a"), node("b"), demand("checkout", 4))
    for number, (name, cpus) in enumerate(early):
        account.set_pod(pod(f"early-{number}", cpus, node=name))
    account.advance(100.0)
    latecomers = account.latecomers(5.0)
    assert not latecomers.took_room("a", TWO)
    late_pods(account, late)
    assert "".join(name for name in "ab" if latecomers.took_room(name, TWO)) == found
    account.advance(104.0)
    assert "".join(name for name in "ab" if latecomers.took_room(name, TWO)) == found
    account.advance(105.0)
    assert not any(latecomers.took_room(name, TWO) for name in "ab")


def test_those_that_are_gone_or_elsewhere_took_nothing():
    account = ledger(node("a"), demand("checkout", 4))
    latecomers = account.latecomers(5.0)
    late_pods(account, [("a", 5)])
    assert latecomers.took_room("a", TWO)
    account.remove_pod("late-0")
    assert not latecomers.took_room("a", TWO)
    assert not latecomers.took_room("gone", TWO)
    late_pods(account, [("a", 9)])
    assert not latecomers.took_room("a", {"default/gone": 2})


def test_whoever_changes_once_there_came_late_all_the_same():
    account = ledger(node("a"), demand("checkout", 2))
    latecomers = account.latecomers(5.0)
    account.set_pod(pod("past", 5, node="a"))
    assert latecomers.took_room("a", TWO)
    account.advance(1.0)
    assert latecomers.took_room("a", TWO)
    account.set_pod(pod("past", 6, node="a"))
    assert latecomers.took_room("a", TWO)


def test_who_asks_for_more_later_came_when_it_came():
    account = ledger(node("a"), demand("checkout", 2))
    latecomers = account.latecomers(5.0)
    account.set_pod(pod("there", 1, node="a"))
    account.advance(100.0)
    account.set_pod(pod("there", 5, node="a"))
    assert not latecomers.took_room("a", TWO)
