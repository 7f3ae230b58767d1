"""What /metrics shows, and that a pod's series end with the pod."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from agent.deficit.tally import Tally
from agent.monitor.metrics import MonitorCollector
from agent.monitor.monitor import Monitor, Tick, Watched
from agent.monitor.samples import MemoryDetail, NodeSample, PodSample, Pressure
from qos.keys import CPU, MEMORY

PODS = 250
FLOOR = {CPU: 500, MEMORY: 1000}


class Shown(Monitor):
    """A monitor whose ticks are made up."""

    def __init__(self) -> None:
        self.pods: dict[str, Watched] = {}
        self.latest = None
        self.levels = {"cpu": "Some"}
        self.failures = 3

    @property
    def watched(self) -> dict[str, Watched]:
        return self.pods

    def see(self, at: float) -> None:
        detail = MemoryDetail(at, 1, 2, 3, 4, 5, 6, 7)
        sample = PodSample(
            at, 1, cpu=0.5, memory=10, cpu_stalled=at, memory_stalled=0.0, io_stalled=0.25, detail=detail
        )
        pressure = {"cpu": Pressure(0.25, 0.125, 8.0, 2.0)}
        node = NodeSample(at, 1.0, 2.0, 3.0, 4096, 1024, 5, 6, pressure)
        self.latest = Tick(at, dict.fromkeys(self.pods, sample), node)


@pytest.fixture
def monitor() -> Shown:
    return Shown()


def exposition(monitor: Shown, tally: Tally) -> list[str]:
    registry = CollectorRegistry()
    MonitorCollector(monitor, tally, registry, clock=lambda: 3.0)
    return generate_latest(registry).decode().splitlines()


def series(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.startswith("#")]


def run(monitor: Shown, tally: Tally, pods: int) -> None:
    monitor.pods = {
        f"u{number}": Watched("shop", f"web-{number}", f"shop/p{number % 3}", "/", FLOOR)
        for number in range(pods)
    }
    for at in range(4):
        monitor.see(at)
        assert monitor.latest is not None
        tally.take(monitor.latest, monitor.watched)


def test_before_the_first_tick(monitor: Shown) -> None:
    assert series(exposition(monitor, Tally())) == ["j10ce_agent_monitor_failures_total 3.0"]


def test_one_pod(monitor: Shown) -> None:
    tally = Tally()
    run(monitor, tally, 1)
    shown = series(exposition(monitor, tally))
    pod = 'namespace="shop",pod="web-0"'
    policy = 'namespace="shop",policy="p0"'
    for line in (
        f"j10ce_agent_pod_cpu_seconds_total{{{pod}}} 0.5",
        f"j10ce_agent_pod_memory_bytes{{{pod}}} 10.0",
        f"j10ce_agent_pod_memory_anonymous_bytes{{{pod}}} 1.0",
        f'j10ce_agent_pod_pressure_seconds_total{{{pod},resource="io"}} 0.25',
        f'j10ce_agent_pod_floor_deficit_seconds_total{{{pod},resource="cpu"}} 3.0',
        f'j10ce_agent_floor_deficit_seconds_total{{{policy},resource="cpu"}} 3.0',
        f'j10ce_agent_floor_wanted_seconds_total{{{policy},resource="cpu"}} 3.0',
        f'j10ce_agent_error_budget_remaining_ratio{{{policy},window="1h"}} -999.0',
        'j10ce_agent_node_pressure_some_ratio{resource="cpu"} 0.25',
        'j10ce_agent_node_pressure_level{level="Some",resource="cpu"} 1.0',
        'j10ce_agent_node_pressure_level{level="High",resource="cpu"} 0.0',
        'j10ce_agent_node_cpu_seconds_total{mode="stolen"} 3.0',
    ):
        assert _sorted(line) in {_sorted(one) for one in shown}, line


def test_series_are_bounded_and_end_with_their_pods(monitor: Shown) -> None:
    tally = Tally()
    run(monitor, tally, PODS)
    names = Counter(re.split(r"[ {]", line)[0] for line in series(exposition(monitor, tally)))
    of_pods = {name: count for name, count in names.items() if name.startswith("j10ce_agent_pod_")}
    assert sum(of_pods.values()) <= 16 * PODS
    assert sum(names.values()) - sum(of_pods.values()) < 50
    monitor.pods = {}
    monitor.see(4)
    assert monitor.latest is not None
    tally.take(monitor.latest, {})
    left = series(exposition(monitor, tally))
    assert not [line for line in left if "pod=" in line]
    assert [line for line in left if line.startswith("j10ce_agent_floor_deficit_seconds_total")]


def test_two_pods_of_one_name_are_shown_once(monitor: Shown) -> None:
    tally = Tally()
    pod = Watched("shop", "db-0", "shop/p0", "/", FLOOR)
    monitor.pods = {"old": pod, "new": pod}
    for at in range(2):
        monitor.see(at)
        assert monitor.latest is not None
        tally.take(monitor.latest, monitor.watched)
    names = Counter(line.rpartition(" ")[0] for line in series(exposition(monitor, tally)))
    assert set(names.values()) == {1}


def _sorted(line: str) -> str:
    """Labels come in any order."""
    name, _, rest = line.partition("{")
    labels, _, value = rest.partition("}")
    return f"{name}{sorted(labels.split(','))}{value}"
