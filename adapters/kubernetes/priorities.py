"""PriorityClasses of ours, and owners that have one: raised by the API server, taken back by our webhook."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from adapters.kubernetes.wire import read
from qos import keys

_PLACEHOLDERS: Final = "Of j10ce-qos' placeholders; no other pod may use it."
_LONGEST: Final = len("-2147483648")
_OWNERS: Final = "What j10ce-qos raises owners of slots to; no other pod may use it."


class Own(NamedTuple):
    """What a raised owner had before: its priority, and its PriorityClass, "" for none."""

    priority: int
    class_name: str


class _Marks(msgspec.Struct):
    raised: str = msgspec.field(default="", name=keys.RAISED_PRIORITY_LABEL)


class _Notes(msgspec.Struct):
    own: str = msgspec.field(default="", name=keys.OWN_PRIORITY_ANNOTATION)


class _Metadata(msgspec.Struct):
    labels: _Marks | None = None
    annotations: _Notes | None = None


class _Spec(msgspec.Struct, rename="camel"):
    priority_class_name: str = ""


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec


_POD = msgspec.json.Decoder(_Pod)


def of_placeholders(value: int) -> str:
    """The name of the PriorityClass of placeholders with this priority."""
    return f"j10ce-placeholder-{_digits(value)}"


def of_owners(value: int) -> str:
    """The name of the PriorityClass of owners that are raised to this priority; the admission policy spells
    it, too.
    """
    return f"j10ce-owner-{_digits(value)}"


def _digits(value: int) -> str:
    return f"{'minus-' if value < 0 else ''}{abs(value)}"


def placeholder_class(value: int) -> dict[str, Any]:
    """The PriorityClass of placeholders with this priority: they evict nobody."""
    return _body(of_placeholders(value), value, "Never", _PLACEHOLDERS)


def owner_class(value: int) -> dict[str, Any]:
    """The PriorityClass of owners that are raised to this priority."""
    return _body(of_owners(value), value, "PreemptLowerPriority", _OWNERS)


def _body(name: str, value: int, policy: str, description: str) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "preemptionPolicy": policy,
        "description": description,
    }


def own(raw: bytes) -> Own | None:
    """What a new pod had before the API server raised it; None: it was not raised. DecodeError.

    Where nobody raises, anyone can write the label: what says otherwise than the pod's class is not believed.
    """
    pod = read(_POD, "Pod", raw)
    meta = pod.metadata
    if meta.labels is None or meta.labels.raised != "true" or meta.annotations is None:
        return None
    number, _, class_name = meta.annotations.own.partition(" ")
    if len(number) > _LONGEST or not number.removeprefix("-").isdecimal():
        return None
    raised = pod.spec.priority_class_name == of_owners(int(number) + 1)
    return Own(int(number), class_name) if raised else None


def taken_back(own: Own) -> list[dict[str, Any]]:
    """The JSON patch by which a raised pod has its own priority and class again."""
    label, note = (
        key.replace("/", "~1") for key in (keys.RAISED_PRIORITY_LABEL, keys.OWN_PRIORITY_ANNOTATION)
    )
    path = "/spec/priorityClassName"
    name = {"op": "replace", "path": path, "value": own.class_name}
    return [
        {"op": "remove", "path": f"/metadata/labels/{label}"},
        {"op": "remove", "path": f"/metadata/annotations/{note}"},
        {"op": "replace", "path": "/spec/priority", "value": own.priority},
        name if own.class_name else {"op": "remove", "path": path},
    ]
