"""The parts of a round by themselves: how long a node is hot, which pod leaves first, how many may."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.cluster.running import RunningPod
from rescheduling.anomaly import Detector
from rescheduling.budgets import allowed
from rescheduling.candidates import ordered
from rescheduling.classifying import Bounds, Gauge, bounds, score
from rescheduling.settings import Thresholds
from tests.rescheduling.clusters import node, running


def marked(states: str, abnormal: int, normal: int) -> str:
    """H a high report, n another; A abnormal, and . not."""
    one, said = Detector(), ""
    for at, state in enumerate(states, 1):
        one.mark(float(at), high=state == "H", abnormal=abnormal, normal=normal)
        said += "A" if one.abnormal else "."
    return said


@pytest.mark.parametrize(
    ("states", "abnormal", "normal", "said"),
    [
        ("HHHHHHH", 5, 3, ".....AA"),
        ("HHHHnHHHHH", 4, 3, ".........A"),
        ("HHHnnnH", 2, 2, "..AAA.."),
        ("HHHnHnnn", 2, 2, "..AAAAA."),
        ("nH", 1, 3, ".A"),
    ],
)
def test_reports_in_a_row(states: str, abnormal: int, normal: int, said: str) -> None:
    assert marked(states, abnormal, normal) == said


@pytest.mark.parametrize(
    ("replicas", "limit", "count"),
    [
        *((2, None, 1), (3, None, 1), (4, None, 2), (10, None, 2), (11, None, 2), (21, None, 3)),
        *((8, 3, 3), (8, 0.25, 2), (9, 0.25, 3), (1, 0.1, 1)),
    ],
)
def test_how_many_of_a_workload(replicas: int, limit: float | None, count: int) -> None:
    assert allowed(replicas, limit) == count


def names(*pods: tuple[RunningPod, int], excess: float = 5.0) -> list[str]:
    usage = {one.pod.key: {"cpu": cpu} for one, cpu in pods}
    gauge = Gauge(node("n"), {"cpu": 7000}, {})
    return [one.pod.name for one in ordered([one for one, _ in pods], usage, gauge, {"cpu": excess})]


def test_the_least_important_leave_first() -> None:
    pods = [
        running("prod", "n"),
        running("batch", "n", band=1),
        running("low", "n", band=1, priority=-1),
        running("best-effort", "n", band=1, quality=0),
        running("be", "n", band=1, rank=0),
        running("cheap", "n", band=1, deletion_cost=-1),
        running("costly", "n", band=1, eviction_cost=5),
        running("young", "n", band=1, created=9.0),
    ]
    said = names(*((one, 1000) for one in pods))
    assert said == ["low", "best-effort", "be", "cheap", "young", "batch", "costly", "prod"]


def test_of_like_pods_the_smallest_that_is_enough_then_the_largest() -> None:
    sizes = {"a": 100, "b": 600, "c": 2000, "d": 400}
    assert names(*((running(name, "n"), cpu) for name, cpu in sizes.items())) == ["b", "c", "d", "a"]


def test_thresholds_count_where_both_are_stated() -> None:
    thresholds = Thresholds({"cpu": 40.0, "memory": 50.0}, {"cpu": 60.0})
    assert bounds(thresholds, [], deviation=False) == Bounds({"cpu": 40.0}, {"cpu": 60.0})


def test_a_node_that_has_nothing_is_full() -> None:
    gauge = Gauge(node("n", cpu=0), {"cpu": 0}, {})
    assert gauge.percent("cpu") == gauge.measured("cpu") == 100.0


def test_weights() -> None:
    gauge = Gauge(node("n", cpu=100), {"cpu": 50, "memory": 20}, {})
    assert score(gauge, {}, ("cpu", "memory")) == 35.0
    assert score(gauge, {"cpu": 3}, ("cpu", "memory")) == 42.5
    assert score(gauge, {"cpu": 0, "memory": 0}, ("cpu", "memory")) == 0.0


@given(
    st.lists(st.tuples(st.integers(1, 64), st.integers(0, 100)), min_size=2, max_size=8),
    st.integers(0, 7),
    st.integers(0, 7),
    st.integers(0, 5000),
)
def test_no_migration_changes_what_deviations_are_from(
    sizes: list[tuple[int, int]], source: int, target: int, amount: int
) -> None:
    gauges = [Gauge(node(str(n), cpu=c * 1000), {"cpu": c * u * 10}, {}) for n, (c, u) in enumerate(sizes)]
    thresholds = Thresholds({"cpu": 10.0}, {"cpu": 10.0})
    before = bounds(thresholds, gauges, deviation=True)
    gauges[source % len(gauges)].used["cpu"] -= amount
    gauges[target % len(gauges)].used["cpu"] += amount
    assert bounds(thresholds, gauges, deviation=True) == before
