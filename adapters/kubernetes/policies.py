"""Policies, profiles and PriorityClasses from JSON, without pydantic, which takes 10 MB and a while.

The API server has checked these objects against the CRDs, which qos.api made (adapters.written_policies does
so for files); here types are checked, and what neither a plan nor the ledger could bear. Fields of a newer
version are passed over.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import msgspec

from adapters.kubernetes import wire
from adapters.kubernetes.requests import vector_of
from adapters.kubernetes.templates import selector_of, spread_of
from adapters.kubernetes.wire import DecodeError, PriorityClassObject, key_of, read
from qos.bandwidth import Band, Limits, from_bits
from qos.classes import CLASSES, contradiction, promises_of
from qos.cluster.objects import (
    Keeper,
    NodeEnforcement,
    NodePredicate,
    OwnerFit,
    PlacementMode,
    Requirement,
    Selector,
    Spread,
    Toleration,
)
from qos.cluster.policy import FIRST_MOMENT, LAST_MOMENT, Policy, Profile, ScaleTarget, Surge
from qos.cluster.remembered import NOTHING, Outliving, Remembered
from qos.keys import BANDWIDTHS
from qos.promises import PROMISES, IoLimit, Overrides, Promise
from qos.quantity import QuantityError, parse

_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
_Amount: TypeAlias = str | int


class _Metadata(wire.Metadata):
    creation_timestamp: datetime | None = None  # type: ignore[assignment]


class _Network(msgspec.Struct):
    egress: _Amount | None = None
    ingress: _Amount | None = None


class _Floor(msgspec.Struct):
    resources: dict[str, _Amount] | None = None
    network: _Network | None = None


class _Limit(msgspec.Struct):
    network: _Network | None = None


class _Target(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    name: str


class _Slots(msgspec.Struct, rename="camel"):
    count: _Number | None = None
    scale_target_ref: _Target | None = None
    surge: str | _Number | None = None
    headroom_to: Literal["HPAMaximum"] | None = None


class _Toleration(msgspec.Struct):
    key: str | None = None
    operator: str = "Equal"
    value: str | None = None
    effect: str | None = None


class _Placement(msgspec.Struct, rename="camel"):
    mode: PlacementMode = PlacementMode.FLOATING
    node_selector: dict[str, str] | None = None
    tolerations: list[_Toleration] | None = None
    topology_spread_constraints: list[wire.TopologySpreadConstraint] | None = None
    inherit_from_workload: bool | None = None
    max_slots_per_node: _Positive | None = None
    survive_node_failures: _Number = 0


class _PolicySpec(msgspec.Struct, rename="camel"):
    selector: wire.LabelSelector
    floor: _Floor
    slots: _Slots
    limit: _Limit | None = None
    profile_name: str | None = None
    priority_class_name: str | None = None
    suspend: bool = False
    consume_policy: Literal["Reuse", "Once"] = "Reuse"
    release_delay_seconds: _Number = 0
    owner_fit: OwnerFit = OwnerFit.ALIGNED
    ttl_seconds: _Positive | None = None
    expiration_time: datetime | None = None
    placement: _Placement = msgspec.field(default_factory=_Placement)
    node_enforcement: NodeEnforcement = NodeEnforcement.BEST_EFFORT
    keeper: Keeper | None = None


class _PolicyObject(msgspec.Struct):
    metadata: _Metadata
    spec: _PolicySpec
    status: msgspec.Raw = wire.ABSENT


class _DiskLimit(msgspec.Struct, rename="camel"):
    read_bytes_per_second: _Amount | None = None
    write_bytes_per_second: _Amount | None = None
    read_operations_per_second: _Positive | None = None
    write_operations_per_second: _Positive | None = None


def _read_as(promise: Promise) -> Any:
    kind, _, low, high = promise
    if kind is IoLimit:
        return _DiskLimit | None
    return (kind if low is None else Annotated[kind, msgspec.Meta(ge=low, le=high)]) | None


if TYPE_CHECKING:
    _Promises: TypeAlias = msgspec.Struct
else:
    _Promises = msgspec.defstruct(
        "_Promises", [(name, _read_as(one), None) for name, one in PROMISES.items()], rename="camel"
    )


class _Traffic(msgspec.Struct):
    band: Literal["L0", "L1", "L2"] | None = None
    limit: _Network | None = None


class _ProfileSpec(msgspec.Struct, rename="camel"):
    class_name: str = msgspec.field(name="class")
    priority_class_name: str | None = None
    promises: _Promises | None = None
    network: _Traffic | None = None


class _ProfileObject(msgspec.Struct):
    metadata: _Metadata
    spec: _ProfileSpec


_POLICY: Final = msgspec.json.Decoder(_PolicyObject)
_PROFILE: Final = msgspec.json.Decoder(_ProfileObject)
_PRIORITY_CLASS: Final = msgspec.json.Decoder(PriorityClassObject)


def policy(raw: bytes) -> Policy:
    """A MinimalReservationPolicy; `status` as it was read. DecodeError names object, field and value."""
    obj = read(_POLICY, "MinimalReservationPolicy", raw)
    meta, spec = obj.metadata, obj.spec
    slots, placement = spec.slots, spec.placement
    if (slots.count is None) == (slots.scale_target_ref is None):
        raise _refused(meta, "spec.slots", msgspec.to_builtins(slots), "exactly one of count, scaleTargetRef")
    target = slots.scale_target_ref
    status = msgspec.json.decode(wire.written(obj.status) or b"{}")
    inherits = placement.inherit_from_workload
    return Policy(
        key=key_of(meta),
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        generation=meta.generation,
        resource_version=meta.resource_version,
        created=meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0,
        selector=_selector(meta, spec.selector),
        floor=_floor(meta, spec.floor),
        limit=_bandwidths(meta, "spec.limit.network", spec.limit.network) if spec.limit else {},
        profile_name=spec.profile_name or "",
        priority_class_name=spec.priority_class_name or "",
        suspend=spec.suspend,
        expires=_expires(meta, spec),
        once=spec.consume_policy == "Once",
        delay=float(spec.release_delay_seconds),
        owner_fit=spec.owner_fit,
        count=slots.count,
        scale_target=ScaleTarget(target.api_version, target.kind, target.name) if target else None,
        surge=_surge(meta, slots.surge),
        headroom=slots.headroom_to is not None,
        mode=placement.mode,
        where=_where(placement),
        spread=_spread(meta, spec),
        inherit_from_workload=target is not None if inherits is None else inherits,
        max_slots_per_node=placement.max_slots_per_node,
        survives=placement.survive_node_failures,
        enforcement=spec.node_enforcement,
        keeper=spec.keeper,
        # It is ours, and must not make the policy unreadable, whatever an older version wrote there.
        status=status,
        remembered=_remembered(status, once=spec.consume_policy == "Once"),
    )


class _Filler(msgspec.Struct):
    pod_uid: str = msgspec.field(name="podUID")
    node_name: str = msgspec.field(name="nodeName", default="")


class _Outliving(msgspec.Struct):
    pod_uid: str = msgspec.field(name="podUID")
    until: datetime = msgspec.field(name="releaseTime")
    node_name: str = msgspec.field(name="nodeName", default="")


class _SlotsStatus(msgspec.Struct):
    consumed: int = 0


class _Status(msgspec.Struct, rename="camel"):
    slots: _SlotsStatus = msgspec.field(default_factory=_SlotsStatus)
    filled_by: list[_Filler] = msgspec.field(default_factory=list)
    outliving: list[_Outliving] = msgspec.field(default_factory=list)


def _remembered(status: Any, *, once: bool) -> Remembered:
    """What a status says of the slots' lives; nothing of what cannot be read.

    `once`: whether slots are used up. Those that were, while the policy said so, count no more.
    """
    try:
        said = msgspec.convert(status, _Status)
    except msgspec.ValidationError:
        return NOTHING
    fillers = {one.pod_uid: one.node_name for one in said.filled_by}
    outliving = [Outliving(one.pod_uid, one.node_name, one.until.timestamp()) for one in said.outliving]
    gone = said.slots.consumed - len(fillers) - len(outliving) if once else 0
    return Remembered(max(0, gone), fillers, tuple(outliving))


def _expires(meta: _Metadata, spec: _PolicySpec) -> float | None:
    if spec.expiration_time is None:
        created = meta.creation_timestamp
        return created.timestamp() + spec.ttl_seconds if created and spec.ttl_seconds else None
    if spec.ttl_seconds is not None:
        raise _refused(meta, "spec.ttlSeconds", spec.ttl_seconds, "is exclusive with expirationTime")
    end = spec.expiration_time.timestamp()
    if not FIRST_MOMENT <= end <= LAST_MOMENT:
        said = spec.expiration_time.isoformat()
        raise _refused(meta, "spec.expirationTime", said, "must be in the years 1970 to 9999, in UTC")
    return end


def profile(raw: bytes) -> Profile:
    """A QoSProfile. DecodeError names object, field and value."""
    obj = read(_PROFILE, "QoSProfile", raw)
    meta, spec = obj.metadata, obj.spec
    if spec.class_name not in CLASSES:
        raise _refused(meta, "spec.class", spec.class_name, f"must be one of {', '.join(CLASSES)}")
    overrides = _overrides(meta, spec.promises) if spec.promises else Overrides()
    found = contradiction(spec.class_name, promises_of(spec.class_name, overrides))
    if found:
        raise _refused(meta, f"spec.promises ({found.field})", spec.class_name, found.why)
    network = spec.network or _Traffic()
    bits = _bandwidths(meta, "spec.network.limit", network.limit)
    return Profile(
        meta.name,
        spec.class_name,
        spec.priority_class_name or "",
        overrides,
        Band[network.band] if network.band else None,
        Limits(**{way: from_bits(bits[name]) for way, name in BANDWIDTHS.items() if name in bits}),
    )


def priority_class(raw: bytes) -> tuple[str, int, bool]:
    """A PriorityClass: name, value, globalDefault. DecodeError."""
    obj = read(_PRIORITY_CLASS, "PriorityClass", raw)
    return obj.metadata.name, obj.value, obj.global_default


def _refused(meta: wire.Metadata, field: str, value: object, why: str) -> DecodeError:
    return DecodeError(_kind(meta), key_of(meta), field, value, why)


def _kind(meta: wire.Metadata) -> str:
    return "MinimalReservationPolicy" if meta.namespace else "QoSProfile"


def _selector(meta: wire.Metadata, selector: wire.LabelSelector) -> Selector:
    requirements = requirements_of(selector)
    if not requirements:
        raise _refused(meta, "spec.selector", {}, "must select something: an empty one selects every pod")
    return Selector(requirements)


def requirements_of(selector: wire.LabelSelector) -> tuple[Requirement, ...]:
    """What a label selector requires, matchLabels first."""
    exact = [Requirement(key, "In", (value,)) for key, value in sorted((selector.match_labels or {}).items())]
    others = [
        Requirement(each.key, each.operator, tuple(each.values or ()))
        for each in selector.match_expressions or ()
    ]
    return (*exact, *others)


def _floor(meta: wire.Metadata, floor: _Floor) -> dict[str, int]:
    written = floor.resources or {}
    amounts = dict(vector_of("MinimalReservationPolicy", meta, "spec.floor.resources", written))
    for name, amount in amounts.items():
        if amount <= 0:
            field = f"spec.floor.resources.{name}"
            raise _refused(meta, field, written[name], "must be greater than zero")
    amounts |= _bandwidths(meta, "spec.floor.network", floor.network)
    if not amounts:
        raise _refused(meta, "spec.floor", {}, "must name resources, network or both")
    return amounts


def _bandwidths(meta: wire.Metadata, field: str, network: _Network | None) -> dict[str, int]:
    """The directions that are stated, by extended resource, in bits a second."""
    if network is None:
        return {}
    written = {way: value for way in BANDWIDTHS if (value := getattr(network, way)) is not None}
    amounts = vector_of(_kind(meta), meta, field, written)
    for way, amount in amounts.items():
        if amount <= 0:
            raise _refused(meta, f"{field}.{way}", written[way], "must be greater than zero")
    return {BANDWIDTHS[way]: amount for way, amount in amounts.items()}


def _surge(meta: wire.Metadata, surge: str | int | None) -> Surge:
    if not isinstance(surge, str):
        return Surge(surge or 0)
    number = surge.removesuffix("%")
    if number == surge or not (number.isascii() and number.isdecimal()):
        raise _refused(meta, "spec.slots.surge", surge, "is neither a number of slots nor a percentage")
    return Surge(int(number), percent=True)


def _where(placement: _Placement) -> NodePredicate:
    return NodePredicate(
        node_selector=tuple(sorted((placement.node_selector or {}).items())),
        tolerations=tuple(
            Toleration(each.key or "", each.operator, each.value or "", each.effect or "")
            for each in placement.tolerations or ()
        ),
    )


def _spread(meta: wire.Metadata, spec: _PolicySpec) -> tuple[Spread, ...]:
    """The policy's own constraints; they count its own pods unless they say otherwise."""
    own = _selector(meta, spec.selector)
    found = []
    for place, one in enumerate(spec.placement.topology_spread_constraints or ()):
        field = f"spec.placement.topologySpreadConstraints[{place}]"
        for name, value in (("maxSkew", one.max_skew), ("minDomains", one.min_domains)):
            if value is not None and value < 1:
                raise _refused(meta, f"{field}.{name}", value, "must be at least 1")
        if one.when_unsatisfiable not in ("DoNotSchedule", "ScheduleAnyway"):
            why = "must be DoNotSchedule or ScheduleAnyway"
            raise _refused(meta, f"{field}.whenUnsatisfiable", one.when_unsatisfiable, why)
        found.append(spread_of(one, selector_of(one.label_selector) if one.label_selector else own))
    return tuple(found)


def _overrides(meta: wire.Metadata, promises: _Promises) -> Overrides:
    given = {name: getattr(promises, name) for name in promises.__struct_fields__}
    found = {name: value for name, value in given.items() if value is not None}
    if "io_limit" in found:
        found["io_limit"] = _io_limit(meta, found["io_limit"])
    return found


def _io_limit(meta: wire.Metadata, limit: _DiskLimit) -> IoLimit:
    def amount(value: _Amount | None) -> int:
        return parse("", value or 0)

    try:
        return IoLimit(
            read_bytes=amount(limit.read_bytes_per_second),
            write_bytes=amount(limit.write_bytes_per_second),
            read_operations=limit.read_operations_per_second or 0,
            write_operations=limit.write_operations_per_second or 0,
        )
    except QuantityError as error:
        raise _refused(meta, "spec.promises.ioLimit", error.value, str(error)) from None
