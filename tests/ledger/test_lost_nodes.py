"""Owners on a node that is lost fill no slot: theirs are held elsewhere, before they are made again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.ledger import Ledger
from tests.ledger.builders import demand, go, holds, ledger, node, pod
from tests.ledger.recount import check_columns

AFTER = 60.0


def _pass(made: Ledger, until: float) -> None:
    """Time reaches the ledger with whatever is asked."""
    made.expired(until - 0.001)
    made.held_nodes()
    made.expired(until)
    made.held_nodes()


def _one_owner() -> Ledger:
    made = ledger(node("n0", 4), node("n1", 8), demand("a", 1, 4), pod("o", 4, app="a", node="n0"))
    _pass(made, 1.0)
    assert (made.report()["default/a"].filled, holds(made, "a")) == (1, {})
    return made


def test_the_slot_of_an_owner_on_a_lost_node_is_held_elsewhere_in_time() -> None:
    made = _one_owner()
    made.set_node(node("n0", 4, ready=False))
    _pass(made, 2.0)
    _pass(made, 2.0 + AFTER - 0.1)
    assert holds(made, "a") == {}, "nodes come back"
    _pass(made, 2.0 + AFTER)
    assert (made.report()["default/a"].filled, holds(made, "a")) == (0, {"n1": 1})
    assert not made.filter(pod("p", 8), ["n1"], 70.0).nodes
    assert go(made, pod("o again", 4, app="a"), ["n1"], 70.0) == "n1"
    check_columns(made)


def test_an_owner_counts_in_again_when_its_node_is_back() -> None:
    made = _one_owner()
    made.set_node(node("n0", 4, ready=False))
    _pass(made, 2.0)
    _pass(made, 100.0)
    assert holds(made, "a") == {"n1": 1}
    made.set_node(node("n0", 4))
    assert (made.report()["default/a"].filled, holds(made, "a")) == (1, {})
    made.set_node(node("n0", 4, ready=False))
    _pass(made, 101.0)
    assert holds(made, "a") == {}, "time begins anew"
    check_columns(made)


def test_an_owner_that_terminates_where_no_kubelet_answers_counts_out_at_once() -> None:
    made = _one_owner()
    owner = pod("o", 4, app="a", node="n0")
    made.set_pod(replace(owner, deleting=True))
    assert made.report()["default/a"].filled == 1, "its kubelet ends it, and its room is free then"
    made.set_node(node("n0", 4, ready=False))
    assert holds(made, "a") == {"n1": 1}
    made.remove_pod("o")
    assert (made.report()["default/a"].filled, holds(made, "a")) == (0, {"n1": 1})
    check_columns(made)


@pytest.mark.parametrize("ready", [True, False])
def test_an_owner_whose_node_is_removed_fills_no_slot(ready: bool) -> None:
    made = _one_owner()
    made.set_node(node("n0", 4, ready=ready))
    _pass(made, 2.0)
    _pass(made, 100.0)
    made.remove_node("n0")
    assert holds(made, "a") == {"n1": 1}
    made.remove_pod("o")
    made.set_node(node("n0", 4))
    assert sum(holds(made, "a").values()) == 1
    check_columns(made)


def test_a_claim_outlasts_its_node_s_absence() -> None:
    """What the pod takes is taken, whether it fills a slot or not."""
    made = _one_owner()
    made.set_node(node("n0", 4, ready=False))
    _pass(made, 2.0)
    _pass(made, 100.0)
    assert made.gauges()["claims"] == 1
    made.set_node(node("n0", 4))
    assert not made.filter(pod("p", 1), ["n0"], 100.0).nodes
