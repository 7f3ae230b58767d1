"""CapacityBuffers (autoscaling.x-k8s.io) and the PodTemplates that they name: written, and read back.

https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/proposals/buffers.md
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

import msgspec

from adapters.api import POD_TEMPLATES, POLICIES, Resource
from adapters.kubernetes.wire import UNREADABLE, DecodeError, Metadata, key_of
from qos import keys, quantity
from qos.cluster.objects import (
    Demand,
    NodePredicate,
    NodeSelectorTerm,
    Requirement,
    Spread,
    Terms,
    Toleration,
)
from qos.cluster.spreading import labels_of

STRATEGY: Final = "buffer.x-k8s.io/active-capacity"
"""Room on nodes that run; the one strategy that all autoscalers have."""
READY: Final = "ReadyForProvisioning"
PROVISIONING: Final = "Provisioning"
MOST_REPLICAS: Final = 2**31 - 1
_OWNERS_KIND: Final = POLICIES.kind
_PREFIX: Final = "j10ce-"
_LONGEST_NAME: Final = 253
_MOST_TERMS: Final = 64
_NO_END: Final = 1_000_000
"""More nodes than there are: while there are fewer, none may have more than maxSkew."""
_LATER: Final = frozenset(keys.BANDWIDTHS.values())
"""What a node has only once its agent says so: asked for, no node that is still to be made would ever do."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The policy that a buffer is for, and that its objects go with."""

    namespace: str
    name: str
    uid: str

    @property
    def key(self) -> str:
        """namespace/name of its objects."""
        return f"{self.namespace}/{self.object_name}"

    @property
    def object_name(self) -> str:
        """The name of its CapacityBuffer and its PodTemplate."""
        if len(self.name) <= _LONGEST_NAME - len(_PREFIX):
            return f"{_PREFIX}{self.name}"
        digest = hashlib.sha256(self.name.encode()).hexdigest()[:16]
        return f"{_PREFIX}{digest}"


@dataclass(frozen=True, slots=True)
class Told:
    """A condition of a buffer, as an autoscaler wrote it."""

    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A CapacityBuffer or PodTemplate of ours. `content`: what of its spec is ours to say.

    `owner`: the UID of the policy that owns it. `conditions`: of a buffer, by type.
    """

    key: str
    uid: str
    resource_version: str
    owner: str
    content: Mapping[str, Any]
    conditions: Mapping[str, Told]


def buffer(owner: Owner, resource: Resource, replicas: int) -> dict[str, Any]:
    """A CapacityBuffer of so many pods of the policy's PodTemplate, in the version that is served."""
    return {
        "apiVersion": f"{resource.group}/{resource.version}",
        "kind": resource.kind,
        "metadata": _metadata(owner),
        "spec": buffer_content(owner, replicas),
    }


def buffer_content(owner: Owner, replicas: int) -> dict[str, Any]:
    """Its spec."""
    return {
        "provisioningStrategy": STRATEGY,
        "podTemplateRef": {"name": owner.object_name},
        "replicas": min(replicas, MOST_REPLICAS),
    }


def pod_template(owner: Owner, content: Mapping[str, Any]) -> dict[str, Any]:
    """A PodTemplate; no pod is ever made of it."""
    template = {"metadata": {"labels": content["labels"]}, "spec": content["spec"]}
    metadata = _metadata(owner)
    return {"apiVersion": "v1", "kind": POD_TEMPLATES.kind, "metadata": metadata, "template": template}


def _metadata(owner: Owner) -> dict[str, Any]:
    reference = {
        "apiVersion": keys.API_VERSION,
        "kind": _OWNERS_KIND,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
    }
    return {
        "namespace": owner.namespace,
        "name": owner.object_name,
        "labels": {keys.BUFFER_LABEL: "true"},
        "ownerReferences": [reference],
    }


