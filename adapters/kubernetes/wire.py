"""Kubernetes JSON as far as we read it: typed partial decoding skips everything else in the bytes.

Fields that Go may send as null say so. These records are short-lived; decode.py turns them into
qos.cluster.objects. What pods of one template have in common stays as it is written (Raw): those bytes are
the key under which what is made of them is kept.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from qos import keys

T = TypeVar("T")

Amounts: TypeAlias = dict[str, str | int | float]


LONGEST_KEPT: Final = 4096
"""Bytes. Longer parts are decoded anew each time: they are nobody's template, and who makes thousands of pods
of a hundred kilobytes must not fill our memory with what was in them.
"""

UNREADABLE: Final = (msgspec.MsgspecError, RecursionError)
"""What a decoder raises: RecursionError where a text, an annotation say, is nested a thousand deep."""

ABSENT: Final = msgspec.Raw()
"""A part that is not there; null arrives as the bytes `null`."""


class DecodeError(Exception):
    """An object that cannot be read; the message names the object, the field and the value."""

    def __init__(self, kind: str, key: str, field: str, value: object, why: str) -> None:
        super().__init__(f"{kind} {key}: {field}: {value!r}: {why}")
        self.kind = kind
        self.key = key
        self.field = field
        self.value = value


class _Wire(msgspec.Struct, rename="camel", gc=False):
    pass


class OwnerReference(_Wire):
    """An entry of metadata.ownerReferences."""

    kind: str
    name: str
    uid: str
    controller: bool = False
    api_version: str = ""


class Annotations(_Wire):
    """The few annotations that mean something to us."""

    bound_by: str = msgspec.field(default="", name=keys.BOUND_BY_ANNOTATION)
    mirror: str | None = msgspec.field(default=None, name=keys.MIRROR_ANNOTATION)
    policy: str | None = msgspec.field(default=None, name=keys.POLICY_ANNOTATION)
    reservation: str = msgspec.field(default="", name=keys.RESERVATION_ALLOCATED_ANNOTATION)
    reservation_affinity: str | None = msgspec.field(default=None, name=keys.RESERVATION_AFFINITY_ANNOTATION)


class Identity(_Wire):
    """The part of ObjectMeta that names an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""


class Metadata(Identity):
    """ObjectMeta."""

    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: Annotations | None = None
    owner_references: list[OwnerReference] | None = None


class FullMetadata(Identity):
    """ObjectMeta with every annotation, of kinds whose annotations say much."""

    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class PodMetadata(Identity):
    """A pod's ObjectMeta."""

    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: msgspec.Raw = ABSENT
    annotations: Annotations | None = None
    owner_references: msgspec.Raw = ABSENT


class Object(_Wire):
    """Any object: its metadata."""

    metadata: Metadata


class Resources(_Wire):
    """ResourceRequirements."""

    requests: Amounts | None = None
    limits: Amounts | None = None


class Container(_Wire):
    """A container, as far as its request goes; `resources`: Resources as written."""

    name: str = ""
    resources: msgspec.Raw = ABSENT
    restart_policy: str | None = None


class PodSpec(_Wire):
    """A pod's spec; `resources`: Resources as written, `overhead`: Amounts, `tolerations`: of Toleration."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    resources: msgspec.Raw = ABSENT
    overhead: msgspec.Raw = ABSENT
    node_name: str = ""
    priority: int | None = None
    scheduler_name: str = ""
    tolerations: msgspec.Raw = ABSENT


class Condition(_Wire):
    """A condition of a pod or a node."""

    type: str
    status: str = ""
    reason: str = ""
    last_transition_time: str | None = None


class ContainerStatus(_Wire):
    """What the kubelet really set (Resources as written), and what it allocated to a container (Amounts)."""

    name: str = ""
    resources: msgspec.Raw = ABSENT
    allocated_resources: msgspec.Raw = ABSENT


class ClaimStatus(_Wire):
    """Node-allocatable resources that a resource claim takes."""

    resources: Amounts | None = None


class PodStatus(_Wire):
    """A pod's status; resources as in ContainerStatus, the claims' as a list of ClaimStatus, as written."""

    phase: str = ""
    nominated_node_name: str = ""
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    node_allocatable_resource_claim_statuses: msgspec.Raw = ABSENT
    resources: msgspec.Raw = ABSENT
    allocated_resources: msgspec.Raw = ABSENT
    resize: str = ""


class PodObject(_Wire):
    """A Pod; kube-scheduler's filter body embeds one."""

    metadata: PodMetadata
    spec: PodSpec
    status: PodStatus | None = None


class AskedSpec(PodSpec):
    """A pod's spec with what says which of the nodes it fits on it would rather have, as written."""

    affinity: msgspec.Raw = ABSENT
    topology_spread_constraints: msgspec.Raw = ABSENT
    volumes: msgspec.Raw = ABSENT
    resource_claims: msgspec.Raw = ABSENT


class AskedPod(PodObject):
    """A Pod as kube-scheduler asks about it."""

    spec: AskedSpec


class Taint(_Wire):
    """A node's taint."""

    key: str
    effect: str
    value: str = ""


class NodeSpec(_Wire):
    """A node's spec."""

    taints: list[Taint] | None = None
    unschedulable: bool = False


