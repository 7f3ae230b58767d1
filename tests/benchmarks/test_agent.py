"""`make bench-agent` judges by ratios."""

from __future__ import annotations

from benchmarks.agent import start_figure
from benchmarks.figures import Figure, p99


def test_a_slow_machine_moves_both_sides() -> None:
    fast = Figure("repair", 40.0, 20.0, 5, "ms")
    slow = Figure("repair", 400.0, 200.0, 5, "ms")
    assert fast.ratio == slow.ratio == 2.0
    assert slow.kept
    assert not Figure("repair", 101.0, 20.0, 5, "ms").kept


def test_a_start_is_compared_with_one_without_the_agent() -> None:
    alike = {"without": [100.0 + i % 3 for i in range(40)], "with": [105.0 + i % 3 for i in range(40)]}
    assert start_figure(alike).kept
    assert not start_figure(alike | {"with": [120.0 + i % 3 for i in range(40)]}).kept


def test_the_99th_percentile_is_one_that_was_measured() -> None:
    assert p99([float(i) for i in range(1, 101)]) == 99.0
    assert p99([7.0]) == 7.0
