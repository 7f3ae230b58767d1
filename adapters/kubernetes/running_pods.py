"""Pods from JSON as rescheduling sees them. DecodeError names object, field, value."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from adapters.kubernetes import decode, wire
from adapters.kubernetes.templates import placement_of
from adapters.kubernetes.wire import read
from qos import keys
from qos.cluster.objects import Pod
from qos.cluster.running import BANDS, CLASSES, PROD, QUALITIES, RunningPod

_BAND_OF_PRIORITY: Final = {3: "koord-free", 5: "koord-batch", 7: "koord-mid", 9: "koord-prod"}
"""By the thousands of a priority: Koordinator's bands are 3000 to 3999 ..."""
_CLASS_OF_QUALITY: Final = {"Guaranteed": "LSR", "Burstable": "LS", "BestEffort": "BE"}


class _Volume(msgspec.Struct, rename="camel"):
    empty_dir: dict[str, Any] | None = None
    host_path: dict[str, Any] | None = None
    persistent_volume_claim: dict[str, Any] | None = None
    ephemeral: dict[str, Any] | None = None


class _Spec(msgspec.Struct, rename="camel"):
    containers: list[wire.TemplateContainer] | None = None
    node_selector: dict[str, str] | None = None
    affinity: wire.Affinity | None = None
    tolerations: list[wire.Toleration] | None = None
    topology_spread_constraints: list[wire.TopologySpreadConstraint] | None = None
    volumes: list[_Volume] | None = None
    host_network: bool = False
    resource_claims: list[Any] | None = None


class _Status(msgspec.Struct, rename="camel"):
    qos_class: str = ""
    conditions: list[wire.Condition] | None = None


class _Pod(msgspec.Struct):
    metadata: wire.FullMetadata
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)


_POD: Final = msgspec.json.Decoder(_Pod)


def running_pod(raw: bytes) -> RunningPod:
    """A pod with what rescheduling looks at. DecodeError."""
    pod = decode.pod(raw)
    obj = read(_POD, "Pod", raw)
    spec, status, annotations = obj.spec, obj.status, obj.metadata.annotations or {}
    volumes = spec.volumes or ()
    quality = status.qos_class or "Burstable"
    class_ = _class(pod, quality)
    return RunningPod(
        pod,
        where=placement_of(
            wire.TemplateSpec(
                node_selector=spec.node_selector, affinity=spec.affinity, tolerations=spec.tolerations
            )
        ),
        ready=any(one.type == "Ready" and one.status == "True" for one in status.conditions or ()),
        band=_band(pod, class_),
        quality=_place(QUALITIES, quality),
        rank=_place(CLASSES, class_),
        deletion_cost=_integer(annotations.get(keys.DELETION_COST_ANNOTATION, "")),
        eviction_cost=_integer(annotations.get(keys.EVICTION_COST_ANNOTATION, "")),
        local=any(one.empty_dir is not None or one.host_path is not None for one in volumes),
        claims=any(one.persistent_volume_claim is not None or one.ephemeral is not None for one in volumes),
        tied=_tied(pod, spec),
        floor=pod.slot is not None,
    )


def _class(pod: Pod, quality: str) -> str:
    said = pod.labels.get(keys.KOORDINATOR_CLASS_LABEL, "")
    return said if said in CLASSES else _CLASS_OF_QUALITY.get(quality, "LS")


def _band(pod: Pod, class_: str) -> int:
    """Its label, else its priority's band, else batch for BE and prod for all others."""
    said = pod.labels.get(keys.KOORDINATOR_PRIORITY_CLASS_LABEL, "")
    if said not in BANDS:
        said = _BAND_OF_PRIORITY.get(pod.priority // 1000, "koord-batch" if class_ == "BE" else "")
    return BANDS.index(said) if said else PROD


def _place(names: tuple[str, ...], name: str) -> int:
    return names.index(name) if name in names else 1


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return 0


def _tied(pod: Pod, spec: _Spec) -> str:
    """Why a place that is held for it would not do."""
    affinity = spec.affinity
    if affinity and any(one and one.required for one in (affinity.pod_affinity, affinity.pod_anti_affinity)):
        return "other pods decide where it may run"
    if any(one.when_unsatisfiable == "DoNotSchedule" for one in spec.topology_spread_constraints or ()):
        return "a topology spread decides where it may run"
    if _ports(spec):
        return "it has a port of its node"
    if spec.resource_claims:
        return "it has resource claims"
    if pod.reservation_affinity is not None:
        return "it uses a Reservation"
    if pod.labels.get(keys.RESERVATION_IGNORED_LABEL) == "true":
        return "it uses no Reservation"
    return ""


def _ports(spec: _Spec) -> bool:
    ports: Iterable[wire.Port] = (port for one in spec.containers or () for port in one.ports or ())
    return any(port.host_port or (spec.host_network and port.container_port) for port in ports)
