"""Ticks as accounts of pods, policies and budgets."""

from __future__ import annotations

import pytest

from agent.deficit import account as module
from agent.deficit.account import Account
from agent.deficit.budget import Budgets, Spent
from agent.deficit.judge import Judged
from agent.monitor.monitor import Tick, Watched
from agent.monitor.samples import MemoryDetail, NodeSample, PodSample
from qos.keys import CPU, MEMORY

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
    account = Account(offset=1000.0)
    pods = {"a": watched("a"), "b": watched("b"), "c": watched("c", "")}
    for at in range(5):
        account.take(tick(at, a=starved(at), b=served(at), c=starved(at)), pods)
    assert account.pods["a"].seconds == {CPU: Judged(4, 4), MEMORY: Judged(4, 0)}
    assert account.pods["b"].seconds == {CPU: Judged(4, 0), MEMORY: Judged(4, 0)}
    assert account.policies["shop/web"] == {CPU: Judged(8, 4), MEMORY: Judged(8, 0)}
    assert account.policies[""][CPU] == Judged(4, 4)
    assert account.deficit_seconds("shop/web") == 4
    assert account.deficit_seconds("shop/other") == 0
    budgets = account.budgets(4)
    assert set(budgets) == {"shop/web"}  # no policy, no budget
    assert budgets["shop/web"]["1h"] == Spent(16, 4)
    assert account.kept.policies["shop/web"].buckets["1h"][-1][0] == 1004 // 60


def test_the_first_sample_of_a_pod_is_no_interval() -> None:
    account = Account()
    account.take(tick(50, a=starved(50)), {"a": watched("a")})
    assert account.pods["a"].seconds == {}


def test_a_cgroup_made_anew_begins_anew() -> None:
    account = Account()
    for at, made in ((0, 1), (1, 1), (2, 2), (3, 2)):
        account.take(tick(at, a=starved(at, made)), {"a": watched("a")})
    assert account.pods["a"].seconds[CPU] == Judged(2, 2)


def test_a_floor_that_was_changed_is_judged_from_then_on() -> None:
    account = Account()
    small, large = watched("a"), Watched("shop", "a", "shop/web", "/kubepods/a", {CPU: 900, MEMORY: 2000})
    half = [
        PodSample(at=at, made=1, cpu=at / 2, cpu_full=at / 2, cpu_stalled=at, memory=1000) for at in range(4)
    ]
    half = [one._replace(memory_stalled=one.at) for one in half]
    for sample, pod in zip(half, (small, small, large, large), strict=True):
        account.take(tick(sample.at, a=sample), {"a": pod})
    seconds = account.pods["a"].seconds
    assert seconds == {CPU: Judged(2, 1), MEMORY: Judged(2, 1)}  # not the second before the change


def test_the_nodes_idle_time_is_that_of_the_interval() -> None:
    account = Account()
    for at, idle in enumerate((100.0, 100.0, 101.0, 101.0)):
        account.take(Tick(at, {"a": starved(at)}, NodeSample(at, idle=idle)), {"a": watched("a")})
    assert account.pods["a"].seconds[CPU] == Judged(2, 2)


def test_missed_ticks() -> None:
    account = Account()
    for at in (0, 8, 30, 31):  # late, asleep, on time
        account.take(tick(at, a=starved(at)), {"a": watched("a")})
    assert account.pods["a"].seconds[CPU] == Judged(9, 9)


def test_pods_that_are_gone_are_forgotten_and_what_they_missed_is_not() -> None:
    account = Account()
    for at in range(3):
        account.take(tick(at, a=starved(at)), {"a": watched("a")})
    account.take(tick(3), {})
    assert not account.pods
    assert account.policies["shop/web"][CPU] == Judged(2, 2)
    assert account.budgets(3)["shop/web"]["24h"].deficit == 2


def test_samples_that_are_not_settled_wait() -> None:
    account = Account()
    begun = PodSample(at=0, made=1, cpu_delayed=0.0)
    seen = [
        begun,
        *(begun._replace(at=at, settled=False, cpu_delayed=None) for at in range(1, 5)),
        begun._replace(at=5, cpu_delayed=5.0),
    ]
    for sample in seen:
        account.take(tick(sample.at, a=sample), {"a": watched("a")})
    assert account.pods["a"].seconds == {CPU: Judged(5, 5)}


def test_memory_without_psi_is_judged_when_details_come() -> None:
    account = Account()
    begun = PodSample(at=0, made=1, memory=10, detail=MemoryDetail(0.0))
    for at in range(25):
        ten = 10.0 * (at // 10)
        detail = begun.detail if ten == 0 else MemoryDetail(ten, refaults=int(ten) * 100)
        before = account.pods["a"].memory if account.pods else None
        if before and before.detail and detail and before.detail.at == detail.at:
            detail = before.detail
        account.take(tick(at, a=begun._replace(at=at, detail=detail)), {"a": watched("a")})
    assert account.pods["a"].seconds == {MEMORY: Judged(20, 20)}


def test_policies_without_pods_and_budget_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_POLICIES", 2)
    account = Account(Budgets())
    for number in range(4):
        for at in range(2):
            pods = {"a": watched("a", f"shop/{number}")}
            account.take(tick(10 * number + at, a=starved(10 * number + at, number)), pods)
        account.take(tick(10 * number + 5), {})
        account.kept.policies.clear()
    assert set(account.policies) <= {"shop/2", "shop/3"}
    assert account.policies["shop/3"][CPU] == Judged(1, 1)
