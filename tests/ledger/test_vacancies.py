"""What holds may use, as it is kept: the same as when it is reckoned anew, and never less."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ledger.board import slots_that_fit
from ledger.decisions import Mode
from ledger.ledger import Ledger
from ledger.requests import room
from ledger.vacancies import vacant
from tests.ledger.builders import demand, go, holds, ledger, node, nodes, pod

GPU = "example.com/gpu"

_ROW = st.sampled_from(("n0", "n1", "n2"))
_ACTION = st.one_of(
    st.tuples(st.just("node"), _ROW, st.integers(0, 12), st.integers(0, 2)),
    st.tuples(st.just("gone"), _ROW),
    st.tuples(st.just("pod"), st.sampled_from(("p0", "p1")), _ROW, st.integers(0, 6)),
    st.tuples(st.just("nominated"), st.sampled_from(("q0", "q1")), _ROW, st.integers(0, 6)),
    st.tuples(st.just("flight"), st.sampled_from(("f0", "f1")), st.integers(0, 6)),
    st.tuples(st.just("pod gone"), st.sampled_from(("p0", "p1", "q0", "f0"))),
    st.tuples(st.just("demand"), st.sampled_from("ab"), st.integers(0, 14), st.integers(0, 2)),
)


def _apply(made: Ledger, action: tuple[Any, ...]) -> None:
    match action:
        case ("node", name, cpu, gpus):
            made.set_node(node(name, cpu, extra={GPU: gpus}))
        case ("gone", name):
            made.remove_node(name)
        case ("pod", name, on, cpu):
            made.set_pod(pod(name, cpu, node=on))
        case ("nominated", name, on, cpu):
            made.set_pod(pod(name, cpu, nominated_node_name=on))
        case ("flight", name, cpu):
            made.filter(pod(name, cpu), ["n0", "n1", "n2"], 0.0)
        case ("pod gone", name):
            made.remove_pod(name)
        case ("demand", app, cpu, gpus):
            made.set_demand(demand(app, 2, cpu, extra={GPU: gpus} if gpus else {}))


def _check(made: Ledger) -> None:
    state = made._state
    for number in state.demands.order:
        dims = state.demands.weighed(number)
        vector = state.demands.vectors[number].take(dims).tolist()
        for safe, beside in ((True, True), (False, True), (False, False)):
            anew = room(state, state.holds.all if beside else None, safe=safe, dims=dims)
            kept = vacant(state, number, safe=safe, beside=beside)
            if kept is None:
                assert not slots_that_fit(anew, vector).any()
            else:
                assert (kept == anew).all()


@given(st.lists(_ACTION, max_size=20))
def test_what_is_kept_is_what_is_reckoned_anew(actions: list[tuple[Any, ...]]) -> None:
    made = ledger(mode=Mode.GUARD)
    for action in actions:
        _apply(made, action)
        _check(made)  # twice: the second time it knows the most that is left
        _check(made)


def test_a_slot_that_no_node_could_take_is_held_once_a_node_could() -> None:
    made = ledger(*nodes(2), demand("a", 1, 12), mode=Mode.GUARD)
    assert holds(made, "a") == {}
    made.set_node(node("n2", 16))
    assert holds(made, "a") == {"n2": 1}


def test_a_slot_that_fitted_nowhere_twice_is_held_when_a_pod_has_ended() -> None:
    made = ledger(*nodes(2), pod("x", 7, node="n0"), pod("y", 7, node="n1"), mode=Mode.GUARD)
    for app in "abc":
        made.set_demand(demand(app, 1, 4))
    assert not any(holds(made, app) for app in "abc")
    assert go(made, pod("small", 1), ["n1"]) == "n1"
    made.remove_pod("x")
    assert holds(made, "a") == {"n0": 1}
