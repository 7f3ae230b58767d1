"""`make bench`: all of it runs, the longest pass is found, a goal is judged by what was measured."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.extender import plan
from benchmarks.figures import Figure
from benchmarks.fixed_work import took, unit_seconds
from benchmarks.goals import GOALS, LARGE, SPECIAL, Goal
from benchmarks.loop_time import LoopTime
from benchmarks.reports import Report, exponent, load, others

ROOT = Path(__file__).parents[2]
AT_MOST = Goal("pause", LARGE, 10.0)
NOISY = Goal("noisy", LARGE, 1.0, tolerated=2.0)
AT_LEAST = Goal("rate", LARGE, 1.0, least=True)
BY_ANOTHER = Goal("guard", LARGE, 1.5, ratio_to=("strict", LARGE))


def figures(**values: float) -> dict[tuple[str, str], Figure]:
    return {
        (name, LARGE): Figure(name, value, None, None, "ms", where=LARGE) for name, value in values.items()
    }


@pytest.mark.parametrize(
    ("goal", "found", "kept"),
    [
        (AT_MOST, figures(pause=10.0), True),
        (AT_MOST, figures(pause=10.1), False),
        (AT_MOST, {("pause", SPECIAL): Figure("pause", 1.0, None, None, "ms", where=SPECIAL)}, False),
        (AT_MOST, {("pause", LARGE): Figure("pause", 30.0, 3.0, None, "ms", where=LARGE)}, True),
        (AT_MOST, {("pause", LARGE): Figure("pause", 31.0, 3.0, None, "ms", where=LARGE)}, False),
        (AT_LEAST, figures(rate=1.0), True),
        (AT_LEAST, figures(rate=0.9), False),
        (BY_ANOTHER, figures(guard=3.0, strict=2.0), True),
        (BY_ANOTHER, figures(guard=3.1, strict=2.0), False),
        (BY_ANOTHER, figures(guard=3.0), False),
    ],
)
def test_a_goal_is_met_by_what_was_measured_only(
    goal: Goal, found: dict[tuple[str, str], Figure], kept: bool
) -> None:
    judged = goal.judged(found)
    assert judged.kept is kept
    assert judged.as_json()["met"] is kept


def test_one_noisy_run_may_miss_a_goal_a_little() -> None:
    goal = Goal("rate", LARGE, 0.98, least=True, tolerated=0.9)
    for rate, met, kept in ((0.98, True, True), (0.91, False, True), (0.89, False, False)):
        judged = goal.judged(figures(rate=rate))
        assert (judged.met, judged.kept, judged.as_json()["met"]) == (met, kept, met)
    assert not goal.judged({}).kept


def test_each_goal_is_measured_whatever_the_columns() -> None:
    assert {goal.column for goal in GOALS} <= {column for _, column in plan([])}


def test_what_quick_leaves_out_has_no_goal_there() -> None:
    measured = [goal for goal in GOALS if goal.quick]
    assert {goal.column for goal in measured} <= {column for _, column in plan([], quick=True)}
    left_out = {part for part, _ in plan([])} - {part for part, _ in plan([], quick=True)}
    assert left_out == {"control plane"}


def test_a_report_is_read_from_its_own_lines() -> None:
    found = figures(pause=1.0) | {("x", LARGE): Figure("x", 2.0, 3.0, None, "us", "a baseline", where=LARGE)}
    judged = (AT_MOST.judged(found), AT_LEAST.judged(found), NOISY.judged(figures(noisy=1.2)))
    made = Report({"machine": "m"}, judged, others(judged, found.values()), {LARGE: {"pause": "w"}}, ["why"])
    again = load(made.lines())
    assert again.goals == judged
    assert again.lines() == made.lines()
    assert [one["name"] for one in map(json.loads, made.lines()[1:])] == ["pause", "rate", "noisy", "x"]


def test_growth_is_an_exponent() -> None:
    assert exponent({"1000/50": 2.0, "15000/50": 30.0}, ["1000/50", "15000/50"]) == "1.0"
    assert exponent({"1000/50": 2.0}, ["1000/50"]) == ""


def burn(units: float) -> None:
    until = time.thread_time() + units * unit_seconds()
    while time.thread_time() < until:
        pass


def test_the_longest_pass_is_named_and_what_is_outside_left_out() -> None:
    times = LoopTime("now")

    async def short() -> None:
        burn(2)

    async def long() -> None:
        burn(20)
        with times.outside():
            burn(200)

    async def both() -> None:
        asyncio.current_task().set_name("bench")
        for name, work in (("short", short()), ("long one", long())):
            await asyncio.create_task(work, name=name)
        burn(300)

    with times.watching():
        asyncio.run(both())
    longest = times.longest["now"]
    assert longest.what == "long one"
    assert longest.seconds == times.longest_of("long")
    assert 10 < longest.seconds / unit_seconds() < 100
    assert times.longest_of("bench") == 0.0


def test_a_unit_costs_a_unit() -> None:
    taken = took(lambda _: lambda: burn(5), runs=20)
    assert 3 < taken.p50 < 9


@pytest.mark.program
def test_all_of_it_runs_on_small_clusters() -> None:
    argv = [sys.executable, "-P", "-m", "benchmarks.extender", "--quick", "--scale", "0.01", "-o", "json"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode in (0, 1), done.stderr
    about, *found = map(json.loads, done.stdout.splitlines())
    assert about["missing"] == []
    goals = [one for one in found if one["goal"]]
    assert not [one["name"] for one in goals if one["value"] is None]
    assert done.returncode == int(any(one["met"] is False for one in goals))
