"""A pod's protobuf as the JSON that our decoders read: what the extender looks at, and nothing else.

One place knows both forms; every decoder after it knows JSON alone. Pods of one template share what is made
of their labels, owners, resources, affinity and tolerations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, TypeAlias, TypeVar

import orjson
from google.protobuf.message import DecodeError as ProtobufError

from adapters.kubernetes.protobuf import messages_pb2 as pb
from adapters.kubernetes.wire import LONGEST_KEPT, DecodeError

_MOST_TEMPLATES: Final = 16384
_MOST_PODS: Final = 1024
"""Of parts that may be a single pod's: it changes several times within seconds, and most of it does not."""
_A_PART: Final = 64
"""What each of many parts takes beside its bytes."""
_UNREADABLE: Final = (ProtobufError, ValueError, TypeError, OverflowError)
_Parts: TypeAlias = tuple[bytes, ...]
K = TypeVar("K", bytes, _Parts)


def as_json(raw: bytes) -> bytes:
    """A pod, of its message's bytes. Where only its metadata can be read, `spec` says why: so a decoder
    refuses that pod, and the watch goes on. DecodeError.
    """
    try:
        pod = pb.Pod.FromString(raw)
        known: dict[str, Any] = {"metadata": _metadata(pod.metadata)}
    except _UNREADABLE as error:
        raise DecodeError("Pod", "(unreadable)", "protobuf", raw[:80], str(error)) from error
    try:
        known["spec"], known["status"] = _spec(pod.spec), _status(pod.status)
        return orjson.dumps(known, default=_text)
    except _UNREADABLE as error:
        return orjson.dumps({"metadata": known["metadata"], "spec": str(error)}, default=_text)


