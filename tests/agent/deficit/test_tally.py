"""Ticks as tallies of pods, policies and budgets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.deficit import tally as module
from agent.deficit.budget import Budgets, Spent
from agent.deficit.judge import Judged
from agent.deficit.tally import Tally
from agent.monitor.monitor import Tick, Watched
from agent.monitor.samples import MemoryDetail, NodeSample, PodSample
from qos.keys import CPU, EGRESS_BANDWIDTH, MEMORY

FLOOR = {CPU: 500, MEMORY: 1000}


def watched(name: str, policy: str = "shop/web") -> Watched:
    return Watched("shop", name, policy, f"/kubepods/{name}", FLOOR)


def tick(at: float, **pods: PodSample) -> Tick:
    return Tick(at, pods, NodeSample(at))


def starved(at: float, made: int = 1) -> PodSample:
    """Waits all the time, and holds its memory."""
    return PodSample(at=at, made=made, cpu=0.0, cpu_stalled=at, memory=1000, memory_stalled=0.0)


def served(at: float) -> PodSample:
    """Has its CPU floor, and holds its memory."""
    return PodSample(at=at, made=1, cpu=at, cpu_stalled=0.0, memory=1000, memory_stalled=0.0)


def test_pods_policies_and_budgets() -> None:
    tally = Tally(offset=1000.0)
    pods = {"a": watched("a"), "b": watched("b"), "c": watched("c", "")}
    for at in range(5):
        tally.take(tick(at, a=starved(at), b=served(at), c=starved(at)), pods)
    assert tally.pods["a"].seconds == {CPU: Judged(4, 4), MEMORY: Judged(4, 0)}
    assert tally.pods["b"].seconds == {CPU: Judged(4, 0), MEMORY: Judged(4, 0)}
    assert tally.policies["shop/web"] == {CPU: Judged(8, 4), MEMORY: Judged(8, 0)}
    assert tally.policies[""][CPU] == Judged(4, 4)
    assert tally.deficit_seconds("shop/web") == 4
    assert tally.deficit_seconds("shop/other") == 0
    budgets = tally.budgets(4)
    assert set(budgets) == {"shop/web"}  # no policy, no budget
    assert budgets["shop/web"]["1h"] == Spent(16, 4)
    assert tally.kept.policies["shop/web"].buckets["1h"][-1][0] == 1004 // 60


def test_the_network_counts_as_cpu_and_memory_do() -> None:
    """Also of a pod that has no other floor, so that nothing else of it is measured."""
    tally = Tally()
    pods = {"a": replace(watched("a"), floor={EGRESS_BANDWIDTH: 8000}), "b": watched("b")}
    egress = "egress-bandwidth"
    for at in (1, 2):
        judged = {("a", egress): Judged(1, 1), ("b", egress): Judged(1, 0), ("gone", egress): Judged(1, 1)}
        tally.take_network(at, judged, pods)
        tally.take(tick(at, b=served(at)), pods)
    assert tally.pods["a"].seconds == {egress: Judged(2, 2)}
    assert tally.policies["shop/web"] == {egress: Judged(4, 2), CPU: Judged(1, 0), MEMORY: Judged(1, 0)}
    assert tally.deficit_seconds("shop/web") == 2
    assert tally.budgets(2)["shop/web"]["1h"] == Spent(6, 2)
    tally.take(tick(3), {})
    assert tally.pods == {}


def test_the_first_sample_of_a_pod_is_no_interval() -> None:
    tally = Tally()
    tally.take(tick(50, a=starved(50)), {"a": watched("a")})
    assert tally.pods["a"].seconds == {}


def test_a_cgroup_made_anew_begins_anew() -> None:
    tally = Tally()
    for at, made in ((0, 1), (1, 1), (2, 2), (3, 2)):
        tally.take(tick(at, a=starved(at, made)), {"a": watched("a")})
    assert tally.pods["a"].seconds[CPU] == Judged(2, 2)


def test_a_floor_that_was_changed_is_judged_from_then_on() -> None:
    tally = Tally()
    small, large = watched("a"), Watched("shop", "a", "shop/web", "/kubepods/a", {CPU: 900, MEMORY: 2000})
    half = [
        PodSample(at=at, made=1, cpu=at / 2, cpu_full=at / 2, cpu_stalled=at, memory=1000) for at in range(4)
    ]
    half = [one._replace(memory_stalled=one.at) for one in half]
    for sample, pod in zip(half, (small, small, large, large), strict=True):
        tally.take(tick(sample.at, a=sample), {"a": pod})
    seconds = tally.pods["a"].seconds
    assert seconds == {CPU: Judged(2, 1), MEMORY: Judged(2, 1)}  # not the second before the change


def test_the_nodes_idle_time_is_that_of_the_interval() -> None:
    tally = Tally()
    for at, idle in enumerate((100.0, 100.0, 101.0, 101.0)):
        tally.take(Tick(at, {"a": starved(at)}, NodeSample(at, idle=idle)), {"a": watched("a")})
    assert tally.pods["a"].seconds[CPU] == Judged(2, 2)


def test_missed_ticks() -> None:
    tally = Tally()
    for at in (0, 8, 30, 31):  # late, asleep, on time
        tally.take(tick(at, a=starved(at)), {"a": watched("a")})
    assert tally.pods["a"].seconds[CPU] == Judged(9, 9)


def test_pods_that_are_gone_are_forgotten_and_what_they_missed_is_not() -> None:
    tally = Tally()
    for at in range(3):
        tally.take(tick(at, a=starved(at)), {"a": watched("a")})
    tally.take(tick(3), {})
    assert not tally.pods
    assert tally.policies["shop/web"][CPU] == Judged(2, 2)
    assert tally.budgets(3)["shop/web"]["24h"].deficit == 2


def test_samples_that_are_not_settled_wait() -> None:
    tally = Tally()
    begun = PodSample(at=0, made=1, cpu_delayed=0.0)
    seen = [
        begun,
        *(begun._replace(at=at, settled=False, cpu_delayed=None) for at in range(1, 5)),
        begun._replace(at=5, cpu_delayed=5.0),
    ]
    for sample in seen:
        tally.take(tick(sample.at, a=sample), {"a": watched("a")})
    assert tally.pods["a"].seconds == {CPU: Judged(5, 5)}


def test_memory_without_psi_is_judged_when_details_come() -> None:
    tally = Tally()
    begun = PodSample(at=0, made=1, memory=10, detail=MemoryDetail(0.0))
    for at in range(25):
        ten = 10.0 * (at // 10)
        detail = begun.detail if ten == 0 else MemoryDetail(ten, refaults=int(ten) * 100)
        before = tally.pods["a"].memory if tally.pods else None
        if before and before.detail and detail and before.detail.at == detail.at:
            detail = before.detail
        tally.take(tick(at, a=begun._replace(at=at, detail=detail)), {"a": watched("a")})
    assert tally.pods["a"].seconds == {MEMORY: Judged(20, 20)}


def test_policies_without_pods_and_budget_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_POLICIES", 2)
    tally = Tally(Budgets())
    for number in range(4):
        for at in range(2):
            pods = {"a": watched("a", f"shop/{number}")}
            tally.take(tick(10 * number + at, a=starved(10 * number + at, number)), pods)
        tally.take(tick(10 * number + 5), {})
        tally.kept.policies.clear()
    assert set(tally.policies) <= {"shop/2", "shop/3"}
    assert tally.policies["shop/3"][CPU] == Judged(1, 1)