class NodeStatus(_Wire):
    """A node's status."""

    allocatable: Amounts | None = None
    conditions: list[Condition] | None = None


class NodeObject(_Wire):
    """A Node."""

    metadata: Metadata
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class Requirement(_Wire):
    """An expression of a selector."""

    key: str
    operator: str
    values: list[str] | None = None


class LabelSelector(_Wire):
    """A label selector."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[Requirement] | None = None


class NodeSelectorTerm(_Wire):
    """A term of a node selector."""

    match_expressions: list[Requirement] | None = None
    match_fields: list[Requirement] | None = None


class NodeSelector(_Wire):
    """requiredDuringSchedulingIgnoredDuringExecution of a node affinity."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class NodeAffinity(_Wire):
    """A node affinity: the required part."""

    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(_Wire):
    """A term of a pod affinity or anti-affinity."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class PodAffinity(_Wire):
    """A pod affinity or anti-affinity: the required part."""

    required: list[PodAffinityTerm] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(_Wire):
    """A pod's affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(_Wire):
    """One constraint on how pods lie over a label's values; upstream's defaults."""

    topology_key: str
    max_skew: int
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class Toleration(_Wire):
    """A toleration."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class Port(_Wire):
    """A container's port."""

    container_port: int = 0
    host_port: int = 0


class TemplateContainer(Container):
    """A container of a template."""

    ports: list[Port] | None = None


class ClaimName(_Wire):
    """A volume's PersistentVolumeClaim."""

    claim_name: str


class PodVolume(_Wire):
    """A pod's volume, if it is a PersistentVolumeClaim."""

    name: str
    claim: ClaimName | None = msgspec.field(default=None, name="persistentVolumeClaim")


class VolumeClaimSpec(_Wire):
    """A PersistentVolumeClaim's spec."""

    volume_name: str = ""
    storage_class_name: str | None = None


class VolumeClaimObject(_Wire):
    """A PersistentVolumeClaim, or a template of one."""

    metadata: Identity
    spec: VolumeClaimSpec


class Ordinals(_Wire):
    """Of a StatefulSet: the number of its first pod."""

    start: int = 0


class TemplateSpec(_Wire):
    """A pod template's spec: requests, and where its pods may run."""

    containers: list[TemplateContainer] | None = None
    init_containers: list[TemplateContainer] | None = None
    resources: msgspec.Raw = ABSENT
    overhead: msgspec.Raw = ABSENT
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None
    volumes: list[PodVolume] | None = None
    host_network: bool = False


class Template(_Wire):
    """A pod template."""

    spec: TemplateSpec
    metadata: Metadata | None = None


class WorkloadSpec(_Wire):
    """The spec of a Deployment, StatefulSet, ReplicaSet or DaemonSet."""

    template: Template
    replicas: int | None = None
    volume_claim_templates: list[VolumeClaimObject] | None = None
    ordinals: Ordinals | None = None


class WorkloadObject(_Wire):
    """A Deployment, StatefulSet, ReplicaSet or DaemonSet."""

    metadata: Metadata
    spec: WorkloadSpec


class PriorityClassObject(_Wire):
    """A PriorityClass."""

    metadata: Metadata
    value: int
    global_default: bool = False


def read(decoder: msgspec.json.Decoder[T], kind: str, raw: bytes) -> T:
    """The object in the bytes; DecodeError when it is not one."""
    try:
        return decoder.decode(raw)
    except UNREADABLE as error:
        raise _explained(kind, raw, str(error)) from None


def written(raw: msgspec.Raw) -> bytes:
    """A part as it is written, apart from the message it came in; empty when it is absent or null."""
    if raw is ABSENT:
        return b""
    text = bytes(raw)
    return b"" if text == b"null" else text


def key_of(metadata: Identity) -> str:
    """namespace/name, or the name alone where there is no namespace."""
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


def _explained(kind: str, raw: bytes, why: str) -> DecodeError:
    """Decode once more, untyped, to name the object and the value: errors are rare."""
    try:
        tree = msgspec.json.decode(raw)
    except UNREADABLE:
        return DecodeError(kind, "(unreadable)", "JSON", raw[:80], why)
    why, _, path = why.partition(" - at `$")
    path = path.strip("`.")
    return DecodeError(kind, _name_in(tree), path or "object", _value_at(tree, path), why)


def _name_in(tree: Any) -> str:
    metadata = tree.get("metadata") if isinstance(tree, dict) else None
    if not isinstance(metadata, dict):
        return "(unnamed)"
    namespace, name = metadata.get("namespace"), metadata.get("name")
    return f"{namespace}/{name}" if namespace else str(name)


def _value_at(tree: Any, path: str) -> object:
    """The value at a msgspec path such as spec.containers[...].name, or the nearest one to it."""
    for step in path.split(".") if path else ():
        name, _, index = step.partition("[")
        if not isinstance(tree, dict) or name not in tree:
            return _shortened(tree)
        tree = tree[name]
        if index:
            place = index.rstrip("]")
            if not place.isdecimal() or not isinstance(tree, list):
                return _shortened(tree)
            tree = tree[int(place)]
    return _shortened(tree)


def _shortened(value: object) -> object:
    text = repr(value)
    return value if len(text) <= 120 else text[:120] + "..."
