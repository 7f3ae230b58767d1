"""Holds that move for pods that were refused, and come back: where no scheduler asks us, and in Strict."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos.cluster.objects import Demand
from tests.ledger.builders import demand, ledger, node, pod

MANY = 300
"""More than holds leave short nodes in one call."""


def slots(count: int) -> Demand:
    """Of 2 CPUs and no memory."""
    return replace(demand("a", count), vector={"cpu": 2_000, "pods": 1})


def settled(account: Ledger) -> None:
    while account.tend():
        pass


def moved(
    count: int, mode: Mode = Mode.GUARD, *, answers: bool = False, small: int = 0
) -> tuple[Ledger, list[str]]:
    """So many nodes of 8 CPUs with a slot each, which moved to as many others for a refused pod of 2 CPUs.

    And the nodes that these pods were sent to. small: so many nodes have a hold of a tenth of a CPU as well.
    """
    names = [f"{kind}{number}" for kind in "ab" for number in range(count)]
    made = ledger(*[node(f"a{n}", 8, 4) for n in range(count)], mode=mode, answers=answers)
    for number in range(count):
        made.set_pod(pod(f"there-{number}", 5.9, 1, node=f"a{number}"))
    made.set_demand(slots(count))
    tenth = replace(demand("small", small), vector={"cpu": 100, "pods": 1}, max_slots_per_node=1)
    made.set_demand(tenth)
    settled(made)
    for number in range(count):
        made.set_node(node(f"b{number}", 8, 4))
        made.set_pod(pod(f"beside-{number}", 5, 4, node=f"b{number}"))
    settled(made)
    found = [made.filter(pod(f"w{n}", 2, 1), names, 1.0 + n / 1000, unfiltered=True) for n in range(count)]
    return made, [name for one in found for name in one.nodes]


@pytest.mark.parametrize("answers", [False, True])
def test_every_pod_that_was_refused_has_a_hold_move_for_it(answers: bool) -> None:
    """All but the first seemed to fit where the first was sent: nobody else knew of it."""
    made, nodes = moved(5, answers=answers)
    assert made.moved == (1 if answers else 5)
    assert len(set(nodes)) == made.moved


def test_an_owner_gets_a_hold_that_has_come_back() -> None:
    """The pod that it moved for was in the owner's way until it was asked about again: up to five minutes."""
    made, _ = moved(1)
    assert dict(made.report()["default/a"].holds) == {"b0": 1}
    made.set_pod(pod("late", 3, 0, node="b0"))
    settled(made)
    assert dict(made.report()["default/a"].holds) == {"a0": 1}
    assert made.filter(pod("a-1", 2, 0, app="a"), ["a0"], 2.0).nodes == ["a0"]


@pytest.mark.parametrize(("mode", "answers"), [(Mode.GUARD, False), (Mode.STRICT, True)])
def test_holds_over_pods_in_flight_come_to_rest(mode: Mode, answers: bool) -> None:
    """They looked too many on each node, in every pass anew: all of a processor for ever."""
    made, _ = moved(MANY, mode, answers=answers, small=MANY)
    for number in range(MANY):
        made.set_node(replace(node(f"b{number}", 8, 4), ready=False))
    settled(made)
    made.set_node(node("gpu", 8, 4, extra={"nvidia.com/gpu": 1}))
    made.set_demand(demand("g", 1, 0.1, extra={"nvidia.com/gpu": 1}))
    assert any(not made.tend() for _ in range(20))
