"""Room that is kept for pods of DaemonSets: where they fit, and for a bounded time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.daemons import EXPECTED_SECONDS
from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos.cluster.objects import DaemonSet, NodePredicate
from tests.ledger.builders import TOLERATE_ALL, daemon_pod, demand, holds, ledger, node, nodes, pod

LATER = EXPECTED_SECONDS


def _daemons(cpu: int, uid: str = "ds") -> DaemonSet:
    return DaemonSet(uid, f"kube-system/{uid}", {"cpu": cpu * 1000, "pods": 1}, TOLERATE_ALL)


def _expecting() -> Ledger:
    """A node where a DaemonSet's pod of 4 CPU is expected, and four slots of 2 CPU that would fill it."""
    made = ledger()
    made.set_daemon_set(_daemons(4))
    made.set_node(node("n0"))
    made.set_demand(demand("a", 4, 2))
    return made


def _pass_time(of: Ledger, now: float) -> None:
    of.prioritize(pod("clock", 1), ["n0"], now)


def _safe(of: Ledger, app: str) -> int:
    """Holds that the expected pods leave room for."""
    report = of.report()[f"default/{app}"]
    return report.held - report.at_risk


def test_a_daemon_set_that_fits_nowhere_does_not_stop_holding() -> None:
    made = ledger()
    made.set_daemon_set(_daemons(1000))
    for each in nodes(3):
        made.set_node(each)
    made.set_demand(demand("a", 6, 2))
    assert made.report()["default/a"].held == 6


def test_a_daemon_set_is_expected_where_it_fits_beside_what_runs() -> None:
    made = ledger(*nodes(1), pod("p", 4, node="n0"))
    made.set_daemon_set(_daemons(5))
    made.set_demand(demand("a", 4, 1))
    assert made.report()["default/a"].held == 4
    made.set_demand(demand("a", 5, 1))
    made.remove_pod("p")
    assert _safe(made, "a") == 3


def test_an_expectation_ends_after_a_bounded_time() -> None:
    made = _expecting()
    _pass_time(made, 1_000.0)
    _pass_time(made, 1_000.0 + LATER - 1)
    assert _safe(made, "a") == 2
    _pass_time(made, 1_000.0 + LATER)
    assert _safe(made, "a") == 4


def test_the_first_time_that_is_heard_begins_the_expectation() -> None:
    """A clock starts anywhere: nothing lapses because time was not known before."""
    made = _expecting()
    assert _safe(made, "a") == 2
    _pass_time(made, 1e6)
    assert _safe(made, "a") == 2


@pytest.mark.parametrize("again", ["changed", "ready", "left"])
def test_it_begins_again(again: str) -> None:
    made = _expecting()
    _pass_time(made, 1.0)
    _pass_time(made, 1.0 + LATER)
    assert _safe(made, "a") == 4
    made.set_demand(demand("a", 1, 2))
    made.report()
    if again == "changed":
        made.set_daemon_set(_daemons(3))
    elif again == "ready":
        made.set_node(node("n0", ready=False))
        made.set_node(node("n0"))
    else:
        made.set_pod(daemon_pod("d", 4, "ds", node="n0"))
        made.remove_pod("d")
    made.set_demand(demand("a", 4, 2))
    assert _safe(made, "a") == 2


def test_a_heartbeat_does_not_begin_it_again() -> None:
    made = _expecting()
    _pass_time(made, 1.0)
    _pass_time(made, 1.0 + LATER)
    made.set_node(replace(node("n0"), labels={"beat": "2"}))
    assert _safe(made, "a") == 4


def test_the_nodes_of_a_new_daemon_set_are_judged_some_at_a_time() -> None:
    made = ledger(*nodes(2_500), demand("a", 2_500, 8))
    made.set_demand(demand("a", 0, 8))
    _pass_time(made, 1.0)
    made.set_daemon_set(_daemons(4))
    seen = []
    for _ in range(6):
        made.held_nodes()
        seen.append(len(made._state.daemons._expecting))
    assert seen == [500, 1_000, 1_500, 2_000, 2_500, 2_500]


def test_holds_go_where_no_daemon_set_is_expected_as_long_as_there_is_such_a_place() -> None:
    made = ledger(node("n0", labels={"daemons": "yes"}), node("n1"))
    made.set_daemon_set(replace(_daemons(8), where=NodePredicate((("daemons", "yes"),))))
    made.set_demand(demand("a", 4, 2))
    assert holds(made, "a") == {"n1": 4}


def test_a_daemon_set_that_never_comes_costs_no_floor() -> None:
    """Whoever may make DaemonSets could change one again and again whose pods a quota keeps from coming."""
    made = ledger(*nodes(3), demand("a", 3, 2), mode=Mode.GUARD)
    for each in range(3):
        made.set_pod(pod(f"o{each}", 2, app="a", node=f"n{each}"))
        made.set_pod(pod(f"p{each}", 6, node=f"n{each}"))
    for change in range(1, 5):
        made.set_daemon_set(replace(_daemons(1), requests={"cpu": change, "pods": 1}))
        _pass_time(made, change * (LATER - 1))
        if change == 2:
            made.remove_pod("o1")
        made.report()
    assert holds(made, "a") == {"n1": 1}
    assert made.filter(pod("flood", 1), ["n0", "n1", "n2"], 5 * LATER).nodes == []


def test_a_hold_in_the_room_of_an_expected_pod_moves_when_there_is_a_safe_place() -> None:
    made = ledger(node("n0"), pod("full", 8, node="n1"), node("n1"))
    made.set_daemon_set(replace(_daemons(1), requests={"cpu": 7000, "pods": 1}))
    made.set_demand(demand("a", 1, 4))
    assert holds(made, "a") == {"n0": 1}
    made.set_pod(pod("full", 4, node="n1"))
    assert holds(made, "a") == {"n1": 1}
