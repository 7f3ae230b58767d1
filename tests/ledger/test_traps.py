"""The traps of a kube-scheduler extender that are the ledger's to avoid, by number."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.decisions import BindDecision, Mode
from qos.cluster.objects import DaemonSet, PlacementMode, Pod
from tests.ledger.builders import (
    TOLERATE_ALL,
    daemon_pod,
    demand,
    go,
    holds,
    ledger,
    names,
    node,
    nodes,
    pod,
)


def test_t01_a_new_filter_replaces_the_earlier_charge() -> None:
    made = ledger(*nodes(1), demand("a", 2))
    who = pod("p", 4)
    assert [made.filter(who, ["n0"], 0.0).nodes for _ in range(3)] == [["n0"]] * 3
    assert made.gauges()["in_flight"] == 1


def test_t01_bind_checks_again() -> None:
    made = ledger(*nodes(1), demand("a", 2))
    assert made.filter(pod("p", 4), ["n0"], 0.0).nodes
    made.set_pod(pod("bypass", 2, node="n0"))
    decision = made.bind(pod("p", 4), "n0", 0.0)
    assert decision.refusal == "holds of default/a are in the way"
    assert holds(made, "a") == {"n0": 2}


def test_t01_a_released_bind_gives_the_capacity_back() -> None:
    made = ledger(*nodes(1), demand("a", 2))
    assert go(made, pod("p", 4), ["n0"]) == "n0"
    assert not made.filter(pod("q", 4), ["n0"], 0.0).nodes
    made.release("p")
    assert made.filter(pod("q", 4), ["n0"], 0.0).nodes == ["n0"]


def test_t01_soft_claims_expire_to_be_looked_up() -> None:
    made = ledger(*nodes(1), demand("a", 2), settle_seconds=600.0)
    made.filter(pod("p", 4), ["n0"], 100.0)
    assert made.expired(699.0) == []
    assert [p.uid for p in made.expired(700.0)] == ["p"]
    made.settle("p")
    assert made.expired(9999.0) == []
    assert made.filter(pod("q", 4), ["n0"], 0.0).nodes == ["n0"]


def test_t02_of_two_pods_in_flight_on_a_stale_watch_the_second_is_refused() -> None:
    made = ledger(*nodes(1))
    first, second = pod("p", 5), pod("q", 5)
    assert made.filter(first, ["n0"], 0.0).nodes == made.filter(second, ["n0"], 0.0).nodes == ["n0"]
    made.set_demand(demand("a", 1, 2))
    assert not made.bind(first, "n0", 0.0).refusal
    assert made.bind(second, "n0", 0.0).refusal


def test_t02_in_guard_the_second_is_charged_at_filter_and_bind_never_refuses() -> None:
    made = ledger(*nodes(1), demand("a", 2), mode=Mode.GUARD)
    assert made.filter(pod("p", 4), ["n0"], 0.0).nodes == ["n0"]
    assert made.filter(pod("q", 4), ["n0"], 0.0).nodes == []
    assert made.bind(pod("q", 4), "n0", 0.0) == BindDecision(unplaced=2)
    assert made.bind(pod("r", 8), "n0", 0.0) == BindDecision()


def test_t05_a_restart_rebuilds_from_pods_and_demands_in_any_order() -> None:
    parts = [*nodes(4), demand("a", 6, priority=5), demand("b", 3, 3), pod("o", 2, app="a", node="n3")]
    reports = [ledger(*order).report() for order in (parts, parts[::-1], parts[3:] + parts[:3])]
    assert reports[0] == reports[1] == reports[2]
    assert reports[0]["default/a"].filled == 1


def test_t06_a_claim_outlives_a_watch_that_lags() -> None:
    made = ledger(*nodes(1), demand("a", 2))
    who = pod("p", 4)
    assert go(made, who, ["n0"]) == "n0"
    made.bound("p", "n0")
    made.set_pod(who)  # An older event: still without a node.
    assert made.gauges()["claimed/cpu"] == 4000
    made.set_pod(replace(who, node_name="n0"))
    assert made.gauges()["claimed/cpu"] == 4000
    made.remove_pod("p")
    assert made.gauges()["claimed/cpu"] == 0


def test_t06_unknown_nodes_fail_resolvably() -> None:
    made = ledger(*nodes(1), demand("a", 4))
    answer = made.filter(pod("p", 4), ["new", "n0"], 0.0)
    assert answer.resolvable == {"new"}
    assert set(answer.others) == {"new"}
    assert "are in the way" in answer.message


def test_t06_capacity_the_watch_has_not_shown_to_kube_scheduler_is_refused_resolvably() -> None:
    made = ledger(*nodes(2), demand("a", 4), pod("p", 8, node="n1"))
    assert made.filter(pod("q", 1), ["n0", "n1"], 0.0).resolvable == {"n1"}


def test_t06_bound_to_another_node_than_decided() -> None:
    made = ledger(*nodes(2), demand("a", 1))
    made.bind(pod("p", 4), "n0", 0.0)
    made.bound("p", "n1")
    assert made.filter(pod("q", 8), ["n1"], 0.0).nodes == []
    assert made.gauges()["claims"] == 1


def test_t08_nodes_without_holds_are_answered_alone_and_in_order() -> None:
    made = ledger(*nodes(4), demand("a", 1))
    (held,) = made.held_nodes()
    asked = ["n3", "n1", "n0", "n2"]
    assert made.filter(pod("p", 1), asked, 0.0).nodes == [name for name in asked if name != held]
    assert made.gauges()["in_flight"] == 0


def test_t09_without_bind_the_union_of_answers_is_charged() -> None:
    made = ledger(*nodes(3), binds=False)
    who = pod("p", 6)
    assert made.filter(who, ["n0"], 0.0).nodes == ["n0"]
    assert made.filter(who, ["n1"], 0.0).nodes == ["n1"]
    made.set_demand(demand("a", 2, 4))
    assert holds(made, "a") == {"n2": 2}
    made.set_demand(demand("a", 4, 4))
    assert holds(made, "a") == {"n0": 1, "n1": 1, "n2": 2}, "better at risk than not at all"
    made.set_pod(replace(who, node_name="n1"))
    assert holds(made, "a") == {"n0": 2, "n2": 2}


def test_t09_without_bind_a_nomination_narrows_the_charge() -> None:
    made = ledger(*nodes(2), binds=False)
    who = pod("p", 6)
    made.filter(who, ["n0", "n1"], 0.0)
    made.set_pod(replace(who, nominated_node_name="n1"))
    made.set_demand(demand("a", 2, 4))
    assert holds(made, "a") == {"n0": 2}


def test_t09_without_bind_deletion_settles() -> None:
    made = ledger(*nodes(1), binds=False)
    made.filter(pod("p", 6), ["n0"], 0.0)
    made.set_pod(pod("p", 6, deleting=True))
    made.set_demand(demand("a", 2, 4))
    assert holds(made, "a") == {"n0": 2}


def test_t09_without_bind_there_is_no_short_time_limit() -> None:
    made = ledger(*nodes(1), binds=False, settle_seconds=900.0)
    made.filter(pod("p", 6), ["n0"], 0.0)
    assert made.expired(899.0) == []
    assert [p.uid for p in made.expired(900.0)] == ["p"]


def test_t09_without_bind_the_time_limit_counts_from_the_newest_answer() -> None:
    made = ledger(*nodes(1), binds=False, settle_seconds=900.0)
    made.filter(pod("p", 6), ["n0"], 0.0)
    made.filter(pod("p", 6), ["n0"], 899.0)
    assert made.expired(1798.0) == []
    assert [p.uid for p in made.expired(1799.0)] == ["p"]


def test_t09_without_bind_ordinary_pods_get_no_held_node_until_warm() -> None:
    made = ledger(*nodes(1), demand("a", 1), binds=False, warmup_until=30.0)
    cold = made.filter(pod("p", 1), ["n0"], 29.0)
    assert (cold.nodes, cold.resolvable) == ([], frozenset())
    assert made.filter(pod("o", 2, app="a"), ["n0"], 29.0).nodes == ["n0"]
    assert made.waiting() == []
    made.settle("o")
    made.expired(30.0)
    assert [p.uid for p in made.waiting()] == ["p"]
    assert made.filter(pod("p", 1), ["n0"], 30.0).nodes == ["n0"]


@pytest.mark.parametrize("binds", [True, False])
def test_t02_in_guard_ordinary_pods_get_no_held_node_until_pods_from_before_the_start_are_bound(
    binds: bool,
) -> None:
    made = ledger(*nodes(2), demand("a", 2, 4), mode=Mode.GUARD, binds=binds, warmup_until=3.0)
    made.set_node(node("n2", 2))
    (held,) = made.held_nodes()
    assert made.filter(pod("p", 1), [held], 2.0).nodes == []
    assert made.filter(pod("p", 1), [held, "n2"], 2.0).nodes == ["n2"]
    assert made.filter(pod("o", 4, app="a"), [held], 2.0).nodes == [held]
    made.settle("o")
    assert made.bind(pod("from before", 4), held, 2.0) == BindDecision(moved=1)
    assert made.filter(pod("q", 1), [held], 3.0).nodes == [held]


def test_t10_members_of_a_gang_filtered_before_any_bind_count_against_each_other() -> None:
    made = ledger(*nodes(1), demand("a", 2, 2))
    gang = [pod(f"g{i}", 2, app="a") for i in range(6)]
    answers = [bool(made.filter(member, ["n0"], 0.0).nodes) for member in gang]
    assert answers == [True] * 4 + [False] * 2
    for member in gang[:4]:
        assert not made.bind(member, "n0", 0.0).refusal
    assert made.gauges()["claimed/cpu"] == 8000


def test_t09_without_bind_an_owner_whose_hold_is_lifted_is_charged_in_full() -> None:
    made = ledger(*nodes(1, 4), demand("a", 1, 2), binds=False)
    assert made.filter(pod("o", 4, app="a"), ["n0"], 0.0).nodes == ["n0"]
    made.set_demand(demand("a", 0, 1))
    assert holds(made, "a") == {}
    made.set_demand(demand("a", 3, 1))
    assert holds(made, "a") == {}
    made.remove_pod("o")
    assert holds(made, "a") == {"n0": 3}


def test_t10_a_hold_given_to_an_owner_in_flight_is_not_moved() -> None:
    made = ledger(node("n0", 4), node("n1", 8), demand("a", 1, 4))
    (where,) = made.held_nodes()
    assert made.filter(pod("o", 4, app="a"), ["n0", "n1"], 0.0).nodes == [where]
    assert made.filter(pod("p", 4), [where], 0.0).nodes == []
    assert made.bind(pod("o", 4, app="a"), where, 0.0).policy == "default/a"


def test_t13_the_same_input_gives_the_same_holds() -> None:
    parts = [*nodes(6), demand("a", 7, 3), demand("b", 4, 2)]
    assert ledger(*parts).report() == ledger(*parts).report()


def test_t14_nominated_pods_occupy_for_pods_of_the_same_or_lower_priority() -> None:
    made = ledger(*nodes(1), demand("a", 1, 2, priority=100))
    made.set_pod(pod("preemptor", 5, priority=10, nominated_node_name="n0"))
    assert made.filter(pod("p", 2, priority=10), ["n0"], 0.0).nodes == []
    assert made.filter(pod("q", 2, priority=11), ["n0"], 0.0).nodes == ["n0"]
    made.settle("q")
    assert made.filter(pod("preemptor", 5, priority=10), ["n0"], 0.0).nodes == ["n0"]


def test_t14_the_hole_of_a_preemptor_takes_no_hold() -> None:
    made = ledger(*nodes(1), pod("victim", 8, node="n0"), demand("a", 1, 2))
    made.set_pod(pod("preemptor", 8, priority=10, nominated_node_name="n0"))
    made.remove_pod("victim")
    assert holds(made, "a") == {}
    made.remove_pod("preemptor")
    assert holds(made, "a") == {"n0": 1}


def test_t14_victims_occupy_until_they_are_gone() -> None:
    made = ledger(*nodes(1), pod("victim", 8, node="n0", deleting=True), demand("a", 1, 2))
    assert holds(made, "a") == {}


def test_t15_daemon_and_critical_and_mirror_pods_pass_and_are_counted() -> None:
    made = ledger(*nodes(1), demand("a", 4))
    exempt: list[Pod] = [
        daemon_pod("d", 2, "ds"),
        pod("critical", 2, priority=2_000_000_000),
        pod("mirror", 2, mirror=True),
    ]
    assert [made.filter(who, ["n0"], 0.0).nodes for who in exempt] == [["n0"]] * 3
    assert not made.bind(exempt[0], "n0", 0.0).refusal
    assert made.gauges()["exempt_total"] == 4
    report = made.report()["default/a"]
    assert (report.held, report.missing) == (3, 1)


def test_t15_a_bypass_makes_holds_leave_and_never_goes_negative() -> None:
    made = ledger(*nodes(2), demand("a", 3, 4), pod("static", 12, node="n0"))
    report = made.report()["default/a"]
    assert (report.held, report.holds) == (2, (("n1", 2),))
    assert [(u.reason, u.resource, u.missing) for u in report.unplaced] == [("Insufficient", "cpu", 4000)]
    assert made.gauges()["overcommitted_nodes"] == 1


def test_t15_expected_daemon_pods_are_subtracted_until_they_are_there() -> None:
    made = ledger()
    made.set_daemon_set(DaemonSet("ds", "kube-system/ds", {"cpu": 1000, "pods": 1}, TOLERATE_ALL))
    made.set_demand(demand("a", 4, 2))
    made.set_node(node("n0", 8))
    assert made.report()["default/a"].at_risk == 1
    made.set_pod(daemon_pod("d", 1, "ds", node="n0"))
    assert holds(made, "a") == {"n0": 3}
    made.remove_pod("d")
    made.remove_daemon_set("ds")
    assert holds(made, "a") == {"n0": 4}
    assert made.report()["default/a"].at_risk == 0


def test_t16_a_resize_never_passes_the_extender_and_is_counted_from_the_watch() -> None:
    made = ledger(*nodes(1), demand("a", 2, 2), pod("p", 4, node="n0"))
    assert holds(made, "a") == {"n0": 2}
    made.set_pod(pod("p", 5, node="n0"))
    assert holds(made, "a") == {"n0": 1}
    made.set_pod(pod("p", 4, node="n0"))
    assert holds(made, "a") == {"n0": 2}


def test_t16_finished_pods_do_not_count_terminating_ones_do() -> None:
    made = ledger(*nodes(1), demand("a", 2, 4), pod("p", 4, node="n0", phase="Succeeded"))
    assert holds(made, "a") == {"n0": 2}
    made.set_pod(pod("q", 4, node="n0", deleting=True))
    assert holds(made, "a") == {"n0": 1}


def test_t17_dimensions_outside_the_holds_are_not_judged() -> None:
    made = ledger(*nodes(1), demand("a", 1, 2))
    who = pod("p", 1, extra={"example.com/gpu": 4})
    assert made.filter(who, ["n0"], 0.0).nodes == ["n0"]


def test_t17_extended_resources_are_held_like_any_other() -> None:
    gpu = {"example.com/gpu": 2}
    made = ledger(node("n0", extra=gpu), node("n1"), demand("a", 3, 1, extra={"example.com/gpu": 1}))
    report = made.report()["default/a"]
    assert report.holds == (("n0", 2),)
    assert [(u.resource, u.missing) for u in report.unplaced] == [("example.com/gpu", 1)]
    assert not made.filter(pod("p", 1, extra={"example.com/gpu": 1}), ["n0"], 0.0).nodes
    assert made.filter(pod("q", 1), ["n0"], 0.0).nodes == ["n0"]


def test_t17_the_number_of_pods_is_held() -> None:
    made = ledger(node("n0", 64, 64, pods=3), demand("a", 2, 1))
    assert go(made, pod("p", 1), ["n0"]) == "n0"
    assert go(made, pod("q", 1), ["n0"]) == ""


def test_t19_messages_do_not_change_from_try_to_try() -> None:
    made = ledger(*nodes(2), *(demand(app, 1, 2) for app in "edcba"))
    first = made.filter(pod("p", 8), names(2), 0.0)
    assert made.filter(pod("p", 8), names(2), 60.0) == first
    assert first.message == "holds of default/a, default/b, default/c and 2 others are in the way"


def test_t23_a_candidate_whose_victims_make_no_room_beside_the_holds_is_dropped() -> None:
    made = ledger(*nodes(2), demand("a", 2, 4, priority=100), pod("v", 4, node="n0"), pod("w", 4, node="n1"))
    who = pod("p", 8, priority=50)
    assert made.preempt(who, {"n0": ["v"], "n1": ["w"]}, 0.0) == []
    made.set_demand(demand("a", 1, 4, priority=100))
    assert made.preempt(who, {"n0": ["v"], "n1": ["w"]}, 0.0) == ["n1"], "on n0 the hold would have to move"
    assert made.preempt(who, {"n0": ["v"]}, 0.0) == ["n0"]
    made.set_demand(demand("a", 1, 4, priority=100, mode=PlacementMode.PINNED))
    (held,) = made.held_nodes()
    assert made.preempt(who, {"n0": ["v"], "n1": ["w"]}, 0.0) == [name for name in names(2) if name != held]
