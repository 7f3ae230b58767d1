"""Bind: the commit point, and what happens to its claims."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from dataclasses import replace

import pytest

from ledger.decisions import BindDecision, Filtered, Mode
from ledger.refusals import IN_DOUBT
from qos.quantity import MAXIMUM
from tests.ledger.builders import demand, go, holds, ledger, names, node, nodes, pod


def test_an_owner_fills_a_slot_and_releases_the_hold_on_its_node() -> None:
    made = ledger(*nodes(3, 4), demand("a", 3, 4))
    assert made.bind(pod("o", 4, app="a"), "n1", 0.0) == BindDecision(policy="default/a", slot=True)
    report = made.report()["default/a"]
    assert (report.filled, report.holds) == (1, (("n0", 1), ("n2", 1)))


def test_an_owner_elsewhere_releases_the_hold_that_frees_a_node() -> None:
    made = ledger(node("n0", 4), node("n1", 8), node("n2", 8), demand("a", 3, 4))
    assert holds(made, "a") == {"n1": 2, "n0": 1} or holds(made, "a") == {"n0": 1, "n1": 2}
    assert made.bind(pod("o", 4, app="a"), "n2", 0.0).policy == "default/a"
    assert holds(made, "a") == {"n1": 2}


def test_an_owner_fills_an_unplaced_slot_first() -> None:
    made = ledger(*nodes(1), demand("a", 3, 3))
    assert made.report()["default/a"].missing == 1
    assert made.bind(pod("o", 2, app="a"), "n0", 0.0).policy == "default/a"
    assert (made.report()["default/a"].held, made.report()["default/a"].missing) == (2, 0)


@pytest.mark.parametrize("mode", [Mode.STRICT, Mode.GUARD])
def test_the_hold_an_owner_takes_makes_no_room_by_moving(mode: Mode) -> None:
    """An owner larger than its slot: its own hold is worth one slot to it, not two."""
    made = ledger(node("n1", 3), demand("a", 1, 2), demand("b", 1, 1), mode=mode)
    made.set_node(node("n0", 1))
    assert (holds(made, "a"), holds(made, "b")) == ({"n1": 1}, {"n1": 1})
    assert made.filter(pod("o", 2, app="b"), names(2), 0.0).policies == ("default/a", "default/b")
    assert (holds(made, "a"), holds(made, "b")) == ({"n1": 1}, {"n1": 1})
    made.set_node(node("n2", 2))
    assert go(made, pod("o", 2, app="b"), ["n1"]) == "n1"
    assert [report.missing for report in made.report().values()] == [0, 0]


def test_more_owners_than_slots_hold_nothing() -> None:
    made = ledger(*nodes(2), demand("a", 1, 4))
    assert go(made, pod("o1", 4, app="a"), names(2))
    assert go(made, pod("o2", 4, app="a"), names(2))
    report = made.report()["default/a"]
    assert (report.filled, report.held, report.missing) == (1, 0, 0)


def test_a_slot_is_held_again_in_the_same_step_as_its_owner_goes() -> None:
    made = ledger(*nodes(1, 4), demand("a", 1, 4), pod("o", 4, app="a", node="n0"))
    made.set_pod(pod("o", 4, app="a", node="n0", deleting=True))
    assert made.report()["default/a"].filled == 1
    made.remove_pod("o")
    assert made.filter(pod("p", 1), ["n0"], 0.0).nodes == []
    assert holds(made, "a") == {"n0": 1}


def test_binding_twice_to_the_same_node_claims_once() -> None:
    made = ledger(*nodes(2), demand("a", 2, 4))
    for _ in range(2):
        assert made.bind(pod("o", 4, app="a"), "n0", 0.0) == BindDecision(policy="default/a", slot=True)
    assert made.gauges()["claimed/cpu"] == 4000


def test_t04_a_pod_whose_binding_may_still_land_goes_there_or_nowhere() -> None:
    made = ledger(*nodes(2))
    made.bind(pod("p", 4), "n0", 0.0)
    assert made.filter(pod("p", 4), ["n0", "n1"], 1.0).nodes == ["n0"]
    assert made.filter(pod("p", 4), ["n1"], 1.0) == Filtered([], IN_DOUBT), "no eviction helps it there"
    assert "may still land" in made.bind(pod("p", 4), "n1", 1.0).refusal
    assert made.gauges()["claimed/cpu"] == 4000
    assert made.bind(pod("p", 4), "n0", 1.0).refusal == ""
    made.release("p")
    assert made.filter(pod("p", 4), ["n1"], 2.0).nodes == ["n1"]


def test_t04_a_pod_kept_from_other_nodes_is_woken_when_its_binding_never_landed() -> None:
    made = ledger(*nodes(2))
    made.set_pod(pod("p", 4))
    made.bind(pod("p", 4), "n0", 0.0)
    assert made.filter(pod("p", 4), ["n1"], 1.0).nodes == []
    assert made.waiting() == []
    made.release("p")
    assert [waiting.uid for waiting in made.waiting()] == ["p"]


def test_binding_to_another_node_replaces_the_claim_in_guard() -> None:
    made = ledger(*nodes(2), mode=Mode.GUARD)
    made.bind(pod("p", 4), "n0", 0.0)
    made.bind(pod("p", 4), "n1", 0.0)
    made.set_demand(demand("a", 3, 4))
    assert holds(made, "a") == {"n0": 2, "n1": 1} or holds(made, "a") == {"n1": 1, "n0": 2}


def test_bind_moves_holds_that_came_since_filter() -> None:
    made = ledger(*nodes(2))
    assert made.filter(pod("p", 8), ["n0"], 0.0).nodes == ["n0"]
    made.set_demand(demand("a", 1, 4))
    assert holds(made, "a") == {"n0": 1}
    assert made.bind(pod("p", 8), "n0", 0.0) == BindDecision(moved=1)
    assert holds(made, "a") == {"n1": 1}


def test_a_higher_pod_pushes_holds_away_and_they_find_another_place() -> None:
    made = ledger(*nodes(2), demand("a", 2, 4))
    assert holds(made, "a") == {"n0": 2}
    decision = made.bind(pod("p", 8, priority=5), "n0", 0.0)
    assert (decision.refusal, decision.unplaced) == ("", 0)
    assert holds(made, "a") == {"n1": 2}


def test_a_higher_pod_leaves_unplaced_what_finds_none() -> None:
    made = ledger(*nodes(1), demand("a", 2, 4))
    assert made.bind(pod("p", 6, priority=5), "n0", 0.0).unplaced == 2
    assert [(u.reason, u.missing) for u in made.report()["default/a"].unplaced] == [("Insufficient", 8000)]


@pytest.mark.parametrize(
    ("mode", "refusal"),
    [
        (Mode.STRICT, "holds of default/a are in the way"),
        (Mode.GUARD, ""),
        (Mode.OBSERVE, ""),
    ],
)
def test_only_strict_refuses(mode: Mode, refusal: str) -> None:
    made = ledger(*nodes(1), demand("a", 2, 4), mode=mode)
    assert made.bind(pod("p", 8), "n0", 0.0).refusal == refusal
    assert made.bind(pod("q", 1), "new", 0.0).refusal == (
        "the node is not known to j10ce yet" if refusal else ""
    )


def test_strict_refuses_a_node_that_is_full_for_other_reasons() -> None:
    made = ledger(*nodes(1), demand("a", 0, 4), pod("q", 8, node="n0"))
    assert "claimed" in made.bind(pod("p", 1), "n0", 0.0).refusal


def test_a_claim_on_a_node_not_listed_yet_counts_when_it_is() -> None:
    made = ledger(demand("a", 2, 4), pod("p", 4, node="n0"))
    made.set_node(node("n0", 8))
    assert holds(made, "a") == {"n0": 1}


def test_a_node_may_go_and_come_while_pods_are_on_it() -> None:
    made = ledger(*nodes(1), demand("a", 2, 4), pod("p", 4, node="n0"))
    made.remove_node("n0")
    assert holds(made, "a") == {}
    made.set_node(node("n0", 8))
    assert holds(made, "a") == {"n0": 1}
    made.remove_node("n0")
    made.remove_pod("p")
    made.set_node(node("n0", 8))
    assert holds(made, "a") == {"n0": 2}


def test_bindings_without_an_answer_are_looked_up_after_a_while() -> None:
    made = ledger(*nodes(1), settle_seconds=60.0)
    made.bind(pod("p", 1), "n0", 100.0)
    assert [p.uid for p in made.expired(160.0)] == ["p"]
    made.set_pod(pod("p", 1, node="n0"))
    assert made.expired(999.0) == []
    made.release("p")  # Too late: the watch has shown it.
    assert made.gauges()["claims"] == 1


def test_demands_that_come_and_go_find_their_owners() -> None:
    made = ledger(*nodes(1), pod("o", 4, app="a", node="n0"))
    made.set_demand(demand("a", 2, 4))
    assert made.report()["default/a"].filled == 1
    made.remove_demand("default/a")
    assert made.report() == {}
    made.set_demand(demand("a", 1, 4))
    assert (made.report()["default/a"].filled, made.report()["default/a"].held) == (1, 0)


def test_a_pod_relabelled_is_no_owner_any_more() -> None:
    made = ledger(*nodes(1), demand("a", 1, 4), pod("o", 4, app="a", node="n0"))
    made.set_pod(replace(pod("o", 4, node="n0"), labels={"app": "other"}))
    report = made.report()["default/a"]
    assert (report.filled, report.held) == (0, 1)


@pytest.mark.parametrize("mode", [Mode.GUARD, Mode.STRICT])
def test_t04_a_pod_that_is_bound_elsewhere_keeps_its_claim(mode: Mode) -> None:
    made = ledger(*nodes(2), pod("p", 6, node="n0"), mode=mode)
    assert made.bind(pod("p", 6), "n1", 0.0).refusal == "the pod is bound to node n0"
    made.set_demand(demand("a", 2, 6))
    assert holds(made, "a") == {"n1": 1}


def _calls(policies: int) -> int:
    """Function calls that one pod's filter, bind and end make; by the second pod, when all is settled."""
    made = ledger(*nodes(4, 400, memory=400), *(demand(f"a{i}", 1) for i in range(policies)), mode=Mode.GUARD)
    made.report()
    counted = Counter[str]()
    for name in ("p", "q"):
        counted.clear()
        gc.disable()  # hypothesis counts collections by a function of its own
        sys.setprofile(lambda _frame, event, _argument: counted.update((event,)))
        try:
            (*_, chosen) = made.filter(pod(name, 1), names(4), 0.0).nodes
            made.bind(pod(name, 1), chosen, 0.0)
            made.remove_pod(name)
            made.settle(name)
            made.held_nodes()
        finally:
            sys.setprofile(None)
            gc.enable()
    return counted["call"] + counted["c_call"]


