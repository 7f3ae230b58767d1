"""docs/performance.md is written from what `make bench` saved."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.goals import GOALS, judge
from benchmarks.page import page
from benchmarks.reports import Report, others

STANDING = "flood, placeholders on 32 nodes (x no floors)"
ROOT = Path(__file__).parents[2]
ABOUT = {
    "machine": "AMD EPYC, 2 CPUs, 24 GiB",
    "date": "2026-11-23",
    "commit": "0123456789ab",
    "load": 1.5,
    "seconds": 720,
    "reference": "the machine of reference: 1 unit = 1.0 ms",
    "unitMilliseconds": 0.8,
}


def report() -> Report:
    goal = GOALS[0]
    found = {
        (goal.figure, goal.column): Figure(
            goal.figure, 90.0, 100.0, None, "us", "the Go extender", where=goal.column
        ),
        ("flood", "1000/10"): Figure("flood", 50.0, 200.0, None, "pods/s", "no extender", where="1000/10"),
        (STANDING, "1000/10"): Figure(STANDING, 93.0, 100.0, None, "pods/s", "no extender", where="1000/10"),
        ("bind", "5000/50"): Figure("bind", 0.05, None, None, "units", where="5000/50"),
        ("bind", "15000/50"): Figure("bind", 0.10, None, None, "units", where="15000/50"),
        ("alone", "5000/50"): Figure("alone", 7.0, None, None, "ms", where="5000/50"),
    }
    goals = tuple(judge(found))
    return Report(ABOUT, goals, others(goals, found.values()), {}, ["flood at 1000/10: too long"])


def test_it_says_where_it_was_measured_and_what_was_met() -> None:
    made = page(report())
    assert "2026-11-23, commit `0123456789ab`, on AMD EPYC, 2 CPUs, 24 GiB; the load average was 1.5" in made
    goal = GOALS[0]
    assert f"| {goal.figure} | 5000/1 | 90 us | 100 us: the Go extender | 0.9 | <= 0.85 | **no** |" in made
    assert (
        "| bind, 300 unplaced policies, Guard | 5000/50 | - | not measured | - | <= 1.5 | not measured |"
        in made
    )
    assert (
        "| flood, placeholders on 32 nodes (x no floors) | 1000/10 | 93 pods/s | 100 pods/s: no extender |"
        in made
    )
    assert "| 0.93 | >= 0.98 | no, but >= 0.9 |" in made
    assert "| flood | 1000/10 | 50 pods/s | 200 pods/s: no extender | 0.25 |" in made
    assert "| bind | 0.05 | 0.1 | 0.6 |  |" in made
    assert "| bind (x at 5000/50) | 15000/50 | 0.1 units | 0.05 units: at 5000/50 | 2 | <= 3 | yes |" in made
    assert "| alone | 5000/50 | 7 ms |" in made
    assert "- flood at 1000/10: too long" in made


def test_it_is_written_from_a_saved_run(tmp_path: Path) -> None:
    saved, written = tmp_path / "bench.jsonl", tmp_path / "page.md"
    saved.write_text("\n".join(report().lines()))
    argv = [sys.executable, "-P", "-m", "benchmarks.page", str(saved), "--to", str(written)]
    subprocess.run(argv, cwd=ROOT, check=True, timeout=60)
    assert written.read_text() == page(report())
