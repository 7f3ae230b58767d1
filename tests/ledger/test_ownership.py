"""Whose slot a pod fills, found anew some pods at a time when policies come, go or change places."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from ledger import ownership
from ledger.claims import Claims
from ledger.demands import NO_DEMAND
from ledger.ledger import Ledger
from qos.cluster.objects import OwnerFit, PlacementMode
from tests.ledger.builders import demand, holds, labelled, ledger, names, node, nodes, pod
from tests.ledger.recount import check_columns

OWNERS = 4_000


def _crowded() -> Ledger:
    made = ledger(*nodes(2, 10_000, memory=10_000, pods=10_000))
    for number in range(OWNERS):
        made.set_pod(pod(f"p{number}", app="a", node=f"n{number % 2}"))
    return made


def _steps(of: Ledger) -> list[int]:
    """How many claims found another owner in each step, until all have."""
    found = []
    more = True
    while more:
        with patch.object(Claims, "_own", autospec=True, side_effect=Claims._own) as own:
            more = of.tend()
        found.append(own.call_count)
    return found


def test_a_policy_finds_its_owners_some_at_a_time_and_loses_them_so() -> None:
    made = _crowded()
    made.set_demand(demand("a", OWNERS))
    steps = _steps(made)
    assert 0 < max(steps) < OWNERS / 2
    assert made.report()["default/a"].filled == OWNERS
    made.remove_demand("default/a")
    steps = _steps(made)
    assert 0 < max(steps) < OWNERS / 2
    check_columns(made)


def test_nothing_is_held_for_a_policy_whose_owners_are_not_all_found() -> None:
    made = _crowded()
    made.set_demand(demand("a", OWNERS + 1))
    assert made.held_nodes() == frozenset()
    (there,) = holds(made, "a").values()
    assert there == 1


def test_nothing_is_lifted_while_a_policy_still_counts_owners_that_it_lost() -> None:
    made = _crowded()
    made.set_demand(demand("a", OWNERS + 2, mode=PlacementMode.PINNED))
    before = holds(made, "a")
    made.set_demand(demand("b", 0, selector=labelled("a"), priority=1))
    made.set_pod(pod("c", app="a", node="n0"))
    made.set_demand(demand("a", OWNERS // 2, mode=PlacementMode.PINNED))
    made.set_demand(demand("a", OWNERS + 2, mode=PlacementMode.PINNED))
    made.filter(pod("p"), names(2), 0.0)
    made.remove_demand("default/b")
    assert made._state.holds.held_total[made._state.demands.numbers["default/a"]] == sum(before.values())
    made.remove_pod("c")
    assert holds(made, "a") == before


def test_a_pod_that_gets_other_labels_meanwhile_is_no_owner_by_those_it_had() -> None:
    made = _crowded()
    made.set_demand(demand("a", OWNERS))
    unfound = [uid for uid, claim in made._state.claims.by_uid.items() if claim.owner == NO_DEMAND]
    for uid in unfound[-5:]:
        made.set_pod(pod(uid, app="quarantined", node=f"n{int(uid[1:]) % 2}"))
    report = made.report()["default/a"]
    assert (report.filled, report.held) == (OWNERS - 5, 5)


def test_a_number_goes_to_another_policy_only_when_no_claim_has_it() -> None:
    made = _crowded()
    made.set_demand(demand("a", OWNERS))
    made.report()
    number = made._state.demands.numbers["default/a"]
    made.remove_demand("default/a")
    made.set_demand(demand("b", 1))
    assert made._state.demands.numbers["default/b"] != number
    made.remove_pod("p1")
    made.set_pod(pod("p2", 2, app="a", node="n1"))
    assert made.report()["default/b"].filled == 0
    made.set_demand(demand("c", 1))
    assert made._state.demands.numbers["default/c"] == number
    check_columns(made)


_APPS = st.sampled_from("abc")
_CPUS = st.sampled_from((1, 1, 2))
_ACTIONS = st.one_of(
    st.tuples(st.just("pod"), st.integers(0, 30), _APPS, st.sampled_from(("n0", "n1", "")), _CPUS),
    st.tuples(st.just("pod gone"), st.integers(0, 30)),
    st.tuples(
        st.just("demand"),
        _APPS,
        _APPS,
        st.integers(0, 2),
        st.integers(0, 20),
        _CPUS,
        st.sampled_from(OwnerFit),
    ),
    st.tuples(st.just("demand gone"), _APPS),
    st.tuples(st.just("node"), st.booleans()),
    st.tuples(st.just("bind"), st.integers(31, 40), _APPS),
    st.tuples(st.just("step")),
)


def _act(on: Ledger, what: str, *how: Any) -> None:
    match what:
        case "pod":
            number, app, where, cpu = how
            on.set_pod(pod(f"p{number}", cpu, app=app, node=where))
        case "pod gone":
            on.remove_pod(f"p{how[0]}")
        case "demand":
            key, app, priority, desired, cpu, fit = how
            made = demand(key, desired, cpu, selector=labelled(app), priority=priority, owner_fit=fit)
            on.set_demand(made)
        case "demand gone":
            on.remove_demand(f"default/{how[0]}")
        case "node":
            on.set_node(node("n1", ready=how[0]))
        case "bind":
            on.bind(pod(f"p{how[0]}", app=how[1]), "n0", 0.0)
        case _:
            on.tend()


@given(st.lists(_ACTIONS, max_size=60), st.integers(1, 40))
def test_in_steps_the_owners_are_those_that_are_found_at_once(actions: list[Any], effort: int) -> None:
    made = []
    for most in (effort, 10**9):
        with patch.object(ownership, "_EFFORT_A_STEP", most):
            one = ledger(*nodes(2, 100))
            for action in actions:
                _act(one, *action)
                check_columns(one)
            one.report()
            check_columns(one)
            made.append(one)
    owners = [{uid: one.policy_of(c.pod) for uid, c in one._state.claims.by_uid.items()} for one in made]
    assert owners[0] == owners[1]
    for one in made:
        state = one._state
        for claim in state.claims.by_uid.values():
            assert claim.owner == state.demands.owned_by(claim.pod)
            assert claim.misfit == state.demands.misfit_of(claim.pod)
        assert not state.ownership.under_way
        assert not state.demands._leaving
    filled = [{key: report.pods for key, report in one.report().items()} for one in made]
    assert filled[0] == filled[1]


def test_a_floor_that_changes_is_counted_for_its_owners_some_at_a_time() -> None:
    made = _crowded()
    made.set_demand(demand("a", OWNERS))
    made.report()
    made.set_demand(replace(demand("a", OWNERS), owed={"j10ce.io/egress-bandwidth": 1_000}))
    steps, done = 0, -1
    while made.tend():
        claims = made._state.claims.by_uid.values()
        before, done = done, sum("j10ce.io/egress-bandwidth" in claim.requests for claim in claims)
        assert done - before < OWNERS / 2
        steps += 1
    assert steps > 2
    check_columns(made)
    assert all(len(claim.requests) == 4 for claim in made._state.claims.by_uid.values())