def _text(value: object) -> str:
    """What is not UTF-8, which arrives as bytes: in JSON the API server replaces it, too."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    raise TypeError(f"{type(value).__name__} in a message")


def _kept(most: int) -> Callable[[Callable[[K], Any]], Callable[[K], orjson.Fragment]]:
    """Makes JSON of what several pods or events have in common once, of so many, unless it is long."""

    def keeping(make: Callable[[K], Any]) -> Callable[[K], orjson.Fragment]:
        def made(key: K) -> orjson.Fragment:
            return orjson.Fragment(_fitted(orjson.dumps(make(key), default=_text)))

        known = lru_cache(most)(made)
        return lambda key: known(key) if _length(key) <= LONGEST_KEPT else made(key)

    return keeping


def _fitted(text: bytes) -> bytes:
    """A copy that takes no more than it says: orjson leaves four kilobytes, or more, to a text of forty."""
    return bytes(memoryview(text))


def _length(key: bytes | _Parts) -> int:
    return len(key) if isinstance(key, bytes) else sum(map(len, key)) + _A_PART * len(key)


def _pairs(parts: _Parts) -> dict[str, str]:
    return {one.key: one.value for one in map(pb.Text.FromString, parts)}


_texts, _annotations = _kept(_MOST_TEMPLATES)(_pairs), _kept(_MOST_PODS)(_pairs)


@_kept(_MOST_TEMPLATES)
def _amounts(parts: _Parts) -> dict[str, str]:
    return _quantities(map(pb.Amount.FromString, parts))


def _quantities(amounts: Iterable[pb.Amount]) -> dict[str, str]:
    return {one.key: one.value.string for one in amounts}


@_kept(_MOST_PODS)
def _resources(part: bytes) -> dict[str, Any]:
    one = pb.ResourceRequirements.FromString(part)
    return {"limits": _quantities(one.limits), "requests": _quantities(one.requests)}


@_kept(_MOST_TEMPLATES)
def _claims(parts: _Parts) -> list[dict[str, Any]]:
    return [{"resources": _quantities(one.resources)} for one in map(pb.ClaimStatus.FromString, parts)]


@_kept(_MOST_TEMPLATES)
def _owners(parts: _Parts) -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": one.api_version,
            "kind": one.kind,
            "name": one.name,
            "uid": one.uid,
            "controller": one.controller,
        }
        for one in map(pb.OwnerReference.FromString, parts)
    ]


@_kept(_MOST_TEMPLATES)
def _tolerations(parts: _Parts) -> list[dict[str, str]]:
    return [
        {"key": one.key, "operator": one.operator, "value": one.value, "effect": one.effect}
        for one in map(pb.Toleration.FromString, parts)
    ]


@_kept(_MOST_PODS)
def _affinity(part: bytes) -> dict[str, Any]:
    one = pb.Affinity.FromString(part)
    if not one.node_affinity.HasField("required"):
        return {}
    terms = [
        {
            "matchExpressions": [_requirement(each) for each in term.match_expressions],
            "matchFields": [_requirement(each) for each in term.match_fields],
        }
        for term in one.node_affinity.required.terms
    ]
    required = {"nodeSelectorTerms": terms}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def _requirement(one: pb.Requirement) -> dict[str, Any]:
    return {"key": one.key, "operator": one.operator, "values": list(one.values)}


@_kept(_MOST_PODS)
def _condition(part: bytes) -> dict[str, Any]:
    one = pb.Condition.FromString(part)
    return {
        "type": one.type,
        "status": one.status,
        "reason": one.reason,
        "lastTransitionTime": _time(one.last_transition_time.seconds),
    }


@_kept(_MOST_PODS)
def _spec(part: bytes) -> dict[str, Any]:
    spec = pb.PodSpec.FromString(part)
    return {
        "containers": [_container(one) for one in spec.containers],
        "initContainers": [_container(one) for one in spec.init_containers],
        "resources": _resources(spec.resources) if spec.HasField("resources") else None,
        "overhead": _amounts(tuple(spec.overhead)),
        "nodeName": spec.node_name,
        "priority": spec.priority if spec.HasField("priority") else None,
        "schedulerName": spec.scheduler_name,
        **({} if spec.node_name else _waiting(spec)),
    }


def _waiting(spec: pb.PodSpec) -> dict[str, Any]:
    """Where a pod may run, and what it waits for: nobody asks that of one that is bound, and who writes ten
    thousand tolerations is not to hold the loop with each change of its status.
    """
    return {
        "nodeSelector": _texts(tuple(spec.node_selector)),
        "affinity": _affinity(spec.affinity) if spec.HasField("affinity") else None,
        "tolerations": _tolerations(tuple(spec.tolerations)),
        "schedulingGates": [{"name": gate.name} for gate in spec.scheduling_gates],
    }


def _container(one: pb.Container) -> dict[str, Any]:
    return {
        "name": one.name,
        "resources": _resources(one.resources),
        "restartPolicy": one.restart_policy or None,
    }


def _metadata(meta: pb.ObjectMeta) -> dict[str, Any]:
    deletion = _stamp(meta.deletion_timestamp.seconds) if meta.HasField("deletion_timestamp") else None
    return {
        "name": meta.name,
        "namespace": meta.namespace,
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
        "creationTimestamp": _time(meta.creation_timestamp.seconds),
        "deletionTimestamp": deletion,
        "labels": _texts(tuple(meta.labels)),
        "annotations": _annotations(tuple(meta.annotations)),
        "ownerReferences": _owners(tuple(meta.owner_references)),
    }


@_kept(_MOST_PODS)
def _status(part: bytes) -> dict[str, Any]:
    status = pb.PodStatus.FromString(part)
    return {
        "phase": status.phase,
        "reason": status.reason,
        "nominatedNodeName": status.nominated_node_name,
        "conditions": [_condition(one) for one in status.conditions],
        "containerStatuses": _container_statuses(status.container_statuses),
        "initContainerStatuses": _container_statuses(status.init_container_statuses),
        "nodeAllocatableResourceClaimStatuses": _claims(
            tuple(status.node_allocatable_resource_claim_statuses)
        ),
        "resources": _resources(status.resources) if status.HasField("resources") else None,
        "allocatedResources": _amounts(tuple(status.allocated_resources)),
        "resize": status.resize,
    }


def _container_statuses(statuses: Iterable[pb.ContainerStatus]) -> list[dict[str, Any]]:
    """Of containers of which a kubelet says what they have."""
    return [
        {
            "name": one.name,
            "resources": _resources(one.resources) if one.HasField("resources") else None,
            "allocatedResources": _amounts(tuple(one.allocated_resources)),
        }
        for one in statuses
        if one.HasField("resources") or one.allocated_resources
    ]


def _time(seconds: int) -> str | None:
    """RFC 3339; None for Go's zero time, which is sent empty."""
    return _stamp(seconds) if seconds else None


@lru_cache(_MOST_PODS)
def _stamp(seconds: int) -> str:
    """RFC 3339; what no calendar has as it is, so that whoever reads it refuses it, and nobody else."""
    try:
        return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat() + "Z"
    except (ValueError, OverflowError, OSError):
        return f"{seconds} s"
