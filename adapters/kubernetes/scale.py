"""Scale targets of any kind: which resource a kind is, pod templates, the scale subresource; and Jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

from adapters.api import Resource
from adapters.kubernetes import wire
from adapters.kubernetes.templates import workload_of
from adapters.kubernetes.wire import DecodeError, read
from qos.cluster.policy import ScaleTarget, Workload

_FINISHED = frozenset({"Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"})
"""Conditions of a Job that gets no new pods; the last two foretell the first two (KEP-3998, 3850)."""


class _Served(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool = False


class _ServedList(msgspec.Struct):
    resources: list[_Served] | None = None


class _Parent(msgspec.Struct):
    metadata: wire.Metadata
    spec: msgspec.Raw = wire.ABSENT


class _Templated(msgspec.Struct):
    template: wire.Template


class _ScaleSpec(msgspec.Struct):
    replicas: int = 0


class _ScaleStatus(msgspec.Struct):
    selector: str = ""


class _Scale(msgspec.Struct):
    metadata: wire.Metadata
    spec: _ScaleSpec = msgspec.field(default_factory=_ScaleSpec)
    status: _ScaleStatus = msgspec.field(default_factory=_ScaleStatus)


class _Condition(msgspec.Struct):
    type: str
    status: str


class _JobSpec(msgspec.Struct):
    template: wire.Template
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool = False


class _JobStatus(msgspec.Struct):
    active: int = 0
    succeeded: int = 0
    conditions: list[_Condition] | None = None


class _JobObject(msgspec.Struct):
    metadata: wire.Metadata
    spec: _JobSpec
    status: _JobStatus = msgspec.field(default_factory=_JobStatus)


_SERVED = msgspec.json.Decoder(_ServedList)
_PARENT = msgspec.json.Decoder(_Parent)
_TEMPLATED = msgspec.json.Decoder(_Templated)
_SCALE = msgspec.json.Decoder(_Scale)
_JOB = msgspec.json.Decoder(_JobObject)


@dataclass(frozen=True, slots=True)
class Scaled:
    """One object that can be scaled: `workload` as its template has it, without replicas; `generation`:
    another one is a reason to read its scale.
    """

    generation: str
    workload: Workload


def resource_of(target: ScaleTarget, raw: bytes) -> tuple[Resource | None, bool]:
    """The resource that a kind is, by the APIResourceList of its version, and whether it has /scale.

    None: there is no such kind. DecodeError.
    """
    served = read(_SERVED, "APIResourceList", raw).resources or []
    found = next((one for one in served if one.kind == target.kind and "/" not in one.name), None)
    if found is None:
        return None, False
    resource = Resource(target.group, target.version, found.name, target.kind, found.namespaced)
    return resource, any(one.name == f"{found.name}/scale" for one in served)


def has_kind(resource: Resource, raw: bytes) -> bool:
    """Whether the APIResourceList of a resource's version has that resource: others may be in its group.
    DecodeError.
    """
    served = read(_SERVED, "APIResourceList", raw).resources or []
    return any((one.name, one.kind) == (resource.plural, resource.kind) for one in served)


def scaled(target: ScaleTarget, raw: bytes) -> Scaled:
    """An object of a kind that has /scale, with its pod template if spec.template is one. DecodeError."""
    obj = read(_PARENT, target.kind, raw)
    meta = obj.metadata
    bare = Workload(meta.namespace, target.full_kind, meta.name, 0, {}, selected=None, templated=False)
    try:
        template = _TEMPLATED.decode(wire.written(obj.spec) or b"{}").template
        made = workload_of(target.full_kind, meta, wire.WorkloadSpec(template=template), 0)
    except (msgspec.MsgspecError, DecodeError):
        made = bare  # spec.template is no pod template, or none that we can read: as if there were none
    return Scaled(str(meta.generation or meta.resource_version), made)


def with_scale(of: Workload, raw: bytes) -> Workload:
    """The workload with the replicas of its Scale; without a template, its selector's labels. DecodeError."""
    scale = read(_SCALE, "Scale", raw)
    if of.templated:
        return replace(of, replicas=scale.spec.replicas)
    return replace(of, replicas=scale.spec.replicas, selected=_labels(scale.status.selector))


def _labels(selector: str) -> Mapping[str, str] | None:
    """The labels that a selector such as a=b,c==d names with one value; None where it says nothing so."""
    pairs = (part.replace("==", "=").split("=") for part in selector.split(",") if "!=" not in part)
    labels = {pair[0].strip(): pair[1].strip() for pair in pairs if len(pair) == 2}
    return labels or None


def job(raw: bytes) -> Workload:
    """A Job: as many replicas as it runs pods at a time, none once it has finished or while it is suspended.

    Upstream: manageJob in pkg/controller/job. DecodeError.
    """
    obj = read(_JOB, "Job", raw)
    spec = wire.WorkloadSpec(template=obj.spec.template)
    return workload_of("Job", obj.metadata, spec, _wanted(obj.spec, obj.status))


def _wanted(spec: _JobSpec, status: _JobStatus) -> int:
    conditions = status.conditions or ()
    if spec.suspend or any(one.type in _FINISHED and one.status == "True" for one in conditions):
        return 0
    parallelism = 1 if spec.parallelism is None else spec.parallelism
    if spec.completions is None:  # a queue of work: after the first success nobody is started any more
        return min(parallelism, status.active) if status.succeeded else parallelism
    return max(0, min(parallelism, spec.completions - status.succeeded))
