"""Pinned holds stand after a restart where they stood before."""

from __future__ import annotations

from qos.cluster.objects import PlacementMode
from tests.ledger.builders import demand, holds, ledger, node, nodes, pod
from tests.ledger.recount import check_columns


def test_holds_are_restored_before_others_are_placed() -> None:
    pinned = demand("a", 2, 4, mode=PlacementMode.PINNED)
    made = ledger(*nodes(3), demand("b", 1, 4, priority=9), pinned)
    made.restore("default/a", [("n2", 2)])
    assert (holds(made, "a"), sum(holds(made, "b").values())) == ({"n2": 2}, 1)
    check_columns(made)


def test_only_what_is_missing_fits_and_may_stand_there_is_restored() -> None:
    pinned = demand("a", 4, 4, mode=PlacementMode.PINNED, max_slots_per_node=1)
    owner = pod("o", 4, app="a", node="n3")
    made = ledger(*nodes(4), node("n4", ready=False), pod("p", 6, node="n0"), owner, pinned)
    made.restore("default/a", [("n0", 1), ("n1", 2), ("n4", 1), ("gone", 1), ("n3", 1)])
    assert holds(made, "a") == {"n1": 1, "n2": 1}
    check_columns(made)
