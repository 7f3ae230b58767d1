"""Placeholders as the API server has them: written, and read again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from adapters.kubernetes import wire
from adapters.kubernetes.buffers import slot_content
from adapters.kubernetes.templates import placement_of
from adapters.kubernetes.wire import read
from qos import keys
from qos.cluster.objects import Demand, NodePredicate
from qos.cluster.placeholders import Placeholder

_NEVER: Final = "never-there"
"""The ConfigMap that no placeholder finds: so kubelet pulls nothing and starts nothing."""
_USER: Final = 65534


class _Marks(msgspec.Struct):
    of: str = msgspec.field(default="", name=keys.PLACEHOLDER_OF_ANNOTATION)
    form: str = msgspec.field(default="", name=keys.PLACEHOLDER_FORM_ANNOTATION)
    node: str = msgspec.field(default="", name=keys.PLACEHOLDER_NODE_ANNOTATION)


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    uid: str = ""
    resource_version: str = ""
    annotations: _Marks | None = None


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    priority: int | None = None


class _Waits(msgspec.Struct, rename="camel"):
    nominated_node_name: str = ""


class _Object(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec
    status: _Waits | None = None


class _Status(msgspec.Struct):
    reason: str = ""


class _Ended(msgspec.Struct):
    status: _Status


class _Gate(msgspec.Struct):
    name: str


class _GatedSpec(msgspec.Struct, rename="camel"):
    scheduling_gates: list[_Gate] | None = None


class _Gated(msgspec.Struct):
    spec: _GatedSpec


class _Template(msgspec.Struct):
    spec: wire.TemplateSpec


_OBJECT = msgspec.json.Decoder(_Object)
_ENDED = msgspec.json.Decoder(_Ended)
_GATED = msgspec.json.Decoder(_Gated)
_TEMPLATE = msgspec.json.Decoder(_Template)


def placeholder(raw: bytes) -> Placeholder:
    """A placeholder. DecodeError. The namespace is the caller's to compare."""
    obj = read(_OBJECT, "Pod", raw)
    meta, marks = obj.metadata, obj.metadata.annotations or _Marks()
    node, nominated = obj.spec.node_name, obj.status.nominated_node_name if obj.status else ""
    waits = not node and bool(marks.node) and nominated == marks.node
    return Placeholder(
        meta.uid,
        meta.name,
        marks.of,
        marks.form,
        node or marks.node,
        bound=bool(node),
        roams=not marks.node,
        nominated=waits,
        priority=obj.spec.priority or 0,
        version=meta.resource_version,
    )


def ended_because(raw: bytes) -> str:
    """kubelet's reason for a pod that it refused or evicted, such as OutOfcpu. DecodeError."""
    return read(_ENDED, "Pod", raw).status.reason or "no reason given"


def gates(raw: bytes) -> tuple[str, ...]:
    """Names of a pod's schedulingGates. DecodeError."""
    return tuple(gate.name for gate in read(_GATED, "Pod", raw).spec.scheduling_gates or ())


def placement(raw: bytes) -> NodePredicate:
    """Where a pod may run, by its own words. DecodeError."""
    return placement_of(read(_TEMPLATE, "Pod", raw).spec)


def ungated(uid: str, gates: tuple[str, ...], annotations: Mapping[str, str]) -> dict[str, Any]:
    """The merge patch that takes our gate off a pod and leaves the others; with these annotations."""
    others = [{"name": name} for name in gates if name != keys.HAND_OVER_GATE]
    return {
        "metadata": {"uid": uid, "annotations": dict(annotations)},
        "spec": {"schedulingGates": others or None},
    }


def body(
    demand: Demand,
    name: str,
    node: str,
    *,
    namespace: str,
    form: str,
    priority_class: str,
    scheduler: str,
    image: str = "",
) -> dict[str, Any]:
    """A placeholder of a demand that kube-scheduler is to bind to this node, and to no other; "": anywhere.

    It runs the image, or never starts without one: it mounts a ConfigMap that is not there. It is deleted at
    once, evicts nobody, and is admitted under Pod Security's `restricted`.
    """
    mounts = [] if image else [{"name": _NEVER, "mountPath": f"/{_NEVER}"}]
    volumes = [] if image else [{"name": _NEVER, "configMap": {"name": _NEVER}}]
    requests = {name: _quantity(name, amount) for name, amount in demand.vector.items() if name != keys.PODS}
    limits = {name: amount for name, amount in requests.items() if _must_be_limited(name)}
    annotations = {keys.PLACEHOLDER_OF_ANNOTATION: demand.key, keys.PLACEHOLDER_FORM_ANNOTATION: form}
    if node:
        annotations[keys.PLACEHOLDER_NODE_ANNOTATION] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {keys.PLACEHOLDER_LABEL: "true"},
            "annotations": annotations,
        },
        "spec": (_there(node) if node else _anywhere(demand))
        | {
            "schedulerName": scheduler,
            "priorityClassName": priority_class,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "tolerations": [
                {
                    field: value
                    for field, value in (
                        ("key", one.key),
                        ("operator", one.operator),
                        ("value", one.value),
                        ("effect", one.effect),
                    )
                    if value
                }
                for one in demand.where.tolerations
            ],
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": _USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "placeholder",
                    "image": image or "placeholder",
                    "imagePullPolicy": "IfNotPresent",
                    "resources": {"requests": requests, "limits": limits},
                    "volumeMounts": mounts,
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                        "readOnlyRootFilesystem": True,
                    },
                }
            ],
            "volumes": volumes,
        },
    }


def _there(node: str) -> dict[str, Any]:
    where = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    selected = {"nodeSelectorTerms": [where]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selected}}}


def _anywhere(demand: Demand) -> dict[str, Any]:
    """Where the demand's slots may lie."""
    spec = (slot_content(demand) or {}).get("spec", {})
    return {name: spec[name] for name in ("nodeSelector", "affinity") if name in spec}


def _quantity(name: str, amount: int) -> str:
    return f"{amount}m" if name == keys.CPU else str(amount)


def _must_be_limited(name: str) -> bool:
    """Extended resources and hugepages have requests only with the same limit."""
    return name not in (keys.CPU, keys.MEMORY, keys.EPHEMERAL_STORAGE)
