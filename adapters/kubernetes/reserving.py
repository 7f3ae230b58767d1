"""Koordinator's Reservations from JSON, and what pods say of them. DecodeError names object, field, value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Final, Literal

import msgspec

from adapters.kubernetes import wire
from adapters.kubernetes.requests import request_of
from adapters.kubernetes.templates import placement_of, selector_of
from adapters.kubernetes.wire import LONGEST_KEPT, UNREADABLE, DecodeError, key_of, read
from qos import keys
from qos.cluster.objects import NodePredicate, NodeSelectorTerm, Requirement, Taint
from qos.cluster.reservation import DEFAULT_TTL_SECONDS, ControllerRef, PodOwner, Reservation

_KIND: Final = "Reservation"
_NONE: Final = NodePredicate(affinity=())
"""Selects no Reservation."""
_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_DURATION: Final = re.compile(r"\+?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:h|ms|us|µs|ns|m|s))+|0")
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(h|ms|us|µs|ns|m|s)")


class _Allocated(msgspec.Struct):
    uid: str = ""


class _Terms(msgspec.Struct, rename="camel"):
    reservation_selector_terms: list[wire.NodeSelectorTerm] | None = None


class _Affinity(msgspec.Struct, rename="camel"):
    name: str = ""
    required: _Terms | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    reservation_selector: dict[str, str] | None = None
    tolerations: list[wire.Toleration] | None = None


class _TemplateSpec(wire.TemplateSpec):
    node_name: str = ""
    priority: int | None = None
    priority_class_name: str = ""


class _Template(msgspec.Struct):
    spec: _TemplateSpec


class _Object(msgspec.Struct):
    uid: str = ""
    name: str = ""
    namespace: str = ""


class _Controller(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    namespace: str = ""
    controller: bool | None = None


class _Owner(msgspec.Struct, rename="camel"):
    object: _Object | None = None
    controller: _Controller | None = None
    label_selector: wire.LabelSelector | None = None


class _Spec(msgspec.Struct, rename="camel"):
    template: _Template
    owners: list[_Owner]
    ttl: str | None = None
    expires: datetime | None = None
    pre_allocation: bool = False
    allocate_once: bool | None = None
    allocate_policy: Literal["", "Aligned", "Restricted"] = ""
    unschedulable: bool = False
    taints: list[wire.Taint] | None = None


class _Status(msgspec.Struct, rename="camel"):
    phase: str = ""
    node_name: str = ""


class _Reservation(msgspec.Struct):
    metadata: wire.FullMetadata
    spec: _Spec
    status: msgspec.Raw = wire.ABSENT


_RESERVATION: Final = msgspec.json.Decoder(_Reservation)
_STATUS: Final = msgspec.json.Decoder(_Status)
_AFFINITY: Final = msgspec.json.Decoder(_Affinity)
_ALLOCATED: Final = msgspec.json.Decoder(_Allocated)


def reserved_by(text: str) -> str:
    """UID of the Reservation that the annotation of a pod names; "" where it cannot be read."""
    return (_reserved_by if len(text) <= LONGEST_KEPT else _reserved_by.__wrapped__)(text)


@lru_cache(maxsize=16384)
def _reserved_by(text: str) -> str:
    try:
        return _ALLOCATED.decode(text).uid
    except UNREADABLE:
        return ""


def affinity_of(text: str) -> NodePredicate:
    """Which Reservations a pod's annotation selects, as if they were nodes; none where it cannot be read."""
    return (_affinity_of if len(text) <= LONGEST_KEPT else _affinity_of.__wrapped__)(text)


@lru_cache(maxsize=4096)
def _affinity_of(text: str) -> NodePredicate:
    try:
        said = _AFFINITY.decode(text or "{}")
    except UNREADABLE:
        return _NONE
    if said.name:
        named = NodeSelectorTerm(fields=(Requirement("metadata.name", "In", (said.name,)),))
        return replace(placement_of(wire.TemplateSpec(tolerations=said.tolerations)), affinity=(named,))
    terms = said.required.reservation_selector_terms if said.required else None
    required = wire.NodeSelector(terms) if said.required else None
    return placement_of(
        wire.TemplateSpec(
            node_selector=said.reservation_selector,
            affinity=wire.Affinity(node_affinity=wire.NodeAffinity(required)),
            tolerations=said.tolerations,
        )
    )


