"""What is done next for a PodMigrationJob, and what its status says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rescheduling.jobs import Answer, Ask, Carried, Job, answer
from tests.rescheduling.clusters import running

JOB = Job("j", "j1", 0.0, "a/p")
DIRECT = replace(JOB, direct=True)
POD = running("p", "n")


@pytest.mark.parametrize(
    ("job", "pod", "busy", "now", "said"),
    [
        (JOB, POD, "", 0, (Ask.RESERVE, "Running", "")),
        (JOB, POD, "full", 0, (Ask.WAIT, "Pending", "")),
        (JOB, POD, "full", 301, (Ask.WAIT, "Failed", "Timeout")),
        (replace(JOB, paused=True), POD, "", 0, (Ask.WAIT, "Pending", "")),
        (JOB, None, "", 0, (Ask.WAIT, "Failed", "MissingPod")),
        (JOB, running("p", "n", controller=None), "", 0, (Ask.WAIT, "Failed", "FailedCreateReservation")),
        (JOB, running("p", "n", floor=True), "", 0, (Ask.WAIT, "Failed", "FailedCreateReservation")),
        (JOB, running("p", "n", local=True, claims=True), "", 0, (Ask.RESERVE, "Running", "")),
        (replace(JOB, phase="Running"), POD, "", 0, (Ask.WAIT, "Failed", "MissingReservation")),
        (DIRECT, POD, "", 0, (Ask.EVICT, "Running", "")),
        (replace(DIRECT, phase="Running"), POD, "", 0, (Ask.EVICT, "Running", "Evicting")),
        (replace(DIRECT, phase="Running"), POD, "", 301, (Ask.WAIT, "Failed", "FailedEvict")),
        (replace(DIRECT, phase="Running"), None, "", 0, (Ask.WAIT, "Succeeded", "EvictComplete")),
    ],
)
def test_before_there_is_a_place(
    job: Job, pod: object, busy: str, now: float, said: tuple[Ask, str, str]
) -> None:
    found = answer(job, pod, None, busy, now)  # type: ignore[arg-type]
    assert (found.ask, found.phase, found.reason) == said


def test_what_its_migration_makes_of_the_status() -> None:
    def at(pod: object, one: Carried) -> Answer:
        return answer(replace(JOB, phase="Running"), pod, one, "", 999.0)  # type: ignore[arg-type]

    assert at(POD, Carried()).conditions == ("ReservationCreated",)
    held = at(POD, Carried("Available", "n2"))
    assert (held.phase, held.node, held.conditions[-1]) == ("Running", "n2", "ReservationScheduled")
    gone = at(None, Carried("Available", "n2"))
    assert (gone.reason, gone.conditions[-1]) == ("WaitForPodBindReservation", "Eviction")
    done = at(None, Carried("Succeeded", "n2", "q", ended=True))
    assert (done.phase, done.came, done.conditions[-1]) == ("Succeeded", "q", "ReservationBound")
    for ours, theirs in (("NoPlace", "Timeout"), ("NotEvicted", "FailedEvict"), ("PlaceTaken", "PlaceTaken")):
        failed = at(POD, Carried("Available", "n2", ended=True, failed=ours))
        assert (failed.phase, failed.reason) == ("Failed", theirs)
