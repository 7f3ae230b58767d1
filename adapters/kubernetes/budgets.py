"""ReservationBudgets from JSON, and what of a Namespace decides which of them concern it.

The API server has checked budgets against the CRD, which qos.api made; here types are checked, and what the
ledger could not bear. Fields of a newer version are passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from adapters.kubernetes import wire
from adapters.kubernetes.policies import requirements_of
from adapters.kubernetes.wire import DecodeError, read
from qos import keys
from qos.cluster.budget import SLOTS, Budget, ReservationBudget
from qos.cluster.objects import Selector
from qos.quantity import QuantityError, parse_large

_KIND: Final = "ReservationBudget"


class _Spec(msgspec.Struct, rename="camel"):
    namespace_selector: wire.LabelSelector
    default: bool = False
    per_namespace: wire.Amounts | None = None
    total: wire.Amounts | None = None
    priority_class_names: list[str] | None = None
    profile_names: list[str] | None = None


class _Object(msgspec.Struct):
    metadata: wire.Metadata
    spec: _Spec
    status: msgspec.Raw = wire.ABSENT


_BUDGET: Final = msgspec.json.Decoder(_Object)
_NAMESPACE: Final = msgspec.json.Decoder(wire.Object)


def budget(raw: bytes) -> ReservationBudget:
    """A ReservationBudget. DecodeError names object, field and value."""
    obj = read(_BUDGET, _KIND, raw)
    meta, spec = obj.metadata, obj.spec
    rules = Budget(
        name=meta.name,
        selector=Selector(requirements_of(spec.namespace_selector)),
        default=spec.default,
        per_namespace=_amounts(meta, "spec.perNamespace", spec.per_namespace or {}),
        total=_amounts(meta, "spec.total", spec.total or {}),
        priority_classes=_names(spec.priority_class_names),
        profiles=_names(spec.profile_names),
    )
    status = msgspec.json.decode(wire.written(obj.status) or b"{}")
    return ReservationBudget(rules, meta.uid, meta.generation, meta.resource_version, status)


def namespace(raw: bytes) -> tuple[str, Mapping[str, str]]:
    """A Namespace: its name and its labels. DecodeError."""
    meta = read(_NAMESPACE, "Namespace", raw).metadata
    return meta.name, meta.labels or {}


def _names(names: Iterable[str] | None) -> frozenset[str] | None:
    return frozenset(names) if names is not None else None


def _amounts(meta: wire.Metadata, field: str, written: wire.Amounts) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for name, value in written.items():
        resource = keys.PODS if name == SLOTS else name
        try:
            amounts[resource] = parse_large(resource, value)
        except QuantityError as error:
            raise DecodeError(_KIND, meta.name, f"{field}.{name}", value, str(error)) from None
        if amounts[resource] < 0:
            raise DecodeError(_KIND, meta.name, f"{field}.{name}", value, "must be zero or more")
    return amounts