def reservation(raw: bytes) -> Reservation:
    """A Reservation, its defaults filled in. DecodeError."""
    obj = read(_RESERVATION, _KIND, raw)
    meta, spec = obj.metadata, obj.spec
    template, labels = spec.template.spec, meta.labels or {}
    text = wire.written(obj.status) or b"{}"
    try:
        said = _STATUS.decode(text)
    except msgspec.MsgspecError:
        said = _Status()
    created = meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0
    return Reservation(
        name=meta.name,
        uid=meta.uid,
        generation=meta.generation,
        resource_version=meta.resource_version,
        created=created,
        vector={name: amount for name, amount in request_of(_KIND, meta, template).items() if amount > 0},
        where=placement_of(template),
        owners=tuple(_owner(one) for one in spec.owners),
        node_name=template.node_name,
        priority=_priority(template, labels),
        priority_class_name=template.priority_class_name,
        expires=_expires(meta, spec, created),
        once=spec.allocate_once is not False,
        restricted=spec.allocate_policy == "Restricted",
        unschedulable=spec.unschedulable,
        taints=tuple(Taint(one.key, one.value, one.effect) for one in spec.taints or ()),
        labels=labels,
        order=_integer(labels.get(keys.RESERVATION_ORDER_LABEL, "")) or 0,
        phase=said.phase,
        node=said.node_name,
        unheeded=tuple(_unheeded(spec, meta.annotations or {})),
        status=msgspec.json.decode(text),
    )


def _owner(one: _Owner) -> PodOwner:
    pod, by = one.object or _Object(), one.controller
    controller = ControllerRef(by.kind, by.name, by.uid, by.api_version, by.namespace) if by else None
    selector = selector_of(one.label_selector) if one.label_selector is not None else None
    return PodOwner(pod.uid, pod.name, pod.namespace, controller, selector)


def _priority(template: _TemplateSpec, labels: Mapping[str, str]) -> int | None:
    if template.priority is not None:
        return template.priority
    return _integer(labels.get(keys.KOORDINATOR_PRIORITY_LABEL, ""))


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _expires(meta: wire.FullMetadata, spec: _Spec, created: float) -> float | None:
    """The end, whichever comes first; a ttl of 0 is none, whatever expires says."""
    seconds = (
        DEFAULT_TTL_SECONDS
        if spec.ttl is None and spec.expires is None
        else seconds_of(_KIND, meta, "spec.ttl", spec.ttl)
    )
    if seconds == 0:
        return None
    ends = [spec.expires.timestamp()] if spec.expires else []
    if seconds is not None and created:
        ends.append(created + seconds)
    return min(ends, default=None)


def seconds_of(kind: str, meta: wire.FullMetadata, field: str, text: str | None) -> float | None:
    """A duration as Go writes it; None where there is none. DecodeError names the field."""
    if text is None:
        return None
    if not _DURATION.fullmatch(text):
        raise DecodeError(kind, key_of(meta), field, text, "write a duration such as 24h or 1h30m")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


def _unheeded(spec: _Spec, annotations: Mapping[str, str]) -> Iterator[str]:
    """What is stated and not honoured: nobody must find out only when it counts."""
    template = spec.template.spec
    if spec.pre_allocation:
        yield "spec.preAllocation: it waits for free capacity like any other"
    if template.topology_spread_constraints:
        yield "spec.template.spec.topologySpreadConstraints: they do not place it"
    affinity = template.affinity
    if affinity is not None and (affinity.pod_affinity or affinity.pod_anti_affinity):
        yield "spec.template.spec.affinity: only nodeAffinity places it"
    if any(port.host_port for one in template.containers or () for port in one.ports or ()):
        yield "spec.template.spec.containers.ports: hostPort is not reserved"
    if any(one.controller and one.controller.controller is False for one in spec.owners):
        yield "spec.owners.controller.controller: only the owner that controls a pod is looked at"
    for name in (keys.RESERVATION_RESTRICTED_ANNOTATION, keys.RESERVATION_RESIZE_ANNOTATION):
        if name in annotations:
            yield f"metadata.annotations[{name}]: it changes nothing"
