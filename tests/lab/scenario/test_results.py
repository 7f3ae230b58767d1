"""Results compared, printed and as JSON."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from lab.checker import Finding, Kind, Verdict
from lab.scenario import table
from lab.scenario.models import Comparison, Difference
from lab.scenario.results import Outcome, RunResult, ScenarioResult, WorkloadResult, always, compare, without

BROKEN = Finding(Kind.FLOOR_BROKEN, 5.0, "pod a/b was bound", "a/checkout", "a/b", "n1")
WITHOUT = RunResult(
    name="without",
    says="without a policy",
    seconds=2.0,
    workloads=(
        WorkloadResult("checkout", 20, 0, 20, 0, None, None),
        WorkloadResult("batch", 60, 40, 20, 40, 0.1, 0.5),
    ),
    policies={},
    bound_requests={"cpu": 80_000, "memory": 160 << 30},
    evictions=0,
    verdict=Verdict((), 40, 0),
    outcomes=(Outcome("they wait", True, "pending 20"),),
)
WITH = replace(
    WITHOUT,
    name="with",
    says="with a floor",
    workloads=(WorkloadResult("checkout", 20, 20, 0, 20, 0.1, 0.2),),
    policies={"checkout": {"desired": 20, "filled": 20}},
)


def test_runs_that_bind_the_same_sum_compare_well() -> None:
    wanted = Comparison.model_validate({"runs": ["without", "with"], "boundRequestsDifferAtMostPercent": 1})
    outcome = compare(wanted, [WITHOUT, WITH])
    assert outcome.met
    assert "cpu 80 (without), 80 (with): 0.00 %" in outcome.saw


@pytest.mark.parametrize(("cpu", "met"), [(79_200, True), (79_000, False)])
def test_one_percent_is_one_percent(cpu: int, met: bool) -> None:
    wanted = Comparison.model_validate(
        {"runs": ["without", "with"], "boundRequestsDifferAtMostPercent": 1, "resources": ["cpu"]}
    )
    other = replace(WITH, bound_requests={"cpu": cpu})
    assert compare(wanted, [WITHOUT, other]).met is met


@pytest.mark.parametrize(("binds", "met"), [(100, True), (99, False)])
def test_more_undecided_binds_than_stated_fail(binds: int, met: bool) -> None:
    """One bind, undecided for two policies, is one bind."""
    notes = tuple(replace(BROKEN, kind=Kind.UNDECIDED, policy=policy) for policy in ("a/checkout", "a/other"))
    floors, decided = always(Verdict(notes, binds, 0), undecided_at_most_percent=1)
    assert floors.met
    assert decided.met is met
    assert decided.says == "the checker can decide: at most 1 % of the binds are undecided"
    assert decided.saw == f"1 of {binds} binds: 1.0 %"


def test_a_violation_is_never_met() -> None:
    floors, decided = always(Verdict((BROKEN,), 1, 0), undecided_at_most_percent=1)
    assert (floors.met, decided.met) == (False, True)


def shown(result: ScenarioResult) -> str:
    output = io.StringIO()
    table.show(result, Console(file=output, width=120))
    return output.getvalue()


def test_the_table_says_what_happened() -> None:
    text = shown(ScenarioResult("before-after", "A flood.", "f.yaml", (WITHOUT, WITH)))
    assert "none runs, all 20 wait" in text
    assert "all 20 run; bound after 0.10" in text
    assert "40 of 60 run, 20 wait" in text
    assert "passed: before-after" in text


def test_a_broken_floor_fails_and_brackets_are_no_markup() -> None:
    outcome = Outcome("no floor [broken]", False, "[red]one[/red]")
    run = replace(WITH, verdict=Verdict((BROKEN,), 1, 0), outcomes=(outcome,))
    result = ScenarioResult("s", "d", "f.yaml", (run,))
    assert not result.passed
    assert "FAILED: s" in shown(result)
    assert "[red]one[/red]" in shown(result)


def test_json_has_it_all() -> None:
    run = replace(WITH, verdict=Verdict((BROKEN,), 1, 0))
    data = json.loads(json.dumps(ScenarioResult("s", "d", "f.yaml", (run,)).to_json()))
    assert data["runs"][0]["checker"]["violations"][0]["kind"] == "FloorBroken"
    assert data["runs"][0]["boundRequests"] == {"cpu": "80", "memory": "160Gi"}
    assert data["passed"] is True


def test_what_a_keeper_keeps_otherwise_need_not_be_met_and_is_shown() -> None:
    difference = Difference(says="nobody asks the verbs", unmet=["they wait"])
    missed = replace(WITHOUT, outcomes=(Outcome("they wait: within 60 s", False, "bound 3"),))
    other = replace(WITHOUT, outcomes=(Outcome("event PodsBypass", False, "events 0"),))
    result = ScenarioResult("one", "what it shows", "one.yaml", (missed, WITH))
    assert not result.passed
    excused = without(result, difference)
    assert excused.passed
    output = io.StringIO()
    table.show(excused, Console(file=output, width=300))
    assert "need not be met: nobody asks the verbs" in output.getvalue()
    assert not without(replace(result, runs=(missed, other)), difference).passed