def slot_content(demand: Demand) -> dict[str, Any] | None:
    """One slot as a pod: its requests, where it may lie, how slots are spread; None: no node may hold it.

    The preferences of its pods are left out, and volumes of each pod's own: autoscalers ask no more of a
    node than the ledger does, but for those.
    """
    terms = _node_terms(demand.where)
    if terms is not None and not terms:
        return None
    amounts = {
        name: quantity.render(name, amount)
        for name, amount in sorted(demand.vector.items())
        if name != keys.PODS and name not in _LATER
    }
    # The API server wants limit = request of what cannot be overcommitted.
    whole = {name: value for name, value in amounts.items() if _is_whole(name)}
    resources: dict[str, Any] = {"requests": amounts} | ({"limits": whole} if whole else {})
    spec: dict[str, Any] = {"containers": [{"name": "slot", "image": "slot", "resources": resources}]}
    spread, apart, together = _spread(demand)
    affinity: dict[str, Any] = {}
    if terms is not None:
        required = {"nodeSelectorTerms": [_term(one) for one in terms]}
        affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    for name, between in (("podAffinity", together), ("podAntiAffinity", apart)):
        if between:
            affinity[name] = {"requiredDuringSchedulingIgnoredDuringExecution": between}
    optional = {
        "nodeSelector": dict(demand.where.node_selector),
        "affinity": affinity,
        "tolerations": [_toleration(one) for one in demand.where.tolerations],
        "topologySpreadConstraints": spread,
    }
    spec |= {name: value for name, value in optional.items() if value}
    return {"labels": _labels(demand), "spec": spec}


def _is_whole(resource: str) -> bool:
    return "/" in resource or resource.startswith(keys.HUGEPAGES_PREFIX)


def _labels(demand: Demand) -> dict[str, str]:
    """Labels by which the policy, and what spreads its pods, find such a pod as far as values are named."""
    selectors = [one.selector for one in demand.spread if one.itself] + [demand.selector]
    return {key: value for selector in selectors for key, value in labels_of(selector).items()}


def _node_terms(where: NodePredicate) -> Terms | None:
    """The required affinity together with where the volumes are that all its pods mount; None: anywhere."""
    stated: list[Terms] = [*([] if where.affinity is None else [where.affinity]), *where.volumes]
    if not stated:
        return None
    count = 1
    for terms in stated:
        count *= len(terms)
    if count > _MOST_TERMS:  # rather too many nodes than a template as long as a book
        return where.affinity
    return tuple(_both(parts) for parts in product(*stated))


def _both(parts: Iterable[NodeSelectorTerm]) -> NodeSelectorTerm:
    whole = NodeSelectorTerm()
    for one in parts:
        whole = replace(whole, labels=whole.labels + one.labels, fields=whole.fields + one.fields)
    return whole


def _term(one: NodeSelectorTerm) -> dict[str, Any]:
    found = {"matchExpressions": one.labels, "matchFields": one.fields}
    return {name: [_requirement(each) for each in some] for name, some in found.items() if some}


def _requirement(one: Requirement) -> dict[str, Any]:
    values = {"values": list(one.values)} if one.values else {}
    return {"key": one.key, "operator": one.operator} | values


def _toleration(one: Toleration) -> dict[str, Any]:
    fields = {"key": one.key, "operator": one.operator, "value": one.value, "effect": one.effect}
    return {name: value for name, value in fields.items() if value}


def _spread(demand: Demand) -> tuple[list[Any], list[Any], list[Any]]:
    """topologySpreadConstraints, and the required terms of pod anti-affinity and affinity."""
    even: list[dict[str, Any]] = []
    apart: list[dict[str, Any]] = []
    together: list[dict[str, Any]] = []
    for one in demand.spread:
        term = {"topologyKey": one.key, "labelSelector": _selector(one.selector.requirements)}
        if one.apart:
            apart.append(term)
        elif one.together:
            together.append(term)
        elif one.required:
            even.append(term | _evenly(one))
    if demand.max_slots_per_node is not None:
        # As constraints have it: no node may have more than that of them, filled or not.
        limit = Spread(keys.HOSTNAME_LABEL, demand.max_slots_per_node, demand.selector, min_domains=_NO_END)
        term = {"topologyKey": limit.key, "labelSelector": _selector(demand.selector.requirements)}
        even.append(term | _evenly(limit))
    return even, apart, together


