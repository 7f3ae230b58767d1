"""What budgets do not give is not held, and comes and goes with budgets, labels and policies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos.cluster.budget import Budget
from qos.cluster.objects import PlacementMode, Requirement, Selector
from tests.cpu_time import Cost
from tests.ledger.builders import demand, holds, ledger, node, nodes, pod

FOUR = Budget("four", per_namespace={"cpu": 4000})
GOLD = replace(FOUR, name="gold", selector=Selector((Requirement("tier", "In", ("gold",)),)))


def held(made: Ledger) -> dict[str, int]:
    return {key.partition("/")[2]: one.held for key, one in made.report().items()}


@pytest.mark.parametrize("mode", Mode)
def test_what_is_above_a_budget_is_unplaced_and_says_why(mode: Mode) -> None:
    made = ledger(*nodes(3), demand("a", 5), mode=mode)
    made.set_budget(FOUR)
    report = made.report()["default/a"]
    assert (report.desired, report.held, report.missing) == (5, 2, 3)
    (why,) = report.unplaced
    assert (why.count, why.reason, why.resource, why.missing) == (3, "BudgetExceeded", "cpu", 6000)
    assert why.detail.startswith("budget four, namespace default: cpu: 10 asked, 0 of 4 used")
    assert (made.gauges()["unplaced"], made.gauges()["over_budget"]) == (3, 3)


def test_slots_that_a_budget_gives_and_no_node_has_room_for_are_told_apart() -> None:
    made = ledger(node("n0", 2), demand("a", 5))
    made.set_budget(FOUR)
    report = made.report()["default/a"]
    assert [(one.count, one.reason) for one in report.unplaced] == [
        (3, "BudgetExceeded"),
        (1, "Insufficient"),
    ]
    assert report.desired == report.filled + report.held + report.missing


def test_budgets_take_effect_when_they_come_change_and_go() -> None:
    made = ledger(*nodes(3), demand("a", 5))
    assert held(made) == {"a": 5}
    made.set_budget(FOUR)
    assert held(made) == {"a": 2}
    made.set_budget(replace(FOUR, per_namespace={"cpu": 6000}))
    assert held(made) == {"a": 3}
    made.remove_budget("four")
    assert held(made) == {"a": 5}


def test_labels_of_the_namespace_decide() -> None:
    made = ledger(*nodes(3), demand("a", 5))
    made.set_budget(GOLD)
    assert held(made) == {"a": 5}
    made.set_namespace("default", {"tier": "gold"})
    assert held(made) == {"a": 2}
    made.set_namespace("default", {"tier": "tin"})
    assert held(made) == {"a": 5}
    made.set_namespace("default", {"tier": "gold"})
    assert held(made) == {"a": 2}
    made.remove_namespace("default")
    assert held(made) == {"a": 5}


def test_what_a_budget_selects_may_change_as_well() -> None:
    made = ledger(*nodes(3), demand("a", 5))
    made.set_namespace("default", {"tier": "gold"})
    made.set_budget(GOLD)
    usual = replace(FOUR, name="usual", default=True, per_namespace={"cpu": 2000})
    made.set_budget(usual)
    assert held(made) == {"a": 2}, "what is for all others is not for gold"
    made.set_budget(replace(GOLD, selector=Selector((Requirement("tier", "In", ("tin",)),))))
    assert held(made) == {"a": 1}
    made.set_budget(GOLD)
    assert held(made) == {"a": 2}
    made.set_budget(replace(usual, default=False))
    assert held(made) == {"a": 1}


def test_a_smaller_budget_takes_the_holds_of_the_latest_first() -> None:
    made = ledger(*nodes(3), demand("old", 2, created=1.0), demand("new", 2, created=2.0))
    made.set_budget(replace(FOUR, per_namespace={"cpu": 8000}))
    assert held(made) == {"old": 2, "new": 2}
    made.set_budget(replace(FOUR, per_namespace={"cpu": 6000}))
    assert held(made) == {"old": 2, "new": 1}
    made.set_demand(demand("old", 1, created=1.0))
    assert held(made) == {"old": 1, "new": 2}
    made.remove_demand("default/old")
    assert held(made) == {"new": 2}


def test_pods_beyond_a_budget_run_and_fill_no_slot() -> None:
    made = ledger(*nodes(3), demand("a", 3, slots=3))
    made.set_budget(FOUR)
    made.report()
    for number in range(3):
        owner = pod(f"a{number}", 2, app="a")
        (chosen,) = made.filter(owner, ["n0", "n1", "n2"], 0.0).nodes[:1]
        decision = made.bind(owner, chosen, 0.0)
        assert (decision.refusal, decision.slot) == ("", number < 2)
    report = made.report()["default/a"]
    assert (report.filled, report.held, report.missing, report.pods) == (2, 0, 1, 3)


def test_a_smaller_budget_takes_no_floor_from_a_pod_that_runs() -> None:
    made = ledger(*nodes(3), demand("a", 3, slots=3))
    for number in range(3):
        made.set_pod(pod(f"a{number}", 2, app="a", node=f"n{number}", slot="default/a"))
    made.set_budget(replace(FOUR, per_namespace={"cpu": 2000}))
    assert made.report()["default/a"].filled == 1
    assert not [one for one in made.gather_untrue() if one is not None and one.wanted]
    made.remove_pod("a0")
    made.set_pod(pod("a3", 2, app="a", node="n0", slot="default/a"))
    made.set_demand(demand("a", 2, slots=2))
    made.report()
    (untrue,) = [one for one in made.gather_untrue() if one is not None and one.wanted]
    assert [wanted for _, wanted in untrue.wanted] == [""], "a smaller policy does"


def test_pinned_holds_are_restored_within_the_budget() -> None:
    made = ledger(*nodes(3))
    made.set_budget(FOUR)
    made.set_demand(demand("a", 3, mode=PlacementMode.PINNED))
    made.restore("default/a", [("n2", 3)])
    assert holds(made, "a") == {"n2": 2}


def test_after_a_restart_the_same_is_given() -> None:
    things = [
        demand("b", 3, created=2.0),
        demand("a", 3, created=1.0),
        demand("c", 3, created=3.0, priority=5),
    ]
    reports = []
    for order in (things, things[::-1]):
        made = ledger(*nodes(4))
        made.set_budget(replace(FOUR, per_namespace={"cpu": 10_000}))
        for one in order:
            made.set_demand(one)
        reports.append(made.report())
    assert held(made) == {"c": 3, "a": 2, "b": 0}
    assert reports[0] == reports[1]


def test_many_changes_are_taken_in_some_at_a_time_and_never_more_is_held() -> None:
    made = ledger(*nodes(8), *(demand(f"p{n:02}", 1, created=1.0 + n) for n in range(12)))
    made.set_budget(replace(FOUR, per_namespace={"cpu": 12_000}))
    assert sum(held(made).values()) == 6
    made.set_demand(demand("first", 6, created=0.1))
    while made.tend():
        *_, seen = made.gather_report()
        assert sum(one.held for one in seen.values()) <= 6
    assert held(made)["first"] == 6


def test_no_pass_takes_ten_milliseconds_of_300_policies_in_100_namespaces() -> None:
    made = ledger(*nodes(5_000, 64, memory=256))
    each = Budget("each", per_namespace={"cpu": 40_000, "memory": 200, "pods": 20})
    made.set_budget(each)
    made.set_budget(Budget("all", total={"cpu": 3_000_000, "memory": 100_000}))
    for number in range(300):
        where = f"ns{number % 100}"
        one = demand(f"p{number}", 10, created=1.0 + number, slots=10)
        made.set_demand(replace(one, key=f"{where}/p{number}", namespace=where))
    made.report()
    passes: dict[int, Cost] = {}
    for turn in range(6):
        made.set_budget(replace(each, per_namespace={"cpu": 40_000 - 10_000 * (turn % 2)}))
        for number in range(1000):
            with passes.setdefault(number, Cost()).tried():
                more = made.tend()
            if not more:
                break
    assert len(passes) > 5, "it is done in steps"
    assert max(cost.units for cost in passes.values()) < 10 / 3
