"""Network floors: held as extended resources, and counted for pods that fill a slot whatever they request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos.cluster.objects import Demand, Node, Pod
from tests.ledger.builders import demand, go, holds, ledger, names, node, pod
from tests.ledger.recount import check_columns

EGRESS, INGRESS = "j10ce.io/egress-bandwidth", "j10ce.io/ingress-bandwidth"
GIGABIT = {EGRESS: 940_000_000, INGRESS: 900_000_000}
FLOOR = {EGRESS: 300_000_000}
SAID = f"{EGRESS}: {{}} is not free beside the floors of pods there"


def linked(count: int, **others: Any) -> list[Node]:
    """Nodes that have published what a gigabit link can promise."""
    return [node(f"n{i}", extra=GIGABIT, **others) for i in range(count)]


def floored(app: str, desired: int, cpu: float = 1, floor: dict[str, int] = FLOOR, **others: Any) -> Demand:
    """A demand whose slots owe their pods this bandwidth."""
    return replace(demand(app, desired, cpu, extra=floor, **others), owed=floor)


def owner(name: str, app: str = "a", **others: Any) -> Pod:
    """A pod that requests no bandwidth."""
    return pod(name, 1, app=app, **others)


def claimed(of: Ledger, resource: str = EGRESS) -> float:
    return of.gauges()[f"claimed/{resource}"]


def test_a_link_holds_as_many_floors_as_it_can_promise() -> None:
    made = ledger(*linked(2), floored("a", 7))
    assert holds(made, "a") == {"n0": 3, "n1": 3}
    (unplaced,) = made.report()["default/a"].unplaced
    assert (unplaced.count, unplaced.reason, unplaced.resource) == (1, "Insufficient", EGRESS)
    assert unplaced.missing == 300_000_000


def test_a_node_that_has_published_nothing_holds_no_network_floor() -> None:
    made = ledger(node("bare", 64), *linked(1), floored("a", 4))
    assert holds(made, "a") == {"n0": 3}
    assert ledger(node("bare", 64), floored("a", 4)).report()["default/a"].unplaced[0].resource == EGRESS


def test_an_owner_counts_at_its_floor_though_it_requests_nothing() -> None:
    made = ledger(*linked(1), floored("a", 3))
    assert go(made, owner("o"), names(1)) == "n0"
    assert claimed(made) == 300_000_000
    assert holds(made, "a") == {"n0": 2}
    check_columns(made)
    made.remove_pod("o")
    assert claimed(made) == 0
    assert holds(made, "a") == {"n0": 3}


def test_an_owner_that_requests_more_than_its_floor_counts_at_that() -> None:
    made = ledger(*linked(1), floored("a", 1), owner("o", node="n0", extra={EGRESS: 400_000_000}))
    assert claimed(made) == 400_000_000
    check_columns(made)


def test_holds_float_to_where_bandwidth_is() -> None:
    made = ledger(*linked(2), floored("a", 3))
    (there,) = holds(made, "a")
    assert go(made, pod("batch", 1, extra={EGRESS: 300_000_000}), [there]) == there
    assert sum(holds(made, "a").values()) == 3
    assert holds(made, "a")[there] == 2


def test_a_batch_pod_that_wants_what_is_held_is_refused() -> None:
    made = ledger(*linked(1), floored("a", 3))
    answer = made.filter(pod("batch", 1, extra={EGRESS: 100_000_000}), names(1), 0.0)
    assert not answer.nodes
    assert answer.message == "holds of default/a are in the way"


def test_a_batch_pod_that_wants_what_owners_count_for_hears_what_is_missing() -> None:
    """kube-scheduler counts requests alone, so it has found enough."""
    made = ledger(*linked(1), floored("a", 3), *(owner(f"o{i}", node="n0") for i in range(3)))
    batch = pod("batch", 1, extra={EGRESS: 100_000_000})
    assert made.filter(batch, names(1), 0.0).others == {"n0": SAID.format("100M")}
    assert made.bind(batch, "n0", 0.0).refusal == SAID.format("100M")
    assert go(made, pod("less", 1, extra={EGRESS: 40_000_000}), names(1)) == "n0"


@pytest.mark.parametrize("mode", [Mode.GUARD, Mode.STRICT])
def test_a_pod_that_requests_nothing_is_never_refused_for_bandwidth(mode: Mode) -> None:
    """Neither beside holds, nor where more is claimed than the link has."""
    made = ledger(*linked(1), floored("a", 3), mode=mode)
    assert go(made, pod("p", 1), names(1)) == "n0"
    crowd = [owner(f"o{i}", node="n0") for i in range(4)]
    made = ledger(*linked(1), floored("a", 4), *crowd, demand("b", 1, 1), mode=mode)
    assert claimed(made) > GIGABIT[EGRESS]
    assert holds(made, "b") == {"n0": 1}
    assert go(made, pod("p", 1), names(1)) == "n0"
    assert go(made, owner("b1", app="b"), names(1)) == "n0"
    assert holds(made, "b") == {}
    check_columns(made)


def test_an_owner_with_a_slot_but_no_bandwidth_anywhere_is_refused_with_the_amount() -> None:
    made = ledger(*linked(1), floored("a", 4), *(owner(f"o{i}", node="n0") for i in range(3)))
    answer = made.filter(owner("late"), names(1), 0.0)
    assert answer.refused(names(1)) == {"n0": SAID.format("300M")}
    assert not answer.resolvable, "kube-scheduler would spare every victim, again and again"
    again = made.filter(owner("late", nominated_node_name="n0"), names(1), 0.0)
    assert again.resolvable == {"n0"}, "else it would preempt on another node, too"


def test_an_owner_beyond_the_slots_is_owed_nothing() -> None:
    made = ledger(*linked(1), floored("a", 3), *(owner(f"o{i}", node="n0") for i in range(3)))
    beyond = owner("beyond")
    assert made.filter(beyond, names(1), 0.0).nodes == ["n0"]
    decision = made.bind(beyond, "n0", 0.0)
    assert (decision.policy, decision.slot) == ("default/a", False)
    assert claimed(made) == 900_000_000
    made.set_pod(replace(beyond, node_name="n0", slot=""))
    assert claimed(made) == 900_000_000
    check_columns(made)


def test_one_beyond_the_slots_counts_at_its_floor_once_a_slot_is_its() -> None:
    made = ledger(*linked(1), floored("a", 1), owner("o", node="n0"), owner("late", node="n0", slot=""))
    assert claimed(made) == 300_000_000
    made.remove_pod("o")
    made.set_pod(owner("late", node="n0", slot="default/a"))
    assert claimed(made) == 300_000_000
    check_columns(made)


def test_an_owner_goes_where_bandwidth_is_and_else_where_none_is_published() -> None:
    made = ledger(node("bare", 64), *linked(1), floored("a", 5), owner("o", node="n0"))
    made.set_pod(pod("batch", 1, node="n0", extra={EGRESS: 340_000_000}))  # a bypass; one floor is left
    everywhere = ["bare", "n0"]
    assert go(made, owner("first"), everywhere) == "n0"
    assert go(made, owner("second"), everywhere) == "bare"
    assert claimed(made) == 940_000_000 + 300_000_000
    assert made.gauges()["overcommitted_nodes"] == 0
    made.set_node(node("bare", 64, extra=GIGABIT))
    assert holds(made, "a") == {"bare": 2}
    check_columns(made)


def test_holds_of_others_do_not_keep_an_owner_from_a_node_without_bandwidth() -> None:
    made = ledger(node("bare"), *linked(1), floored("a", 4), demand("b", 1, 7))
    made.set_pod(pod("full", 8, node="n0"))
    assert holds(made, "b") == {"bare": 1}
    assert go(made, owner("o"), ["bare"]) == "bare"
    check_columns(made)


def test_pods_in_flight_beside_owners_do_not_keep_one_from_a_node_without_bandwidth() -> None:
    made = ledger(node("bare"), *linked(1), floored("a", 5), demand("b", 1, 1), mode=Mode.GUARD)
    made.set_pod(owner("there", app="b", node="bare"))
    assert made.filter(pod("flying", 1), ["bare"], 0.0).nodes == ["bare"]
    assert made.filter(owner("o"), ["bare"], 0.0).nodes == ["bare"]


def test_a_link_that_is_gone_takes_its_holds_and_keeps_its_owners() -> None:
    made = ledger(*linked(2), floored("a", 4), owner("o", node="n0"))
    made.set_node(node("n0"))
    assert holds(made, "a") == {"n1": 3}
    assert claimed(made) == 300_000_000
    made.set_node(node("n0", extra=GIGABIT))
    assert holds(made, "a") == {"n1": 3}
    assert made.filter(pod("p", 1, extra={EGRESS: 700_000_000}), ["n0"], 0.0).nodes == []
    check_columns(made)


def test_a_floor_that_changes_changes_what_its_owners_count_for() -> None:
    made = ledger(*linked(1), floored("a", 3), owner("o", node="n0"), owner("p", node="n0"))
    more = {EGRESS: 400_000_000, INGRESS: 10_000_000}
    made.set_demand(floored("a", 3, floor=more))
    made.report()
    assert (claimed(made), claimed(made, INGRESS)) == (800_000_000, 20_000_000)
    check_columns(made)
    made.set_demand(demand("a", 3, 1))
    made.report()
    assert (claimed(made), claimed(made, INGRESS)) == (0, 0)
    made.set_demand(floored("a", 3))
    made.remove_demand("default/a")
    made.report()
    assert claimed(made) == 0
    check_columns(made)


def test_evicting_an_owner_frees_its_floor_but_for_the_hold_it_leaves() -> None:
    there = [owner(f"o{i}", node="n0") for i in range(3)]
    made = ledger(*linked(1), floored("a", 3, priority=10), *there)
    urgent = pod("urgent", 1, extra={EGRESS: 300_000_000}, priority=100)
    assert made.preempt(urgent, {"n0": ["o0"]}, 0.0) == ["n0"]
    equal = replace(urgent, uid="equal", name="equal", priority=10)
    assert made.preempt(equal, {"n0": ["o0"]}, 0.0) == []


def test_an_owner_that_waits_for_its_victims_waits_for_its_floor() -> None:
    victim = pod("victim", 1, node="n0", extra={EGRESS: 900_000_000})
    made = ledger(*linked(1), floored("a", 1, priority=10), victim)
    late = owner("late", priority=10)
    assert made.preempt(late, {"n0": ["victim"]}, 0.0) == ["n0"]
    made.set_pod(replace(late, nominated_node_name="n0"))
    made.remove_pod("victim")
    assert made.filter(pod("batch", 1, extra={EGRESS: 900_000_000}), names(1), 0.0).nodes == []
    assert go(made, replace(late, nominated_node_name="n0"), names(1)) == "n0"
    check_columns(made)


@pytest.mark.parametrize("mode", [Mode.GUARD, Mode.STRICT])
def test_owners_in_flight_count_at_their_floors(mode: Mode) -> None:
    made = ledger(*linked(1), floored("a", 3), mode=mode)
    for number in range(3):
        assert made.filter(owner(f"o{number}"), names(1), 0.0).nodes == ["n0"]
        check_columns(made)
    assert made.filter(pod("batch", 1, extra={EGRESS: 100_000_000}), names(1), 0.0).nodes == []


def test_a_resize_before_the_watch_shows_the_binding_keeps_what_was_decided() -> None:
    made = ledger(*linked(1), floored("a", 1), owner("o", node="n0"))
    beyond = owner("beyond")
    assert not made.bind(beyond, "n0", 0.0).slot
    made.set_pod(pod("beyond", 2, app="a"))
    assert claimed(made) == 300_000_000
    check_columns(made)


_NODES = st.sampled_from(("n0", "n1"))
_PUBLISHED = st.sampled_from(({}, GIGABIT, {EGRESS: 500_000_000}))
_FLOORS = st.sampled_from(({}, FLOOR, {INGRESS: 450_000_000}, {EGRESS: 1_000, INGRESS: 1_000}))
_ACTION = st.one_of(
    st.tuples(st.just("node"), _NODES, _PUBLISHED),
    st.tuples(st.just("demand"), st.sampled_from("ab"), st.integers(0, 3), _FLOORS),
    st.tuples(st.just("demand gone"), st.sampled_from("ab")),
    st.tuples(
        st.just("bound"),
        st.sampled_from(("p0", "p1", "p2")),
        st.sampled_from(("", "a", "b")),
        _NODES,
        st.sampled_from((None, "", "default/a")),
    ),
    st.tuples(st.just("asked"), st.sampled_from(("q0", "q1")), st.sampled_from(("", "a", "b")), _FLOORS),
    st.tuples(st.just("gone"), st.sampled_from(("p0", "p1", "q0", "q1"))),
)


def _apply(made: Ledger, action: tuple[Any, ...]) -> None:
    match action:
        case ("node", name, published):
            made.set_node(node(name, extra=published))
        case ("demand", app, desired, floor):
            made.set_demand(floored(app, desired, floor=floor, created=ord(app)))
        case ("demand gone", app):
            made.remove_demand(f"default/{app}")
        case ("bound", name, app, on, slot):
            made.set_pod(owner(name, app=app, node=on, slot=slot))
        case ("asked", name, app, wanted):
            go(made, pod(name, 1, app=app, extra=wanted), ["n0", "n1"])
        case ("gone", name):
            made.remove_pod(name)


@given(st.lists(_ACTION, max_size=25), st.sampled_from([Mode.GUARD, Mode.STRICT]))
def test_after_any_changes_a_rebuilt_ledger_counts_the_same(
    actions: list[tuple[Any, ...]], mode: Mode
) -> None:
    made = ledger(mode=mode)
    for action in actions:
        _apply(made, action)
        check_columns(made)
    made.report()
    check_columns(made)
    rebuilt, state = Ledger(mode, cap_percent=100), made._state
    for claim in state.claims.by_uid.values():
        rebuilt.set_pod(replace(claim.pod, node_name=state.table.names[claim.row]))
    for record in filter(None, state.demands.records):
        rebuilt.set_demand(record)
    for there in filter(None, state.table.nodes):
        rebuilt.set_node(there)
    rebuilt.report()
    same = {name: amount for name, amount in made.gauges().items() if name.startswith("claimed/")}
    assert same == {name: amount for name, amount in rebuilt.gauges().items() if name.startswith("claimed/")}
