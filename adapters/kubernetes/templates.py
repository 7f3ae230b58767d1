"""Pod templates: DaemonSets, and the workloads whose replicas are slots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from adapters.api import Resource
from adapters.kubernetes import wire
from adapters.kubernetes.requests import request_of
from adapters.kubernetes.wire import WorkloadObject, key_of, read
from qos import keys
from qos.cluster.objects import (
    DaemonSet,
    NodePredicate,
    NodeSelectorTerm,
    Requirement,
    Selector,
    Spread,
    Terms,
    Toleration,
)
from qos.cluster.policy import Autoscaler, ScaleTarget, Workload
from qos.cluster.selectors import matches
from qos.cluster.spreading import apart, counting, together
from qos.cluster.volumes import NO_MOUNTS, ClaimTemplate, Mounts


class _ScaleTarget(msgspec.Struct, rename="camel"):
    kind: str
    name: str
    api_version: str = ""


class _AutoscalerSpec(msgspec.Struct, rename="camel"):
    scale_target_ref: _ScaleTarget
    max_replicas: int


class _AutoscalerObject(msgspec.Struct):
    metadata: wire.Metadata
    spec: _AutoscalerSpec


class _WaitingSpec(wire.TemplateSpec, rename="camel"):
    preemption_policy: str = ""


class _WaitingPod(msgspec.Struct):
    spec: _WaitingSpec


_AUTOSCALER = msgspec.json.Decoder(_AutoscalerObject)
_POD = msgspec.json.Decoder(_WaitingPod)
_WORKLOAD = msgspec.json.Decoder(WorkloadObject)

_DAEMON_TOLERATIONS: Final = (
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)
_NO_POD: Final = Selector((Requirement("", "Never"),))
"""What no selector at all is upstream: it matches nothing."""
_HOST_NETWORK_TOLERATION: Final = ("network-unavailable", "NoSchedule")


def daemon_set(raw: bytes) -> DaemonSet:
    """A DaemonSet; `where` includes the tolerations that its controller adds to every pod. DecodeError."""
    obj = read(_WORKLOAD, "DaemonSet", raw)
    spec = obj.spec.template.spec
    added = [*_DAEMON_TOLERATIONS, *([_HOST_NETWORK_TOLERATION] if spec.host_network else [])]
    tolerations = [Toleration(keys.NODE_TAINT_PREFIX + name, "Exists", "", effect) for name, effect in added]
    return DaemonSet(
        uid=obj.metadata.uid,
        key=key_of(obj.metadata),
        requests=request_of("DaemonSet", obj.metadata, spec),
        where=placement_of(spec, tolerations),
    )


def autoscaler(raw: bytes) -> Autoscaler:
    """A HorizontalPodAutoscaler. DecodeError."""
    obj = read(_AUTOSCALER, "HorizontalPodAutoscaler", raw)
    ref = obj.spec.scale_target_ref
    target = ScaleTarget(ref.api_version, ref.kind, ref.name)
    return Autoscaler(obj.metadata.namespace, obj.metadata.name, target, obj.spec.max_replicas)


def workload(resource: Resource, raw: bytes) -> Workload:
    """A Deployment, StatefulSet or ReplicaSet; `selected` holds its template's labels. DecodeError."""
    obj = read(_WORKLOAD, resource.kind, raw)
    replicas = 1 if obj.spec.replicas is None else obj.spec.replicas
    return workload_of(resource.kind, obj.metadata, obj.spec, replicas)


def workload_of(kind: str, meta: wire.Metadata, spec: wire.WorkloadSpec, replicas: int) -> Workload:
    """So many replicas of a pod template; `kind`: ScaleTarget.full_kind. DecodeError."""
    template = spec.template
    return Workload(
        namespace=meta.namespace,
        kind=kind,
        name=meta.name,
        replicas=replicas,
        requests=request_of(kind, meta, template.spec),
        where=placement_of(template.spec),
        spread=_spread(meta.namespace, template),
        one_per_node=_one_per_node(meta.namespace, template),
        selected=_labels(template),
        mounts=_mounts(spec),
    )


def _mounts(spec: wire.WorkloadSpec) -> Mounts:
    """A claim template takes the place of the template's volume of the same name."""
    own = tuple(
        ClaimTemplate(one.metadata.name, one.spec.storage_class_name)
        for one in spec.volume_claim_templates or ()
    )
    names = {one.name for one in own}
    claims = (one.claim for one in spec.template.spec.volumes or () if one.name not in names)
    shared = dict.fromkeys(claim.claim_name for claim in claims if claim is not None)
    start = spec.ordinals.start if spec.ordinals is not None else 0
    return Mounts(tuple(shared), own, start) if own or shared else NO_MOUNTS


def where_of(raw: bytes) -> tuple[NodePredicate, bool]:
    """Where a pod may run, as far as its node selector, required node affinity and tolerations say it; and
    whether others may be evicted for its priority (preemptionPolicy).
    """
    spec = wire.read(_POD, "Pod", raw).spec
    return placement_of(spec), spec.preemption_policy != "Never"


def placement_of(spec: wire.TemplateSpec, more: Iterable[Toleration] = ()) -> NodePredicate:
    """Where the pods of a template may run; `more`: tolerations beside its own."""
    return NodePredicate(
        node_selector=tuple(sorted((spec.node_selector or {}).items())),
        affinity=_affinity(spec.affinity),
        tolerations=(
            *(Toleration(t.key, t.operator or "Equal", t.value, t.effect) for t in spec.tolerations or ()),
            *more,
        ),
    )


