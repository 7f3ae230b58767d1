"""Pods as the API server sends them in a watch in protobuf, made of their JSON: what we read of a pod, and as
many bytes beside it as its managed fields have.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import orjson

from adapters.kubernetes.protobuf import messages_pb2 as pb

_METADATA: Final = 1
_MANAGED_FIELDS: Final = 17
_OF_A_LENGTH: Final = 2
"""The wire type of bytes and messages."""


def frame(kind: str, message: bytes) -> bytes:
    """An event of a watch, its length before it."""
    raw = pb.RawExtension(raw=envelope(message))
    event: bytes = pb.WatchEvent(type=kind, object=raw).SerializeToString()
    return len(event).to_bytes(4) + event


def envelope(message: bytes) -> bytes:
    """An object with what the API server puts around each."""
    around: bytes = pb.Unknown(raw=message).SerializeToString()
    return b"k8s\0" + around


def pod(body: Mapping[str, Any]) -> bytes:
    """A pod's message."""
    meta, spec, status = body["metadata"], body.get("spec", {}), body.get("status", {})
    whole = pb.Pod(metadata=_metadata(meta), spec=_spec(spec), status=_status(status))
    message: bytes = whole.SerializeToString()
    unread = [_field(_MANAGED_FIELDS, orjson.dumps(one)) for one in meta.get("managedFields") or ()]
    return message + _field(_METADATA, b"".join(unread))  # said twice, a message is merged


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _OF_A_LENGTH) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    *front, last = [number >> shift & 0x7F for shift in range(0, max(7, number.bit_length()), 7)]
    return bytes([part | 0x80 for part in front] + [last])


def _metadata(meta: Mapping[str, Any]) -> pb.ObjectMeta:
    return pb.ObjectMeta(
        name=meta.get("name"),
        namespace=meta.get("namespace"),
        uid=meta.get("uid"),
        resource_version=meta.get("resourceVersion"),
        creation_timestamp=_time(meta.get("creationTimestamp")),
        deletion_timestamp=_time(meta.get("deletionTimestamp")),
        labels=_texts(meta.get("labels")),
        annotations=_texts(meta.get("annotations")),
        owner_references=[
            pb.OwnerReference(
                kind=one["kind"],
                name=one["name"],
                uid=one["uid"],
                api_version=one.get("apiVersion"),
                controller=one.get("controller"),
            ).SerializeToString()
            for one in meta.get("ownerReferences") or ()
        ],
    )


def _spec(spec: Mapping[str, Any]) -> bytes:
    message: bytes = pb.PodSpec(
        containers=[_container(one) for one in spec.get("containers") or ()],
        init_containers=[_container(one) for one in spec.get("initContainers") or ()],
        node_name=spec.get("nodeName"),
        priority=spec.get("priority"),
        scheduler_name=spec.get("schedulerName"),
        overhead=_amounts(spec.get("overhead")),
        resources=_resources(spec.get("resources")),
        scheduling_gates=[pb.SchedulingGate(name=one["name"]) for one in spec.get("schedulingGates") or ()],
        tolerations=[_toleration(one) for one in spec.get("tolerations") or ()],
        node_selector=_texts(spec.get("nodeSelector")),
    ).SerializeToString()
    return message


def _status(status: Mapping[str, Any]) -> bytes:
    message: bytes = pb.PodStatus(
        phase=status.get("phase"),
        reason=status.get("reason"),
        nominated_node_name=status.get("nominatedNodeName"),
        resize=status.get("resize"),
        conditions=[
            pb.Condition(
                type=one["type"],
                status=one.get("status"),
                reason=one.get("reason"),
                last_transition_time=_time(one.get("lastTransitionTime")),
            ).SerializeToString()
            for one in status.get("conditions") or ()
        ],
        container_statuses=[
            pb.ContainerStatus(
                name=one.get("name"),
                resources=_resources(one.get("resources")),
                allocated_resources=_amounts(one.get("allocatedResources")),
            )
            for one in status.get("containerStatuses") or ()
        ],
        resources=_resources(status.get("resources")),
        allocated_resources=_amounts(status.get("allocatedResources")),
        node_allocatable_resource_claim_statuses=[
            pb.ClaimStatus(resources=_pairs(one.get("resources"))).SerializeToString()
            for one in status.get("nodeAllocatableResourceClaimStatuses") or ()
        ],
    ).SerializeToString()
    return message


def _toleration(one: Mapping[str, Any]) -> bytes:
    said = {name: one.get(name) for name in ("key", "operator", "value", "effect")}
    message: bytes = pb.Toleration(**said).SerializeToString()
    return message


def _container(one: Mapping[str, Any]) -> pb.Container:
    resources = _resources(one.get("resources"))
    return pb.Container(name=one["name"], resources=resources, restart_policy=one.get("restartPolicy"))


def _resources(said: Mapping[str, Any] | None) -> bytes | None:
    if said is None:
        return None
    limits, requests = _pairs(said.get("limits")), _pairs(said.get("requests"))
    message: bytes = pb.ResourceRequirements(limits=limits, requests=requests).SerializeToString()
    return message


def _pairs(amounts: Mapping[str, Any] | None) -> list[pb.Amount]:
    return [
        pb.Amount(key=name, value=pb.Quantity(string=str(amount)))
        for name, amount in sorted((amounts or {}).items())
    ]


def _amounts(amounts: Mapping[str, Any] | None) -> list[bytes]:
    return [one.SerializeToString() for one in _pairs(amounts)]


def _texts(texts: Mapping[str, str] | None) -> list[bytes]:
    return [pb.Text(key=key, value=value).SerializeToString() for key, value in sorted((texts or {}).items())]


def _time(text: str | None) -> pb.Time | None:
    return pb.Time(seconds=int(datetime.fromisoformat(text).timestamp())) if text else None
