"""Quotas get back what they are owed: the leader evicts, around an extender on an API server in memory."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.api import EVENTS, NODES, PODS, QUOTAS, NotTaken
from adapters.memory import MemoryAPI
from extender.config import GiveBack, Quotas
from ledger.decisions import Mode
from qos import keys
from tests.extender.test_quotas import ON, of, written

NOW = {**ON, "quotas": Quotas(enabled=True, give_back=GiveBack(grace_seconds=0))}


def waits(pod: dict[str, Any], since: str = "2026-11-24T00:00:00Z") -> dict[str, Any]:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "lastTransitionTime": since,
    }
    pod["status"]["conditions"] = [condition]
    return pod


def names(api: MemoryAPI) -> set[str]:
    return {pod["metadata"]["name"] for pod in api.objects(PODS)}


def said(api: MemoryAPI, reason: str) -> list[dict[str, Any]]:
    return [event for event in api.objects(EVENTS) if event["reason"] == reason]


def notes(api: MemoryAPI) -> set[str]:
    return {event["note"] for event in said(api, "QuotaGaveBack")}


@pytest.fixture
def full(make_node, make_pod) -> MemoryAPI:
    """8 CPUs, of which data has all, and shop is guaranteed 4."""
    api = MemoryAPI()
    for name in ("n1", "n2"):
        api.put(NODES, make_node(name))
    for number in range(8):
        priority = number % 4
        api.put(PODS, of("data", make_pod(f"data-{number}", node=f"n{1 + number // 4}", priority=priority)))
    api.put(QUOTAS, written("data", "4", "8"))
    api.put(QUOTAS, written("shop", "4", "8"))
    return api


def evicted(api: MemoryAPI) -> list[str]:
    return [name for verb, _, name in api.calls if verb == "evict"]


async def test_what_is_lent_comes_back(full, running, make_pod, eventually):
    async with running(full, **NOW) as program:
        for number in range(6):
            full.put(PODS, waits(of("shop", make_pod(f"shop-{number}"))))
        await eventually(lambda: len(evicted(full)) == 4)
        assert sorted(evicted(full)) == ["data-0", "data-1", "data-4", "data-5"], "the least important"
        await eventually(lambda: program.limits.account.stands("quotas/data", "cpu").used == 4000)
        await eventually(lambda: len(notes(full)) == 4)
        assert "quota quotas/data gives back 1 cpu that is owed to quota quotas/shop" in notes(full).pop()


async def test_not_before_the_grace(full, running, make_pod, eventually):
    async with running(full, **ON):
        full.put(PODS, waits(of("shop", make_pod("shop-0"))))
        await eventually(lambda: len(said(full, "QuotaOwes")) == 1)
        (event,) = said(full, "QuotaOwes")
        assert event["note"] == (
            "it takes 1 cpu beyond its runtime, which quota quotas/shop is owed of: its least important pods "
            "are evicted for pods that wait, from 30 seconds on"
        )
        assert (event["regarding"]["kind"], event["regarding"]["name"]) == ("ElasticQuota", "data")
        assert not evicted(full)


async def test_of_many_that_owe_those_who_owe_most_are_told(running, make_node, make_pod, eventually):
    """Else other Events would be lost behind theirs."""
    api = MemoryAPI()
    api.put(NODES, make_node("n1", cpu="32"))
    for number in range(30):
        api.put(QUOTAS, written(f"debtor-{number}", "0", "32"))
        cpu = "2" if number == 29 else "1"
        pod = make_pod(f"pod-{number}", node="n1", cpu=cpu)
        api.put(PODS, of(f"debtor-{number}", pod))
    api.put(QUOTAS, written("shop", "30", "32"))
    async with running(api, **ON):
        api.put(PODS, waits(of("shop", make_pod("shop-0", cpu="30"))))
        await eventually(lambda: len(said(api, "QuotaOwes")) == 20)
        assert "debtor-29" in {event["regarding"]["name"] for event in said(api, "QuotaOwes")}


async def test_a_budget_keeps_its_pods(full, running, make_pod, eventually):
    full.fail(
        "evict dry", NotTaken("Cannot evict pod as it would violate the pod's disruption budget."), times=3
    )
    async with running(full, **NOW):
        full.put(PODS, waits(of("shop", make_pod("shop-0"))))
        await eventually(lambda: bool(evicted(full)))
        (gone,) = evicted(full)
        asked = [name for verb, _, name in full.calls if verb == "evict dry"]
        assert gone not in asked[:3]
        assert gone in asked[3:]


async def test_inside_a_quota_those_of_lower_priority_end_at_once(running, make_node, make_pod, eventually):
    api = MemoryAPI()
    api.put(NODES, make_node("n1", cpu="16"))
    for number in range(4):
        api.put(PODS, of("shop", make_pod(f"low-{number}", node="n1", priority=number)))
    api.put(QUOTAS, written("shop", "4", "4"))
    async with running(api, **ON):
        api.put(PODS, waits(of("shop", make_pod("high", cpu="2", priority=9))))
        await eventually(lambda: len(evicted(api)) == 2)
        assert set(evicted(api)) == {"low-0", "low-1"}


async def test_nobody_ends_for_the_priority_of_one_that_does_not_preempt(
    running, make_node, make_pod, eventually
):
    api = MemoryAPI()
    api.put(NODES, make_node("n1", cpu="16"))
    api.put(PODS, of("shop", make_pod("low", cpu="4", node="n1")))
    api.put(QUOTAS, written("shop", "4", "4"))
    async with running(api, **ON):
        meek = waits(of("shop", make_pod("meek", cpu="2", priority=9)))
        meek["spec"]["preemptionPolicy"] = "Never"
        api.put(PODS, meek)
        await eventually(lambda: ("get", PODS, "meek") in api.calls)
        api.put(PODS, waits(of("shop", make_pod("high", cpu="1", priority=7))))
        await eventually(lambda: evicted(api) == ["low"])
        assert ("patch", PODS, "high") in api.calls
        assert ("patch", PODS, "meek") not in api.calls


async def test_pods_of_a_quota_take_turns(running, make_node, make_pod, eventually):
    api = MemoryAPI()
    api.put(NODES, make_node("n1", cpu="16"))
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "shop", "uid": "rs", "controller": True}
    for number in range(4):
        pod = of("shop", make_pod(f"runs-{number}", node="n1", ownerReferences=[owner]))
        began = f"2026-11-23T00:0{4 - number}:00Z"
        pod["status"]["conditions"] = [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": began}
        ]
        api.put(PODS, pod)
    api.put(QUOTAS, written("shop", "4", "4", **{keys.QUOTA_TURN_ANNOTATION: "3600"}))
    async with running(api, **ON):
        api.put(PODS, waits(of("shop", make_pod("young"))))
        old = make_pod("old", creationTimestamp="2026-11-23T00:00:00Z")
        api.put(PODS, waits(of("shop", old)))
        await eventually(lambda: evicted(api) == ["runs-3"])
        await eventually(lambda: len(notes(api)) == 1)
        assert (
            notes(api).pop().endswith("for pod default/old, whose turn it is in the same quota quotas/shop")
        )
        assert ("patch", PODS, "old") in api.calls
        assert ("patch", PODS, "young") not in api.calls


@pytest.mark.parametrize(
    "config", [{"quotas": Quotas(enabled=True, give_back=GiveBack(enabled=False))}, {"mode": Mode.OBSERVE}]
)
async def test_nobody_is_evicted_where_that_is_off(full, running, make_pod, config):
    async with running(full, **{**NOW, **config}) as program:
        full.put(PODS, waits(of("shop", make_pod("shop-0"))))
        assert "give back" not in {name for name, work in program._tasks() if work.close() is None}
        assert not evicted(full)


async def test_a_pod_that_may_not_run_there_has_nobody_evicted(full, running, make_pod, eventually):
    async with running(full, **NOW):
        pod = waits(of("shop", make_pod("shop-0")))
        pod["spec"]["nodeSelector"] = {"disk": "ssd"}
        full.put(PODS, pod)
        await eventually(lambda: ("get", PODS, "shop-0") in full.calls)
        other = waits(of("shop", make_pod("shop-1", cpu="2")))
        full.put(PODS, other)
        await eventually(lambda: bool(evicted(full)))
        assert len(evicted(full)) <= 2
