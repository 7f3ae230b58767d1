"""Many tiny slots cost no more than few: work is by node, never slot by slot."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from ledger.decisions import Mode
from ledger.ledger import Ledger
from tests.ledger.builders import demand, ledger, node, pod

NODES = 20


def _policy(slots: int, desired: int | None = None, **others: Any) -> Any:
    return demand("tiny", slots if desired is None else desired, 0.001, memory=0, **others)


def _calls(work: Callable[[], object]) -> int:
    """How many calls of functions, ours and built in, some work takes: the same on every machine."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def _held(slots: int, **others: Any) -> Ledger:
    made = ledger(*(node(f"n{i}", 64, pods=100_000) for i in range(NODES)), mode=Mode.GUARD, **others)
    made.set_demand(_policy(slots))
    made.report()
    return made


def _placing(slots: int) -> int:
    made = _held(1)
    return _calls(lambda: (made.set_demand(_policy(slots)), made.report()))


def _shrinking(slots: int) -> int:
    made = _held(slots)
    return _calls(lambda: (made.set_demand(_policy(slots, 1)), made.report()))


def _giving_way(slots: int) -> int:
    """A static pod takes a node whole."""
    made = _held(slots)
    (fullest,) = (name for name, _ in made.report()["default/tiny"].holds[:1])
    return _calls(lambda: (made.set_pod(pod("static", 64, node=fullest)), made.report()))


def _capped(slots: int) -> int:
    """Nodes go, and the cap with them."""
    made = _held(slots, cap_percent=40)
    for i in range(1, NODES):
        made.set_node(node(f"n{i}", 0, pods=100_000))
    return _calls(made.report)


def _limited(slots: int) -> int:
    """A limit a node comes after the holds."""
    made = _held(slots)
    return _calls(lambda: (made.set_demand(_policy(slots, max_slots_per_node=1)), made.report()))


def _flooded(slots: int) -> int:
    """Pods in flight may land on every node, where holds are then at risk."""
    made = _held(slots)
    names = [f"n{i}" for i in range(NODES)]
    for number in range(20):
        made.filter(pod(f"p{number}", 40), names, 0.0)
    made.set_demand(_policy(slots, 12_000 * NODES))
    return _calls(made.report)


@pytest.mark.parametrize("work", [_placing, _shrinking, _giving_way, _capped, _limited, _flooded])
def test_there_are_far_fewer_calls_than_slots(work: Callable[[int], int]) -> None:
    assert work(80_000) < 80_000 / 4


def test_all_of_them_are_accounted_for() -> None:
    made = _held(80_000)
    assert made.report()["default/tiny"].held == 80_000
    made.set_demand(_policy(80_000, 3))
    report = made.report()["default/tiny"]
    assert (report.held, report.missing, sum(count for _, count in report.holds)) == (3, 0, 3)
