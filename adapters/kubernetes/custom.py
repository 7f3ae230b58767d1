"""Our own custom resources to qos.cluster.policy, through the pydantic models that also make the CRDs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from pydantic import BaseModel, ValidationError

from adapters.kubernetes.wire import DecodeError, Object, key_of, read
from qos.api.policy import MinimalReservationPolicy, Placement, Slots
from qos.api.profile import QoSProfile
from qos.api.upstream import LabelSelector
from qos.cluster.objects import (
    NodeEnforcement,
    NodePredicate,
    PlacementMode,
    Requirement,
    Selector,
    Toleration,
)
from qos.cluster.policy import Policy, Profile, ScaleTarget, Surge
from qos.quantity import parse

M = TypeVar("M", bound=BaseModel)

_OBJECT = msgspec.json.Decoder(Object)


def policy(raw: bytes) -> Policy:
    """A MinimalReservationPolicy; `status` as it was read. DecodeError names object, field and value."""
    obj = _validated(MinimalReservationPolicy, raw)
    meta, spec = obj.metadata, obj.spec
    return Policy(
        key=f"{meta.namespace}/{meta.name}",
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        generation=meta.generation,
        resource_version=meta.resource_version,
        created=meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0,
        selector=_selector(spec.selector),
        floor={name: parse(name, value) for name, value in spec.floor.resources.items()},
        profile_name=spec.profile_name or "",
        priority_class_name=spec.priority_class_name or "",
        suspend=spec.suspend,
        count=spec.slots.count,
        scale_target=_scale_target(spec.slots),
        surge=_surge(spec.slots.surge),
        mode=PlacementMode(spec.placement.mode),
        where=_where(spec.placement),
        inherit_from_workload=spec.inherits,
        max_slots_per_node=spec.placement.max_slots_per_node,
        enforcement=NodeEnforcement(spec.node_enforcement),
        status=msgspec.json.decode(raw).get("status") or {},
    )


def profile(raw: bytes) -> Profile:
    """A QoSProfile. DecodeError names object, field and value."""
    obj = _validated(QoSProfile, raw)
    spec = obj.spec
    return Profile(obj.metadata.name, spec.class_name, spec.priority_class_name or "", spec.overrides())


def _validated(model: type[M], raw: bytes) -> M:
    kind = model.__name__
    metadata = read(_OBJECT, kind, raw).metadata
    body: Mapping[str, Any] = msgspec.json.decode(raw)
    try:
        # The status is ours: what an older version wrote there must not make the policy unreadable.
        return model.model_validate({name: part for name, part in body.items() if name != "status"})
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(step) for step in first["loc"]) or "object"
        raise DecodeError(
            kind, key_of(metadata), field, first["input"], first["msg"].removeprefix("Value error, ")
        ) from None


def _selector(selector: LabelSelector) -> Selector:
    exact = [Requirement(key, "In", (value,)) for key, value in sorted((selector.match_labels or {}).items())]
    expressions = [
        Requirement(e.key, e.operator, tuple(e.values or ())) for e in selector.match_expressions or ()
    ]
    return Selector((*exact, *expressions))


def _scale_target(slots: Slots) -> ScaleTarget | None:
    target = slots.scale_target_ref
    return ScaleTarget(target.api_version, target.kind, target.name) if target else None


def _surge(surge: int | str | None) -> Surge:
    if isinstance(surge, str):
        return Surge(int(surge.removesuffix("%")), percent=True)
    return Surge(surge or 0)


def _where(placement: Placement) -> NodePredicate:
    return NodePredicate(
        node_selector=tuple(sorted((placement.node_selector or {}).items())),
        tolerations=tuple(
            Toleration(t.key or "", t.operator, t.value or "", t.effect or "")
            for t in placement.tolerations or ()
        ),
    )
