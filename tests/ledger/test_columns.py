"""Columns of resources: they follow what nodes offer, and what a pod or a policy names costs nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.decisions import Mode
from ledger.ledger import Ledger
from ledger.state import State
from qos.cluster.objects import DaemonSet
from tests.ledger.builders import TOLERATE_ALL, daemon_pod, demand, go, holds, ledger, node, nodes, pod
from tests.ledger.recount import check_columns

MANY = {f"example.com/r{i}": 1 for i in range(200)}
GPU, NIC = "example.com/gpu", "example.com/nic"


def _state(of: Ledger) -> State:
    return of._state


def test_resources_that_only_pods_and_policies_name_make_no_column() -> None:
    made = ledger(*nodes(2), demand("a", 1, extra=MANY), pod("there", 1, node="n0", extra=MANY))
    shape = ledger(*nodes(2))._state.table.shape
    assert made.filter(pod("p", 1, extra=MANY), ["n0", "n1"], 0.0).nodes == ["n0", "n1"]
    made.set_pod(pod("q", 1, extra=MANY, nominated_node_name="n0"))
    made.set_daemon_set(DaemonSet("ds", "kube-system/ds", MANY, TOLERATE_ALL))
    assert _state(made).table.shape == shape


def test_a_slot_of_a_resource_that_no_node_offers_is_reported_by_its_name() -> None:
    made = ledger(*nodes(2), demand("a", 3, extra={GPU: 2}), cap_percent=40)
    (unplaced,) = made.report()["default/a"].unplaced
    assert (unplaced.reason, unplaced.resource, unplaced.missing) == ("Insufficient", GPU, 6)
    assert go(made, pod("p", 8), ["n0", "n1"]) == "n0"


def test_a_node_that_brings_a_resource_finds_what_is_claimed_of_it() -> None:
    made = ledger(*nodes(1), demand("a", 3, 1, extra={GPU: 1}), pod("p", 1, node="n1", extra={GPU: 1}))
    made.set_node(node("n1", extra={GPU: 2}))
    assert holds(made, "a") == {"n1": 1}
    assert made.gauges()[f"claimed/{GPU}"] == 1
    made.remove_pod("p")
    assert holds(made, "a") == {"n1": 2}


def test_holds_leave_when_the_last_node_takes_its_resource_away() -> None:
    made = ledger(node("n0", extra={GPU: 2}), demand("a", 2, 1, extra={GPU: 1}))
    assert holds(made, "a") == {"n0": 2}
    made.set_node(node("n0", extra={GPU: 0}))
    assert made.report()["default/a"].unplaced[0].resource == GPU
    assert made.report()["default/a"].held == 0


def test_columns_that_nobody_offers_any_more_are_used_again() -> None:
    made = ledger(*nodes(1))
    for turn in range(50):
        made.set_node(node("n1", extra={f"example.com/r{turn}": 1}))
    assert _state(made).table.shape[0] < 16


@pytest.mark.parametrize("mode", [Mode.GUARD, Mode.STRICT])
def test_after_a_flight_with_an_unknown_resource_no_pod_gets_what_is_held(mode: Mode) -> None:
    """The flight made a column in the middle of a filter, and moved holds were not seen after it."""
    made = ledger(*nodes(2, 16), demand("a", 4, 2), mode=mode)
    (there,) = made.held_nodes()
    other = "n1" if there == "n0" else "n0"
    assert made.filter(pod("q", 1, extra={NIC: 1}), [there], 0.0).nodes
    assert made.filter(pod("p", 14), [there], 0.0).nodes == [there]
    assert made.filter(pod("r", 14), [other], 0.0).nodes == []
    assert holds(made, "a") == {other: 4}


_EXTRA = st.dictionaries(st.sampled_from((GPU, NIC, "hugepages-2Mi")), st.integers(0, 3), max_size=2)
_NAME = st.sampled_from(("n0", "n1", "n2"))
_ACTION = st.one_of(
    st.tuples(st.just("node"), _NAME, _EXTRA),
    st.tuples(st.just("gone"), _NAME, st.just({})),
    st.tuples(st.just("pod"), st.sampled_from(("p0", "p1", "p2", "p3")), _NAME, _EXTRA),
    st.tuples(st.just("nominated"), st.sampled_from(("q0", "q1")), _NAME, _EXTRA),
    st.tuples(st.just("flight"), st.sampled_from(("f0", "f1")), _EXTRA),
    st.tuples(st.just("pod gone"), st.sampled_from(("p0", "p1", "q0", "f0")), st.just({})),
    st.tuples(st.just("demand"), st.sampled_from(("a", "b")), _EXTRA),
    st.tuples(st.just("demand gone"), st.sampled_from(("a", "b")), st.just({})),
    st.tuples(st.just("daemons"), st.sampled_from(("d0", "d1")), _EXTRA),
)


def _apply(made: Ledger, action: tuple[Any, ...]) -> None:
    match action:
        case ("node", name, extra):
            made.set_node(node(name, extra=extra))
        case ("gone", name, _):
            made.remove_node(name)
        case ("pod", name, on, extra):
            made.set_pod(daemon_pod(name, 1, "d0", node=on, extra=extra))
        case ("nominated", name, on, extra):
            made.set_pod(pod(name, 1, nominated_node_name=on, extra=extra))
        case ("flight", name, extra):
            made.filter(pod(name, 1, extra=extra), ["n0", "n1", "n2"], 0.0)
        case ("pod gone", name, _):
            made.remove_pod(name)
        case ("demand", app, extra):
            made.set_demand(demand(app, 2, 1, extra=extra))
        case ("demand gone", app, _):
            made.remove_demand(f"default/{app}")
        case ("daemons", uid, extra):
            made.set_daemon_set(DaemonSet(uid, uid, {"cpu": 1000, **extra}, TOLERATE_ALL))


def _rebuilt(of: State) -> Ledger:
    made = Ledger(of.mode, cap_percent=100)
    for daemon_set in of.daemons.records.values():
        made.set_daemon_set(daemon_set)
    for claim in of.claims.by_uid.values():
        made.set_pod(claim.pod)
    for record in of.demands.records:
        if record is not None:
            made.set_demand(record)
    for held in of.table.nodes:
        if held is not None:
            made.set_node(held)
    for _, nominated in of.nominations.by_uid.values():
        made.set_pod(nominated)
    return made


def _account(of: State) -> dict[str, Any]:
    """Everything that columns say, by names."""
    table = of.table
    columns = {
        (kind, resource, name): int(getattr(table, kind)[dim, row])
        for kind in ("allocatable", "free", "nominated", "expected")
        for resource, dim in table.dims.items()
        for name, row in table.rows.items()
    }
    aside = {
        (resource, table.names[row]): amount
        for resource, rows in table._aside.items()
        for row, amount in rows.items()
    }
    vectors = {
        (key, table.resources[dim], dim == 4): int(of.demands.vectors[number, dim])
        for key, number in of.demands.numbers.items()
        for dim in range(table.shape[0])
        if of.demands.vectors[number, dim]
    }
    return {
        "columns": columns,
        "aside": aside,
        "vectors": vectors,
        "dims": {table.resources[dim] for dim in of.demands.dims},
    }


@given(st.lists(_ACTION, max_size=25))
def test_after_any_changes_the_columns_are_those_of_a_rebuilt_ledger(actions: list[tuple[Any, ...]]) -> None:
    made = ledger(mode=Mode.GUARD)
    for action in actions:
        _apply(made, action)
        check_columns(made)
    state = _state(made)
    rebuilt = _rebuilt(state)
    for one in (made, rebuilt):
        one.report()  # nodes of a DaemonSet that is new are judged when holds are next placed
    assert _account(state) == _account(_state(rebuilt))
    charged = {
        (resource, row): sum(
            amounts.get(resource, 0) * int((rows == row).sum())
            for flight in state.flights.by_uid.values()
            for rows, amounts in flight.parts
        )
        for resource in state.table.dims
        for row in state.table.rows.values()
    }
    for (resource, row), amount in charged.items():
        dim = state.table.dims[resource]
        assert state.table.charged[dim, row] + state.table.possible[dim, row] == amount


@given(st.lists(_ACTION, max_size=25))
def test_what_pods_in_flight_may_take_is_the_same_when_it_is_read_late(
    actions: list[tuple[Any, ...]],
) -> None:
    made = ledger(mode=Mode.GUARD)
    for action in actions:
        _apply(made, action)
    check_columns(made)


def test_of_more_pods_in_flight_than_are_left_to_be_summed_up_all_are_charged() -> None:
    made = ledger(*nodes(3, 800), demand("a", 1, 2), mode=Mode.GUARD)
    for number in range(150):
        made.filter(pod(f"p{number}", 1), ["n0", "n1", "n2"], 0.0)
        if number % 3 == 0:
            made.settle(f"p{number // 2}")
    check_columns(made)


def test_a_resource_that_comes_while_pods_may_take_it_is_charged_once() -> None:
    made = ledger(*nodes(3), demand("a", 1, 2), mode=Mode.GUARD)
    assert len(made.filter(pod("p", 1, extra={GPU: 1}), ["n0", "n1", "n2"], 0.0).nodes) > 1
    made.set_node(node("n3", extra={GPU: 4}))
    check_columns(made)
    made.settle("p")
    check_columns(made)


def test_a_daemon_set_that_asks_for_nothing_of_a_resource_fits_where_nobody_offers_it() -> None:
    made = ledger(*nodes(1, 2), demand("a", 2, 1))
    made.set_daemon_set(DaemonSet("ds", "kube-system/ds", {"cpu": 1000, GPU: 0}, TOLERATE_ALL))
    assert made.report()["default/a"].at_risk == 1


def test_owners_are_counted_for_those_who_see_their_holds_whatever_priority_their_policy_gets() -> None:
    made = ledger(*nodes(2, 8), demand("a", 1, 2, priority=10), demand("b", 1, 2, priority=20))
    for app in "ab":
        made.set_pod(pod(app, 2, app=app, node="n0"))
    for a, b in ((30, 20), (5, 5), (20, 1)):
        made.set_demand(demand("a", 1, 2, priority=a))
        made.set_demand(demand("b", 1, 2, priority=b))
        check_columns(made)
        assert made._state.holds.owners_seen(max(a, b)).any()
