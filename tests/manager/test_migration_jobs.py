"""PodMigrationJobs on an API server in memory: carried out, with a status that says how far they are."""

from __future__ import annotations

from collections import Counter
from typing import Any

import orjson
import pytest

from adapters.api import MIGRATION_JOBS, PODS, RESERVATIONS, APIError
from adapters.kubernetes.migration_jobs import migration_job
from adapters.kubernetes.wire import DecodeError
from manager.migration_jobs import Jobs
from rescheduling.settings import Limits
from tests.manager.test_carrying import Desk, pod


def job(name: str = "j", **spec: Any) -> dict[str, Any]:
    ref = {"podRef": {"namespace": "shop", "name": "p"}}
    return {"metadata": {"name": name, "uid": name}, "spec": ref | spec}


class JobDesk(Desk):
    """The same, with jobs."""

    def restart(self) -> None:
        super().restart()
        self.skipped: Counter[str] = Counter()
        self.jobs = Jobs(
            self.api,
            self.source,
            self.carrier,
            Limits(),
            skipped=lambda kind: self.skipped.update([kind]),
            clock=self.time,
            wall=self.time,
        )
        self.carrier.watch.synced.set()

    async def see(self) -> None:
        await super().see()
        self.jobs.known.clear()
        for raw in (await self.api.list_page(MIGRATION_JOBS)).items:
            self.jobs._set(raw)

    async def step(self, *, killed: bool = False) -> None:
        await super().step(killed=killed)
        await self.jobs.run_once()
        await self.see()

    def status(self, name: str = "j") -> dict[str, Any]:
        found: dict[str, Any] = self.api.get_object(MIGRATION_JOBS, "", name).get("status", {})
        return found


@pytest.fixture
def desk(api: Any, fake_time: Any) -> JobDesk:
    return JobDesk(api, fake_time)


@pytest.mark.parametrize("killed", [False, True])
async def test_from_the_place_to_the_pod_that_came(desk: JobDesk, killed: bool) -> None:
    desk.api.put(MIGRATION_JOBS, job(reservationOptions={"template": {"spec": {}}}))
    await desk.step(killed=killed)
    spec = desk.reservation()["spec"]["template"]["spec"]
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "NotIn", "values": ["hot"]}]
    assert desk.status()["phase"] == "Running"
    assert desk.status()["message"] == "not honoured: spec.reservationOptions.template"
    desk.becomes("Available")
    await desk.step(killed=killed)
    assert desk.pods() == []
    desk.api.put(PODS, pod("q", "cool"))
    desk.becomes("Succeeded", currentOwners=[{"namespace": "shop", "name": "q", "uid": "q"}])
    for _ in range(2):
        await desk.step(killed=killed)
    said = desk.status()
    assert (said["phase"], said["nodeName"]) == ("Succeeded", "cool")
    assert said["podRef"] == {"namespace": "shop", "name": "q", "uid": "q"}
    assert [one["type"] for one in said["conditions"]] == [
        "ReservationCreated",
        "ReservationScheduled",
        "Eviction",
        "PodBoundReservation",
        "ReservationBound",
    ]
    assert len(desk.api.objects(RESERVATIONS)) == 1


async def test_evicted_at_once(desk: JobDesk) -> None:
    desk.api.put(MIGRATION_JOBS, job(mode="EvictDirectly"))
    await desk.step()
    assert (desk.pods(), desk.api.objects(RESERVATIONS)) == ([], [])
    await desk.step()
    assert desk.status()["phase"] == "Succeeded"


async def test_a_pod_of_the_same_name_is_another(desk: JobDesk) -> None:
    desk.api.put(MIGRATION_JOBS, job(podRef={"namespace": "shop", "name": "p", "uid": "another"}))
    await desk.step()
    assert (desk.status()["phase"], desk.status()["reason"]) == ("Failed", "MissingPod")


async def test_budgets_hold_for_jobs(desk: JobDesk) -> None:
    for name in ("a", "b"):
        desk.api.put(PODS, pod(f"p{name}", "hot"))
    for name, of in (("j1", "p"), ("j2", "pa"), ("j3", "pb")):
        desk.api.put(MIGRATION_JOBS, job(name, podRef={"namespace": "shop", "name": of}))
    await desk.step()
    assert [desk.status(name)["phase"] for name in ("j1", "j2", "j3")] == ["Running", "Running", "Pending"]
    assert desk.status("j3")["message"] == "2 migrations of node hot are under way"


async def test_a_status_is_written_when_it_changes(desk: JobDesk) -> None:
    desk.api.put(MIGRATION_JOBS, job(paused=True))
    for _ in range(3):
        await desk.step()
    assert len([call for call in desk.api.calls if call[:2] == ("patch", MIGRATION_JOBS)]) == 1


async def test_a_job_waits_while_the_api_server_refuses(desk: JobDesk) -> None:
    desk.api.put(MIGRATION_JOBS, job(mode="EvictDirectly"))
    desk.api.fail("patch", APIError(403, "Forbidden", "no"), resource=MIGRATION_JOBS)
    await desk.step()
    assert desk.pods() == ["p"]
    await desk.step()
    assert desk.pods() == []


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"podRef": {}}, r"spec\.podRef\.name"),
        ({"mode": "Fast"}, r"spec\.mode"),
        ({"ttl": "soon"}, r"spec\.ttl"),
    ],
)
def test_what_cannot_be_read_names_the_field(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        migration_job(orjson.dumps(job(**spec)))


def test_defaults() -> None:
    one = migration_job(orjson.dumps(job(ttl="90s", deleteOptions={"gracePeriodSeconds": 1})))
    assert (one.ttl, one.direct, one.unheeded) == (90.0, False, ("spec.deleteOptions",))
    assert migration_job(orjson.dumps(job())).ttl == 300.0