def _evenly(one: Spread) -> dict[str, Any]:
    found: dict[str, Any] = {"maxSkew": one.max_skew, "whenUnsatisfiable": "DoNotSchedule"}
    if one.min_domains > 1:
        found["minDomains"] = one.min_domains
    if not one.honor_affinity:
        found["nodeAffinityPolicy"] = "Ignore"
    if one.honor_taints:
        found["nodeTaintsPolicy"] = "Honor"
    return found


def _selector(requirements: Iterable[Requirement]) -> dict[str, Any]:
    return {"matchExpressions": [_requirement(one) for one in requirements]}


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _Status(msgspec.Struct):
    conditions: list[_Condition] | None = None


class _Ref(msgspec.Struct):
    name: str = ""


class _BufferSpec(msgspec.Struct, rename="camel"):
    provisioning_strategy: str = ""
    pod_template_ref: _Ref | None = None
    replicas: int | None = None


class _Buffer(msgspec.Struct):
    metadata: Metadata
    spec: _BufferSpec = msgspec.field(default_factory=_BufferSpec)
    status: _Status = msgspec.field(default_factory=_Status)


class _TemplateMetadata(msgspec.Struct):
    labels: dict[str, str] | None = None


class _Template(msgspec.Struct):
    metadata: _TemplateMetadata = msgspec.field(default_factory=_TemplateMetadata)
    spec: dict[str, Any] = msgspec.field(default_factory=dict)


class _PodTemplate(msgspec.Struct):
    metadata: Metadata
    template: _Template = msgspec.field(default_factory=_Template)


_buffer = msgspec.json.Decoder(_Buffer).decode
_pod_template = msgspec.json.Decoder(_PodTemplate).decode
_SAID: Final = ("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints")


def seen_buffer(raw: bytes) -> Seen | None:
    """A CapacityBuffer as it is there; None: it is not ours. Raises DecodeError."""
    try:
        one = _buffer(raw)
    except UNREADABLE as error:
        raise DecodeError("CapacityBuffer", "", "object", "", str(error)) from error
    content: dict[str, Any] = {
        "provisioningStrategy": one.spec.provisioning_strategy,
        "podTemplateRef": {"name": one.spec.pod_template_ref.name if one.spec.pod_template_ref else ""},
        "replicas": one.spec.replicas,
    }
    told = {each.type: Told(each.status, each.reason, each.message) for each in one.status.conditions or ()}
    return _seen(one.metadata, content, told)


def seen_template(raw: bytes) -> Seen | None:
    """A PodTemplate as it is there; None: it is not ours. Raises DecodeError.

    What the API server fills in of a pod's spec is left out.
    """
    try:
        one = _pod_template(raw)
    except UNREADABLE as error:
        raise DecodeError("PodTemplate", "", "object", "", str(error)) from error
    containers = [*_containers(one.template.spec)]
    spec = {name: one.template.spec[name] for name in _SAID if one.template.spec.get(name)}
    content = {"labels": one.template.metadata.labels or {}, "spec": {"containers": containers} | spec}
    return _seen(one.metadata, content, {})


def _containers(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for one in spec.get("containers") or ():
        resources = one.get("resources") or {}
        shown = {kind: resources[kind] for kind in ("requests", "limits") if resources.get(kind)}
        yield {"name": one.get("name"), "image": one.get("image"), "resources": shown}


def _seen(meta: Metadata, content: Mapping[str, Any], conditions: Mapping[str, Told]) -> Seen | None:
    owners = [one.uid for one in meta.owner_references or () if one.controller and one.kind == _OWNERS_KIND]
    if not owners or (meta.labels or {}).get(keys.BUFFER_LABEL) != "true":
        return None
    return Seen(key_of(meta), meta.uid, meta.resource_version, owners[0], content, conditions)