def test_a_pod_costs_the_same_however_many_policies_there_are() -> None:
    assert _calls(100) == _calls(1)


def test_a_pod_that_is_resized_while_its_binding_is_under_way_takes_what_it_asks_for_now() -> None:
    made = ledger(node("n0", 8), demand("a", 1, 1), pod("p", 2))
    assert not made.bind(pod("p", 2), "n0", 1.0).refusal
    made.set_pod(pod("p", 6))
    assert made.gauges()["claimed/cpu"] == 6000
    assert not made.filter(pod("q", 2), ["n0"], 2.0).nodes
    assert [one.name for one in made.expired(1_000.0)] == ["p"], "it is still waited for"


@pytest.mark.parametrize("mode", [Mode.GUARD, Mode.STRICT])
def test_a_pod_that_runs_and_says_more_than_any_node_has_takes_nobody_a_node(mode: Mode) -> None:
    """kube-scheduler and kubelet read `memory: 1e20` as nothing; counted as said, it would fill the node."""
    made = ledger(*nodes(2, 4), demand("a", 2, 4, 8), mode=mode)
    for name in names(2):
        made.set_pod(pod(f"liar-{name}", 0, MAXIMUM, node=name))
    assert holds(made, "a") == {"n0": 1, "n1": 1}
    assert not made.filter(pod("late", 0, MAXIMUM), names(2), 0.0).nodes
    for name in names(2):
        made.remove_pod(f"liar-{name}")
    assert holds(made, "a") == {"n0": 1, "n1": 1}
    assert go(made, pod("owner", 4, 8, app="a"), names(2))