def _affinity(affinity: wire.Affinity | None) -> tuple[NodeSelectorTerm, ...] | None:
    """None when there is none."""
    if affinity is None or affinity.node_affinity is None or affinity.node_affinity.required is None:
        return None
    return terms_of(affinity.node_affinity.required)


def terms_of(selector: wire.NodeSelector) -> Terms:
    """A node selector's terms. One without expressions matches no node, so it is left out."""
    return tuple(
        NodeSelectorTerm(_requirements(term.match_expressions), _requirements(term.match_fields))
        for term in selector.node_selector_terms or ()
        if term.match_expressions or term.match_fields
    )


def _requirements(expressions: Iterable[wire.Requirement] | None) -> tuple[Requirement, ...]:
    return tuple(Requirement(e.key, e.operator, tuple(e.values or ())) for e in expressions or ())


def _labels(template: wire.Template) -> Mapping[str, str]:
    return (template.metadata.labels if template.metadata else None) or {}


def _one_per_node(namespace: str, template: wire.Template) -> bool:
    """True when two pods of the template cannot share a node: by anti-affinity, or by a port of the host."""
    spec = template.spec
    if any(p.host_port or (spec.host_network and p.container_port) for p in _ports(spec)):
        return True
    if spec.affinity is None or spec.affinity.pod_anti_affinity is None:
        return False
    terms = spec.affinity.pod_anti_affinity.required or ()
    return any(_refuses_itself(term, namespace, _labels(template)) for term in terms)


def _ports(spec: wire.TemplateSpec) -> Iterable[wire.Port]:
    return (port for container in spec.containers or () for port in container.ports or ())


def _refuses_itself(term: wire.PodAffinityTerm, namespace: str, labels: Mapping[str, str]) -> bool:
    """A namespace selector is taken to admit the template's namespace, whose labels are not known here."""
    if term.topology_key != keys.HOSTNAME_LABEL or term.label_selector is None or term.mismatch_label_keys:
        return False
    if term.namespaces and namespace not in term.namespaces and term.namespace_selector is None:
        return False
    return matches(selector_of(term.label_selector), labels)


def _spread(namespace: str, template: wire.Template) -> tuple[Spread, ...]:
    labels = _labels(template)
    stated = template.spec.topology_spread_constraints or ()
    spread = [spread_of(one, _narrowed(one.label_selector, one.match_label_keys, labels)) for one in stated]
    between = (*_apart(namespace, template), *_together(namespace, template))
    return counting([*spread, *between], labels)


def _apart(namespace: str, template: wire.Template) -> Iterable[Spread]:
    """Required anti-affinity; what is _one_per_node is left out."""
    affinity, labels = template.spec.affinity, _labels(template)
    for term in _own_terms(namespace, affinity.pod_anti_affinity if affinity else None):
        if not _refuses_itself(term, namespace, labels):
            yield apart(term.topology_key, _narrowed(term.label_selector, term.match_label_keys, labels))


def _together(namespace: str, template: wire.Template) -> Iterable[Spread]:
    """Required affinity: it is to pods that all its terms select, by each term's key."""
    affinity, labels = template.spec.affinity, _labels(template)
    terms = [*_own_terms(namespace, affinity.pod_affinity if affinity else None)]
    selected = (_narrowed(term.label_selector, term.match_label_keys, labels) for term in terms)
    both = Selector(tuple(requirement for one in selected for requirement in one.requirements))
    return (together(term.topology_key, both) for term in terms)


def _own_terms(namespace: str, affinity: wire.PodAffinity | None) -> Iterable[wire.PodAffinityTerm]:
    """The required terms for pods of the template's own namespace, whose labels are not known here."""
    for term in (affinity.required if affinity else None) or ():
        elsewhere = term.namespaces and namespace not in term.namespaces and term.namespace_selector is None
        if not elsewhere and not term.mismatch_label_keys:
            yield term


def _narrowed(
    selector: wire.LabelSelector | None, keys: Iterable[str] | None, labels: Mapping[str, str]
) -> Selector:
    """The selector; by matchLabelKeys only of pods that have the same values. Keys that the template does not
    state are added to pods by controllers, a value for each revision: all revisions are counted then.
    """
    if selector is None:
        return _NO_POD
    same = (Requirement(key, "In", (labels[key],)) for key in keys or () if key in labels)
    return Selector((*selector_of(selector).requirements, *same))


def spread_of(one: wire.TopologySpreadConstraint, selector: Selector) -> Spread:
    """A constraint that counts the pods of this selector; upstream's defaults."""
    return Spread(
        key=one.topology_key,
        max_skew=one.max_skew,
        selector=selector,
        required=one.when_unsatisfiable == "DoNotSchedule",
        min_domains=one.min_domains or 1,
        honor_affinity=one.node_affinity_policy != "Ignore",
        honor_taints=one.node_taints_policy == "Honor",
    )


def selector_of(selector: wire.LabelSelector) -> Selector:
    """A label selector; an empty one matches everything."""
    exact = tuple(Requirement(k, "In", (v,)) for k, v in sorted((selector.match_labels or {}).items()))
    return Selector(exact + _requirements(selector.match_expressions))
