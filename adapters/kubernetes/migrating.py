"""Migrations as they are kept: each is a Reservation; annotations say what it is for, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from adapters.api import RESERVATIONS
from adapters.kubernetes import wire
from adapters.kubernetes.wire import UNREADABLE, read
from qos import keys, quantity
from qos.cluster.objects import NodeSelectorTerm, Requirement
from qos.cluster.running import RunningPod
from rescheduling.records import Migration


class _Owner(msgspec.Struct):
    uid: str = ""


class _Status(msgspec.Struct, rename="camel"):
    phase: str = ""
    node_name: str = ""
    current_owners: list[_Owner] | None = None


class _Reservation(msgspec.Struct):
    metadata: wire.FullMetadata
    status: _Status = msgspec.field(default_factory=_Status)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a migration ended, seconds since the epoch. `failed`: the reason, "" it did not. `came`: a UID."""

    at: float
    failed: str = ""
    came: str = ""


@dataclass(frozen=True, slots=True)
class Kept:
    """A migration as its Reservation has it; `outcome` None: it is under way.

    `phase`, `node`: of the Reservation; `came`: UID of the pod that uses it, "" none.
    """

    name: str
    created: float
    migration: Migration
    phase: str = ""
    node: str = ""
    came: str = ""
    outcome: Outcome | None = None


_RESERVATION: Final = msgspec.json.Decoder(_Reservation)
_MIGRATION: Final = msgspec.json.Decoder(Migration)
_OUTCOME: Final = msgspec.json.Decoder(Outcome)
_ENCODER: Final = msgspec.json.Encoder(order="sorted")


def kept(raw: bytes) -> Kept | None:
    """A migration of ours; None: another's Reservation, or one that cannot be read. DecodeError."""
    obj = read(_RESERVATION, RESERVATIONS.kind, raw)
    meta, status = obj.metadata, obj.status
    said = (meta.annotations or {}).get(keys.MIGRATION_ANNOTATION, "")
    ended = (meta.annotations or {}).get(keys.MIGRATION_OUTCOME_ANNOTATION, "")
    try:
        migration = _MIGRATION.decode(said) if said else None
        outcome = _OUTCOME.decode(ended) if ended else None
    except UNREADABLE:
        return None
    if migration is None:
        return None
    return Kept(
        meta.name,
        meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0,
        migration,
        status.phase,
        status.node_name,
        next((one.uid for one in status.current_owners or ()), ""),
        outcome,
    )


def name_of(one: Migration, now: float) -> str:
    """The Reservation's: a pod may be tried again later."""
    return f"j10ce-migration-{one.uid}-{int(now):x}"


def reservation_for(one: Migration, running: RunningPod, ttl: float, now: float) -> dict[str, Any]:
    """The Reservation that holds a place on the target for whatever the pod's controller makes next.

    It ends by itself after `ttl` seconds, whatever becomes of us; its priority is the pod's.
    """
    controller = running.pod.controller
    assert controller is not None, "a pod that nothing makes anew is not moved"
    owner = {
        "apiVersion": controller.api_version,
        "kind": controller.kind,
        "name": controller.name,
        "uid": controller.uid,
        "controller": True,
        "namespace": one.namespace,
    }
    requests = {
        name: quantity.render(name, amount)
        for name, amount in sorted(one.requests.items())
        if name != keys.PODS
    }
    tolerations = [
        {name: text for name, text in asdict(each).items() if text} for each in running.where.tolerations
    ]
    return {
        "apiVersion": f"{RESERVATIONS.group}/{RESERVATIONS.version}",
        "kind": RESERVATIONS.kind,
        "metadata": {
            "name": name_of(one, now),
            "labels": {keys.MIGRATION_LABEL: "true"},
            "annotations": {keys.MIGRATION_ANNOTATION: _ENCODER.encode(one).decode()},
        },
        "spec": {
            "allocateOnce": True,
            "ttl": f"{int(ttl)}s",
            "owners": [{"controller": owner}],
            "template": {
                "spec": {
                    **_place(one, running),
                    "priority": running.pod.priority,
                    "tolerations": tolerations,
                    "containers": [{"name": "place", "resources": {"requests": requests}}],
                }
            },
        },
    }


def _place(one: Migration, running: RunningPod) -> dict[str, Any]:
    """The target; without one anywhere the pod may run, but where it is."""
    if one.target:
        return {"nodeName": one.target}
    where = running.where
    elsewhere = {"key": "metadata.name", "operator": "NotIn", "values": [one.source]}
    terms = [
        {
            "matchExpressions": [_expression(each) for each in term.labels],
            "matchFields": [*(_expression(each) for each in term.fields), elsewhere],
        }
        for term in (where.affinity if where.affinity is not None else (NodeSelectorTerm(),))
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeSelector": dict(where.node_selector), "affinity": {"nodeAffinity": required}}


def _expression(one: Requirement) -> dict[str, Any]:
    return {"key": one.key, "operator": one.operator, "values": list(one.values)}


def ended(outcome: Outcome) -> Mapping[str, Any]:
    """The patch that says how it ended; after a failure nothing is held any more."""
    change: dict[str, Any] = {
        "metadata": {"annotations": {keys.MIGRATION_OUTCOME_ANNOTATION: _ENCODER.encode(outcome).decode()}}
    }
    if outcome.failed:
        stamp = datetime.fromtimestamp(outcome.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        change["spec"] = {"expires": stamp}
    return change
