"""Each invariant has facts that it calls wrong, and facts that it lets pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ledger.decisions import DemandReport, Unplaced
from qos.cluster.objects import Demand, Node, PlacementMode, Pod, Requirement, Selector, Spread
from qos.cluster.policy import Policy
from simulation import invariants
from simulation.invariants import Facts, Preemption

VECTOR = {"cpu": 1000, "pods": 1}


def node(name: str, cpu: int = 4000, **more: Any) -> Node:
    return Node(name, name, {"cpu": cpu, "pods": 10}, **more)


def demand(desired: int = 2, **more: Any) -> Demand:
    selector = Selector((Requirement("app", "In", ("a",)),))
    return Demand("default/a", "default", selector, VECTOR, desired, **more)


def report(
    held: int, filled: int = 0, unplaced: int = 0, holds: dict[str, int] | None = None
) -> DemandReport:
    where = tuple((holds if holds is not None else {"n0": held}).items())
    reasons = (Unplaced(unplaced, "Insufficient"),) if unplaced else ()
    return DemandReport("default/a", filled + held + unplaced, filled, held, where, reasons, pods=filled)


def facts(said: DemandReport, *pods: Pod, of: Demand | None = None, **more: Any) -> Facts:
    there: dict[str, list[Pod]] = {}
    for pod in pods:
        there.setdefault(pod.node_name, []).append(pod)
    the = of or demand(said.desired)
    return Facts({"n0": node("n0")}, there, [the], {the.key: said}, **more)


def pod(name: str, cpu: int, on: str = "n0") -> Pod:
    return Pod(name, "default", name, {"cpu": cpu, "pods": 1}, node_name=on)


def test_holds_fit_into_what_is_free() -> None:
    assert not invariants.holds_fit(facts(report(2), pod("p", 2000)))
    assert invariants.holds_fit(facts(report(2), pod("p", 2500))) == ["node n0: 2000 of cpu held, 1500 free"]
    assert invariants.holds_fit(facts(report(1, holds={"gone": 1})))


def test_holds_are_where_pods_may_go() -> None:
    said = report(1)
    assert not invariants.holds_can_serve(facts(said))
    wrong = ["default/a: held on node n0, where no pod may go"]
    for lost in ({}, {"n0": node("n0", ready=False)}, {"n0": node("n0", unschedulable=True)}):
        assert invariants.holds_can_serve(replace(facts(said), nodes=lost)) == wrong


def test_holds_are_as_even_as_pods_must_be() -> None:
    zones = {f"n{zone}": node(f"n{zone}", labels={"zone": zone}) for zone in "ab"}
    spread = demand(3, spread=(Spread("zone", 1, demand().selector),))

    def judged(holds: dict[str, int], *pods: Pod) -> list[str]:
        said = report(sum(holds.values()), len(pods), holds=holds)
        return invariants.holds_are_even(replace(facts(said, *pods, of=spread), nodes=zones))

    assert not judged({"na": 2, "nb": 1})
    assert judged({"na": 2}) == ["default/a: holds on {'na': 2}, by zone there are {'a': 2, 'b': 0}"]
    owner = replace(pod("p", 1000, "na"), labels={"app": "a"})
    assert judged({"na": 1}, owner)
    assert not judged({"nb": 2}, owner)
    assert not judged({}, owner, replace(owner, uid="q")), "what runs is not ours to move"


def test_every_slot_is_accounted_for() -> None:
    assert not invariants.accounts_add_up(facts(report(1, unplaced=1)))
    assert invariants.accounts_add_up(facts(replace(report(1), desired=2)))
    assert invariants.accounts_add_up(facts(report(1, holds={"n0": 2})))
    assert invariants.accounts_add_up(facts(report(1), of=demand(3)))


def test_owners_are_counted_as_they_are_bound() -> None:
    owner = pod("a-1", 1000)
    assert not invariants.fillings(facts(report(1, filled=1), owner, owners={"a-1": "default/a"}))
    assert invariants.fillings(facts(report(1, filled=1), owner))


def test_a_slot_that_fits_is_named_with_its_node() -> None:
    lacking = report(0, unplaced=1, holds={})
    assert invariants.placeable(facts(lacking)) == {"default/a": "n0"}
    assert not invariants.placeable(facts(report(1)))


@pytest.mark.parametrize(
    "more",
    [
        {"nominated": {"n0": [{"cpu": 3500}]}},
        {"expected": {"n0": [{"cpu": 3500}]}},
        {"cap": 20},
        {"of": demand(1, max_slots_per_node=0)},
    ],
    ids=["nominated", "expected", "cap", "seats"],
)
def test_a_slot_is_not_lost_where_it_may_not_lie(more: dict[str, Any]) -> None:
    assert not invariants.placeable(facts(report(0, unplaced=1, holds={}), **more))


def test_a_rebuilt_ledger_has_the_same_totals() -> None:
    running = {"claims": 3.0, "moves_total": 7.0, "holds": 2.0}
    assert not invariants.same_totals(running, {"claims": 3.0, "moves_total": 0.0, "holds": 3.0})
    assert invariants.same_totals(running, {"claims": 2.0}) == ["claims: 3, rebuilt 2"]


def test_a_rebuilt_ledger_holds_no_more() -> None:
    more, fewer = {"default/a": report(2)}, {"default/a": report(1, unplaced=1)}
    assert not invariants.no_fewer_slots([demand()], more, fewer)
    assert invariants.no_fewer_slots([demand()], fewer, more)
    assert not invariants.no_fewer_slots([demand(mode=PlacementMode.PINNED)], fewer, more)


def test_a_preemptor_runs_unless_it_is_gone() -> None:
    one = Preemption("p", 10, "n0")
    assert invariants.evictions_lead_to_binds([one], {"p": False})
    assert not invariants.evictions_lead_to_binds([one], {"p": True})
    assert not invariants.evictions_lead_to_binds([one], {})


@pytest.mark.parametrize(
    ("more", "at", "wrong"),
    [
        ({"count": 2}, 0.0, False),
        ({"count": 3}, 0.0, True),
        ({"count": 2, "suspend": True}, 0.0, True),
        ({"count": 2, "expires": 100.0}, 99.0, False),
        ({"count": 2, "expires": 100.0}, 101.0, False),
        ({"count": 2, "expires": 100.0}, 103.0, True),
    ],
)
def test_as_many_are_desired_as_the_policy_says(more: dict[str, Any], at: float, wrong: bool) -> None:
    made = demand()
    policy = Policy(made.key, made.namespace, "a", "u", 1, "1", 0.0, made.selector, {"cpu": 1000}, **more)
    assert bool(invariants.as_asked(facts(report(2)), [policy], at)) == wrong
