"""Koordinator's PodMigrationJob: what it asks for, what is done next for it, and what its status says. Pure.

Source: koordinator-sh/koordinator, apis/scheduling/v1alpha1/pod_migration_job_types.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from qos.cluster.reservation import AVAILABLE, SUCCEEDED
from qos.cluster.running import RunningPod
from rescheduling.candidates import obstacle
from rescheduling.settings import Settings

PENDING, RUNNING, DONE, FAILED, ABORTED = "Pending", "Running", "Succeeded", "Failed", "Aborted"
OVER: Final = (DONE, FAILED, ABORTED)
DEFAULT_TTL_SECONDS: Final = 300.0
ANY: Final = Settings((), claims=True, local=True)
"""Who makes a job means this pod: only what cannot be moved at all is refused."""


@dataclass(frozen=True, slots=True)
class Job:
    """A PodMigrationJob. `pod`: namespace/name; `pod_uid`: "" not stated. `direct`: mode EvictDirectly.

    `phase`, `reason`: as its status says. `unheeded`: what of it is not honoured, for people.
    """

    name: str
    uid: str
    created: float
    pod: str
    pod_uid: str = ""
    direct: bool = False
    paused: bool = False
    ttl: float = DEFAULT_TTL_SECONDS
    phase: str = ""
    reason: str = ""
    unheeded: tuple[str, ...] = ()

    @property
    def over(self) -> bool:
        """Whether nothing follows any more."""
        return self.phase in OVER


class Ask(Enum):
    """What is done next for a job."""

    WAIT = "Wait"
    RESERVE = "Reserve"
    EVICT = "Evict"


@dataclass(frozen=True, slots=True)
class Carried:
    """Its migration: the Reservation's phase and node, and how it ended.

    `came`: UID of the pod that uses the place. `ended`: it is over; `failed`: the reason, "" it did not.
    """

    phase: str = ""
    node: str = ""
    came: str = ""
    ended: bool = False
    failed: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is done next, and the status from now on. `conditions`: types that are True, in order."""

    ask: Ask
    phase: str
    reason: str = ""
    message: str = ""
    node: str = ""
    came: str = ""
    conditions: tuple[str, ...] = ()


def answer(job: Job, running: RunningPod | None, carried: Carried | None, busy: str, now: float) -> Answer:
    """What is to be done for a job that is not over.

    running: the pod that it names, None where it is gone; carried: its migration, None while there is none;
    busy: why none may begin now, "" if one may.
    """
    if carried is not None:
        return _carried(running, carried)
    if job.direct and job.phase == RUNNING:
        return _direct(job, running, now)
    if job.phase == RUNNING:
        return Answer(Ask.WAIT, FAILED, "MissingReservation", "its Reservation is gone")
    if job.paused:
        return Answer(Ask.WAIT, PENDING, message="spec.paused")
    if running is None:
        return Answer(Ask.WAIT, FAILED, "MissingPod", f"there is no pod {job.pod}")
    stays = obstacle(running, ANY) if not job.direct else ""
    if stays:
        return Answer(Ask.WAIT, FAILED, "FailedCreateReservation", f"{job.pod} cannot be moved: {stays}")
    if now - job.created > job.ttl:
        return Answer(Ask.WAIT, FAILED, "Timeout", busy or "it did not begin in time")
    if busy:
        return Answer(Ask.WAIT, PENDING, message=busy)
    return Answer(Ask.EVICT if job.direct else Ask.RESERVE, RUNNING)


def _direct(job: Job, running: RunningPod | None, now: float) -> Answer:
    if running is None or running.pod.deleting:
        return Answer(Ask.WAIT, DONE, "EvictComplete", conditions=("Eviction",))
    if now - job.created > job.ttl:
        return Answer(Ask.WAIT, FAILED, "FailedEvict", "its eviction was refused")
    return Answer(Ask.EVICT, RUNNING, "Evicting")


_REASONS: Final = {
    "NoPlace": "Timeout",
    "HoldGone": "MissingReservation",
    "PodGone": "MissingPod",
    "NotEvicted": "FailedEvict",
    "NotCome": "Timeout",
    "NotReady": "Timeout",
}
"""Theirs for ours; others are said as they are."""


def _carried(running: RunningPod | None, one: Carried) -> Answer:
    conditions = ["ReservationCreated"]
    if one.phase in (AVAILABLE, SUCCEEDED):
        conditions.append("ReservationScheduled")
    if one.phase == SUCCEEDED or (one.phase == AVAILABLE and (running is None or running.pod.deleting)):
        conditions.append("Eviction")
    if one.phase == SUCCEEDED and one.came:
        conditions += ["PodBoundReservation", "ReservationBound"]
    said = tuple(conditions)
    if not one.ended:
        reason = "WaitForPodBindReservation" if "Eviction" in said else ""
        return Answer(Ask.WAIT, RUNNING, reason, "", one.node, one.came, said)
    if one.failed:
        reason = _REASONS.get(one.failed, one.failed)
        return Answer(
            Ask.WAIT, FAILED, reason, f"its migration failed: {one.failed}", one.node, conditions=said
        )
    return Answer(Ask.WAIT, DONE, "", "", one.node, one.came, said)
