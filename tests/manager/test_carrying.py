"""Migrations on an API server in memory: a place first, then the eviction; and killed at each step."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.api import EVENTS, PODS, RESERVATIONS, APIError, NotTaken
from adapters.kubernetes.events import EventWriter
from adapters.memory import MemoryAPI
from manager.carrying import Carrier
from manager.loads import LoadSource
from manager.metrics import Metrics
from rescheduling.records import Migration
from rescheduling.settings import Settings

ONE = Migration(
    pod="shop/p",
    uid="p",
    workload="rs",
    source="hot",
    target="cool",
    usage={"cpu": 1000},
    requests={"cpu": 500, "memory": 1 << 30, "pods": 1},
    expected={"cpu": 2000},
    times=2,
    why="hot uses too much cpu",
)


def pod(name: str, on: str, ready: bool = True) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}
    return {
        "metadata": {"namespace": "shop", "name": name, "uid": name, "ownerReferences": [owner]},
        "spec": {
            "nodeName": on,
            "priority": 5000,
            "tolerations": [{"key": "batch", "operator": "Exists"}],
            "containers": [{"name": "m", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}],
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


class Desk:
    """A carrier, which step() may kill first, and the extender as the test plays it."""

    def __init__(self, api: MemoryAPI, time: Any) -> None:
        self.api, self.time = api, time
        api.put(PODS, pod("p", "hot"))
        self.restart()

    def restart(self) -> None:
        self.metrics = Metrics()
        self.events = EventWriter(
            self.api, lambda outcome: None, identity="me", clock=self.time, wall=self.time
        )
        self.source = LoadSource(
            self.api,
            {},
            Settings(()),
            skipped=lambda _: None,
            stale_after=90,
            clock=self.time,
            wall=self.time,
        )
        self.carrier = Carrier(
            self.api,
            self.source,
            self.events,
            self.metrics,
            ttl=300,
            clock=self.time,
            wall=self.time,
        )

    async def see(self) -> None:
        """What the watches would bring."""
        self.source._pods.clear()
        self.carrier.kept.clear()
        for raw in (await self.api.list_page(PODS)).items:
            self.source._set_pod(raw)
        for raw in (await self.api.list_page(RESERVATIONS)).items:
            self.carrier._set(raw)

    async def step(self, *, killed: bool = False) -> None:
        if killed:
            self.restart()
        await self.see()
        await self.carrier.run_once()
        await self.events.run_once()
        await self.see()

    def reservation(self) -> dict[str, Any]:
        (one,) = self.api.objects(RESERVATIONS)
        return one

    def becomes(self, phase: str, **status: Any) -> None:
        """The extender writes a status."""
        one = self.reservation()
        self.api.put(RESERVATIONS, one | {"status": {"phase": phase, "nodeName": "cool"} | status})

    def pods(self) -> list[str]:
        return [one["metadata"]["name"] for one in self.api.objects(PODS)]

    def reasons(self) -> list[str]:
        return [one["reason"] for one in self.api.objects(EVENTS)]


@pytest.fixture
async def desk(api: MemoryAPI, fake_time: Any) -> Desk:
    made = Desk(api, fake_time)
    await made.see()
    await made.carrier.begin(ONE)
    return made


async def test_the_reservation_is_for_what_the_controller_makes_next(desk: Desk) -> None:
    spec = desk.reservation()["spec"]
    assert spec["owners"] == [
        {
            "controller": {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": "web",
                "uid": "rs",
                "controller": True,
                "namespace": "shop",
            }
        }
    ]
    assert (spec["allocateOnce"], spec["ttl"]) == (True, "300s")
    assert spec["template"]["spec"] == {
        "nodeName": "cool",
        "priority": 5000,
        "tolerations": [{"key": "batch", "operator": "Exists"}],
        "containers": [
            {"name": "place", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}},
        ],
    }


async def test_it_counts_from_its_beginning_whether_the_watch_has_shown_it_or_not(desk: Desk) -> None:
    assert desk.carrier.under_way() == [ONE]
    assert len(desk.carrier.begun()) == 1
    await desk.see()
    assert desk.carrier.under_way() == [ONE]
    desk.time.now += 61
    assert desk.carrier.begun() == []


@pytest.mark.parametrize("killed", [False, True])
async def test_a_place_first_then_the_eviction_then_the_pod_that_comes(desk: Desk, killed: bool) -> None:
    await desk.step(killed=killed)
    assert desk.pods() == ["p"]  # no place yet
    desk.becomes("Pending")
    await desk.step(killed=killed)
    assert desk.pods() == ["p"]
    desk.becomes("Available")
    await desk.step(killed=killed)
    assert desk.pods() == []
    await desk.step(killed=killed)
    desk.api.put(PODS, pod("q", "cool", ready=False))
    desk.becomes("Succeeded", currentOwners=[{"namespace": "shop", "name": "q", "uid": "q"}])
    await desk.step(killed=killed)
    assert desk.carrier.under_way() == [ONE]
    desk.api.put(PODS, pod("q", "cool"))
    await desk.step(killed=killed)
    assert desk.carrier.under_way() == desk.carrier.failures() == []
    moved = desk.carrier.moved()["q"]
    assert (moved.times, moved.own, moved.node) == (2, {"cpu": 1000}, {"cpu": 2000})
    await desk.step(killed=killed)
    assert len([call for call in desk.api.calls if call[0] == "evict"]) == 1
    assert "Migrated" in desk.reasons()
    desk.api.remove(PODS, "shop", "q")
    desk.time.now += 61
    await desk.step(killed=killed)
    assert desk.api.objects(RESERVATIONS) == []


async def test_a_budget_that_refuses_is_asked_again_and_then_the_place_is_let_go(desk: Desk) -> None:
    desk.becomes("Available")
    desk.api.fail("evict", NotTaken("429 TooManyRequests: budget"), times=99)
    for _ in range(4):
        await desk.step()
        desk.time.now += 2
    assert len([call for call in desk.api.calls if call[0] == "evict"]) == 2
    desk.time.now += 300
    await desk.step()
    assert desk.pods() == ["p"]
    assert desk.reservation()["spec"]["expires"].endswith("Z")
    assert [one.workload for one in desk.carrier.failures()] == ["rs"]
    assert desk.reasons()[-1] == "MigrationFailed"
    desk.becomes("Failed")
    await desk.step()
    assert len(desk.carrier.failures()) == 1


async def test_another_pod_of_the_workload_takes_the_place_first(desk: Desk) -> None:
    desk.api.put(PODS, pod("other", "cool"))
    desk.becomes("Succeeded", currentOwners=[{"namespace": "shop", "name": "other", "uid": "other"}])
    await desk.step()
    assert sorted(desk.pods()) == ["other", "p"]
    assert len(desk.carrier.failures()) == 1
    assert desk.carrier.moved() == {}


async def test_a_failure_is_forgotten_after_a_day(desk: Desk) -> None:
    desk.becomes("Failed")
    await desk.step()
    assert len(desk.carrier.failures()) == 1
    desk.time.now += 86_401
    await desk.step()
    await desk.step()
    assert desk.api.objects(RESERVATIONS) == []


async def test_a_place_that_cannot_be_asked_for(api: MemoryAPI, fake_time: Any) -> None:
    desk = Desk(api, fake_time)
    await desk.see()
    api.fail("create", APIError(403, "Forbidden", "no"), resource=RESERVATIONS)
    await desk.carrier.begin(ONE)
    assert desk.carrier.under_way() == []


async def test_a_create_without_an_answer_counts_until_the_watch_says(api: MemoryAPI, fake_time: Any) -> None:
    desk = Desk(api, fake_time)
    await desk.see()
    api.fail("create", resource=RESERVATIONS)
    await desk.carrier.begin(ONE)
    assert desk.carrier.under_way() == [ONE]
    fake_time.now += 31
    assert desk.carrier.under_way() == []


async def test_a_step_that_fails_is_taken_again(desk: Desk) -> None:
    desk.becomes("Failed")
    desk.api.fail("patch", resource=RESERVATIONS)
    await desk.step()
    assert desk.carrier.under_way() == [ONE]
    await desk.step()
    assert desk.carrier.under_way() == []


async def test_other_reservations_are_not_ours(desk: Desk) -> None:
    desk.api.put(RESERVATIONS, {"metadata": {"name": "theirs"}, "spec": {}})
    odd = {"name": "odd", "annotations": {"j10ce.io/migration-of": "no JSON"}}
    desk.api.put(RESERVATIONS, {"metadata": odd, "spec": {}})
    await desk.step()
    assert len(desk.carrier.kept) == 1
    assert len(desk.api.objects(RESERVATIONS)) == 3


async def test_without_reservations_it_says_so(desk: Desk) -> None:
    assert desk.carrier.problem == "Reservations cannot be read: they are not listed yet"
    desk.carrier._on_refused(APIError(404, "NotFound", "no such resource"))
    assert desk.carrier.problem == "Reservations cannot be read: 404 NotFound: no such resource"
    desk.carrier._on_listed(0.0)
    desk.carrier.watch.synced.set()
    assert desk.carrier.problem == ""
    desk.time.now += 121
    assert desk.carrier.problem == "Reservations cannot be read: no contact with the API server"
