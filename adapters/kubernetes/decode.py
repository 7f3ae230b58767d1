"""Kubernetes objects to qos.cluster.objects: the only place where their JSON is parsed.

Pods are the hot path (watch ingest, filter): strings and mappings that many pods share are kept once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from sys import intern
from typing import Final

import msgspec

from adapters.kubernetes import wire
from adapters.kubernetes.budgets import budget, namespace
from adapters.kubernetes.policies import policy, priority_class, profile
from adapters.kubernetes.requests import request_of, vector_of
from adapters.kubernetes.reserving import affinity_of, reserved_by
from adapters.kubernetes.templates import daemon_set, workload
from adapters.kubernetes.wire import (
    Annotations,
    AskedPod,
    Condition,
    DecodeError,
    Identity,
    Metadata,
    NodeObject,
    NodeSpec,
    NodeStatus,
    Object,
    PodMetadata,
    PodObject,
    PodStatus,
    key_of,
    read,
    written,
)
from qos.cluster.objects import Node, OwnerReference, Pod, Taint, Toleration

__all__ = [
    "DecodeError",
    "Metadata",
    "PodObject",
    "budget",
    "daemon_set",
    "metadata",
    "namespace",
    "node",
    "pod",
    "pod_from",
    "policy",
    "prefers",
    "priority_class",
    "profile",
    "tolerations_of",
    "workload",
]

_OBJECT = msgspec.json.Decoder(Object)
_POD = msgspec.json.Decoder(PodObject)
_NODE = msgspec.json.Decoder(NodeObject)
_LABELS = msgspec.json.Decoder(dict[str, str])
_OWNERS = msgspec.json.Decoder(list[wire.OwnerReference])
_TOLERATIONS = msgspec.json.Decoder(list[wire.Toleration])

_NO_STATUS: Final = PodStatus()
_NO_ANNOTATIONS: Final = Annotations()
_NO_LABELS: Final[Mapping[str, str]] = {}


def metadata(raw: bytes) -> Metadata:
    """Name, namespace, uid, resource_version ... of any object. DecodeError."""
    return read(_OBJECT, "object", raw).metadata


def pod(raw: bytes) -> Pod:
    """A pod. DecodeError."""
    return pod_from(read(_POD, "Pod", raw))


def pod_from(obj: PodObject) -> Pod:
    """A pod that came inside another message. DecodeError."""
    meta, spec, status = obj.metadata, obj.spec, obj.status or _NO_STATUS
    annotations = meta.annotations or _NO_ANNOTATIONS
    scheduled, unschedulable = _scheduling(meta, status.conditions) if status.conditions else (0.0, 0.0)
    labels, controller = _shared(meta)
    return Pod(
        uid=meta.uid,
        namespace=intern(meta.namespace),
        name=meta.name,
        requests=request_of("Pod", meta, spec, status),
        labels=labels,
        priority=spec.priority or 0,
        node_name=intern(spec.node_name),
        nominated_node_name=intern(status.nominated_node_name),
        phase=intern(status.phase or "Pending"),
        deleting=meta.deletion_timestamp is not None,
        scheduler_name=intern(spec.scheduler_name or "default-scheduler"),
        controller=controller,
        mirror=annotations.mirror is not None,
        bound_by=intern(annotations.bound_by),
        slot=None if annotations.policy is None else intern(annotations.policy),
        created=_seconds(meta, "metadata.creationTimestamp", meta.creation_timestamp),
        scheduled=scheduled,
        unschedulable_since=unschedulable,
        reserved_by=reserved_by(annotations.reservation) if annotations.reservation else "",
        reservation_affinity=None
        if annotations.reservation_affinity is None
        else affinity_of(annotations.reservation_affinity),
    )


def tolerations_of(obj: PodObject) -> tuple[Toleration, ...]:
    """What a pod tolerates. DecodeError."""
    text = written(obj.spec.tolerations)
    try:
        return _tolerations(text)
    except msgspec.MsgspecError as error:
        raise DecodeError(
            "Pod", key_of(obj.metadata), "spec.tolerations", text.decode(), str(error)
        ) from None


def prefers(obj: AskedPod) -> bool:
    """Whether it matters to a pod, by its spec, which of the nodes it fits on it gets: preferred affinity,
    ScheduleAnyway, claims of volumes or devices. In doubt it does.
    """
    spec = obj.spec
    return (
        b"preferred" in written(spec.affinity)
        or b"ScheduleAnyway" in written(spec.topology_spread_constraints)
        or b"olumeClaim" in written(spec.volumes)  # persistentVolumeClaim, volumeClaimTemplate
        or written(spec.resource_claims) not in (b"", b"[]")
    )


@lru_cache(4096)
def _tolerations(text: bytes) -> tuple[Toleration, ...]:
    said = _TOLERATIONS.decode(text) if text else []
    return tuple(Toleration(one.key, one.operator or "Equal", one.value, one.effect) for one in said)


def node(raw: bytes) -> Node:
    """A node; not ready while it has no Ready condition. DecodeError."""
    obj = read(_NODE, "Node", raw)
    meta, spec, status = obj.metadata, obj.spec or NodeSpec(), obj.status or NodeStatus()
    return Node(
        name=intern(meta.name),
        uid=meta.uid,
        allocatable=vector_of("Node", meta, "status.allocatable", status.allocatable or {}),
        labels=meta.labels or {},
        taints=tuple(Taint(t.key, t.value, t.effect) for t in spec.taints or ()),
        unschedulable=spec.unschedulable,
        ready=any(c.type == "Ready" and c.status == "True" for c in status.conditions or ()),
    )


def _scheduling(meta: Identity, conditions: Iterable[Condition]) -> tuple[float, float]:
    """When the pod was scheduled, and since when it is unschedulable; 0.0 for what is not the case."""
    for condition in conditions:
        if condition.type == "PodScheduled":
            when = _seconds(meta, "status.conditions.lastTransitionTime", condition.last_transition_time)
            if condition.status == "True":
                return when, 0.0
            return 0.0, when if condition.reason == "Unschedulable" else 0.0
    return 0.0, 0.0


def _seconds(meta: Identity, field: str, text: str | None) -> float:
    if not text:
        return 0.0
    try:
        return _epoch(text)
    except ValueError as error:
        raise DecodeError("Pod", key_of(meta), field, text, str(error)) from None


@lru_cache(maxsize=16384)
def _epoch(text: str) -> float:
    """Times have whole seconds, so many pods share one."""
    return datetime.fromisoformat(text).timestamp()


def _shared(meta: PodMetadata) -> tuple[Mapping[str, str], OwnerReference | None]:
    """Labels and controller, which pods of one template have in common."""
    field = "labels"
    try:
        text = written(meta.labels)
        labels = (_labels if len(text) <= wire.LONGEST_KEPT else _labels.__wrapped__)(text)
        field = "ownerReferences"
        text = written(meta.owner_references)
        return labels, (_controller if len(text) <= wire.LONGEST_KEPT else _controller.__wrapped__)(text)
    except msgspec.MsgspecError as error:
        value = bytes(getattr(meta, "labels" if field == "labels" else "owner_references")).decode()
        raise DecodeError("Pod", key_of(meta), f"metadata.{field}", value, str(error)) from None


@lru_cache(maxsize=16384)
def _labels(text: bytes) -> Mapping[str, str]:
    if not text:
        return _NO_LABELS
    return {intern(key): value for key, value in _LABELS.decode(text).items()}


@lru_cache(maxsize=16384)
def _controller(text: bytes) -> OwnerReference | None:
    for owner in _OWNERS.decode(text) if text else ():
        if owner.controller:
            return OwnerReference(intern(owner.kind), owner.name, owner.uid, intern(owner.api_version))
    return None
