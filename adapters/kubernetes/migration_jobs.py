"""Koordinator's PodMigrationJobs from JSON, and their status. DecodeError names object, field and value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from adapters.api import MIGRATION_JOBS
from adapters.kubernetes import wire
from adapters.kubernetes.conditions import timestamp
from adapters.kubernetes.reserving import seconds_of
from adapters.kubernetes.wire import DecodeError, key_of, read
from rescheduling.jobs import DEFAULT_TTL_SECONDS, Answer, Job

_KIND: Final = MIGRATION_JOBS.kind
DIRECT: Final = "EvictDirectly"


class _Reference(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    pod_ref: _Reference | None = None
    paused: bool = False
    ttl: str | None = None
    mode: str = ""
    reservation_options: dict[str, Any] | None = None
    delete_options: dict[str, Any] | None = None


class _Status(msgspec.Struct):
    phase: str = ""
    reason: str = ""


class _Job(msgspec.Struct):
    metadata: wire.FullMetadata
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)


_JOB: Final = msgspec.json.Decoder(_Job)


def migration_job(raw: bytes) -> Job:
    """A PodMigrationJob. DecodeError."""
    obj = read(_JOB, _KIND, raw)
    meta, spec = obj.metadata, obj.spec
    ref = spec.pod_ref or _Reference()
    if not ref.name:
        raise DecodeError(_KIND, key_of(meta), "spec.podRef.name", ref.name, "name the pod")
    if spec.mode not in ("", "ReservationFirst", DIRECT):
        raise DecodeError(_KIND, key_of(meta), "spec.mode", spec.mode, f"ReservationFirst or {DIRECT}")
    ttl = seconds_of(_KIND, meta, "spec.ttl", spec.ttl)
    return Job(
        name=meta.name,
        uid=meta.uid,
        created=meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0,
        pod=f"{ref.namespace or 'default'}/{ref.name}",
        pod_uid=ref.uid,
        direct=spec.mode == DIRECT,
        paused=spec.paused,
        ttl=ttl or DEFAULT_TTL_SECONDS,
        phase=obj.status.phase,
        reason=obj.status.reason,
        unheeded=tuple(_unheeded(spec)),
    )


def _unheeded(spec: _Spec) -> Iterator[str]:
    options = spec.reservation_options or {}
    for name in ("reservationRef", "template", "preemptionOptions"):
        if options.get(name):
            yield f"spec.reservationOptions.{name}"
    if spec.delete_options:
        yield "spec.deleteOptions"


def job_status(
    job: Job, said: Answer, came: tuple[str, str] | None, before: Any, now: float
) -> dict[str, Any]:
    """The status; `came`: namespace and name of the pod that came, before: the conditions as they were."""
    stamp = timestamp(now)
    earlier = {one.get("type"): one for one in before or ()}
    message = said.message
    if job.unheeded:
        message = f"{message}; " * bool(message) + f"not honoured: {', '.join(job.unheeded)}"
    status: dict[str, Any] = {
        "phase": said.phase,
        "status": said.conditions[-1] if said.conditions else "",
        "reason": said.reason,
        "message": message,
        "conditions": [_condition(kind, earlier.get(kind), stamp) for kind in said.conditions],
    }
    if said.node:
        status["nodeName"] = said.node
    if came:
        status["podRef"] = {"namespace": came[0], "name": came[1], "uid": said.came}
    return status


def _condition(kind: str, before: Mapping[str, Any] | None, stamp: str) -> Mapping[str, Any]:
    return before or {"type": kind, "status": "True", "lastProbeTime": stamp, "lastTransitionTime": stamp}
