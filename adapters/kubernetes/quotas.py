"""ElasticQuotas from JSON: Koordinator's, with its labels and annotations, and scheduler-plugins' plain ones.

An amount in spec that is none is a DecodeError. An annotation that cannot be read counts as not there, as
Koordinator has it: else all pods of a quota would lose it for a comma; it is told in `problems`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from adapters.kubernetes import wire
from adapters.kubernetes.wire import UNREADABLE, DecodeError, key_of, read
from qos import keys
from qos.cluster.quota import ElasticQuota, weights
from qos.quantity import QuantityError, parse_large

_KIND: Final = "ElasticQuota"
_LONGEST_TURN: Final = 31_536_000
"""Seconds: a year."""
_DIGITS: Final = len(str(_LONGEST_TURN))


class _Spec(msgspec.Struct):
    min: wire.Amounts | None = None
    max: wire.Amounts | None = None


class _Object(msgspec.Struct):
    metadata: wire.FullMetadata
    spec: _Spec | None = None


_QUOTA: Final = msgspec.json.Decoder(_Object)
_AMOUNTS: Final = msgspec.json.Decoder(wire.Amounts)
_NAMES: Final = msgspec.json.Decoder(list[str])


def quota(raw: bytes) -> ElasticQuota:
    """An ElasticQuota, its defaults filled in. DecodeError names object, field and value."""
    obj = read(_QUOTA, _KIND, raw)
    meta, spec = obj.metadata, obj.spec or _Spec()
    labels, annotations = meta.labels or {}, meta.annotations or {}
    most = _stated(meta, "spec.max", spec.max or {})
    problems: list[str] = []
    return ElasticQuota(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        created=meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0,
        generation=meta.generation,
        resource_version=meta.resource_version,
        min=_stated(meta, "spec.min", spec.min or {}),
        max=most,
        weight=weights(_annotated(annotations, keys.QUOTA_WEIGHT_ANNOTATION, problems), most),
        parent=_parent(labels),
        is_parent=labels.get(keys.QUOTA_IS_PARENT_LABEL) == "true",
        lends=labels.get(keys.QUOTA_LENDS_LABEL) != "false",
        tree=labels.get(keys.QUOTA_TREE_LABEL, ""),
        is_root=labels.get(keys.QUOTA_IS_ROOT_LABEL) == "true",
        total=_annotated(annotations, keys.QUOTA_TOTAL_ANNOTATION, problems),
        beside=labels.get(keys.QUOTA_BESIDE_DEFAULT_LABEL) == "true",
        namespaces=_names(annotations, problems),
        forced=labels.get(keys.QUOTA_FORCE_LABEL) == "true",
        turn_seconds=_turn(annotations, problems),
        plain=not any(key.startswith(keys.KOORDINATOR_QUOTA_PREFIX) for key in (*labels, *annotations)),
        problems=tuple(problems),
    )


def _parent(labels: Mapping[str, str]) -> str:
    name = labels.get(keys.QUOTA_PARENT_LABEL, "")
    return "" if name == keys.ROOT_QUOTA else name


def _stated(meta: wire.FullMetadata, field: str, written: wire.Amounts) -> dict[str, int]:
    try:
        return {name: parse_large(name, value) for name, value in written.items()}
    except QuantityError as error:
        path = f"{field}.{error.resource}"
        raise DecodeError(_KIND, key_of(meta), path, error.value, str(error)) from None


def _annotated(annotations: Mapping[str, str], key: str, problems: list[str]) -> dict[str, int] | None:
    """A resource list in an annotation; None where it is not there, or is none."""
    text = annotations.get(key, "")
    if not text:
        return None
    try:
        amounts = {name: parse_large(name, value) for name, value in _AMOUNTS.decode(text).items()}
    except QuantityError as error:
        problems.append(f"metadata.annotations[{key}]: {error}: it counts as not there")
        return None
    except UNREADABLE as error:
        problems.append(_unreadable(key, text, error, 'a JSON object such as {"cpu": "4", "memory": "8Gi"}'))
        return None
    for name, amount in amounts.items():
        if amount < 0:
            problems.append(
                f"metadata.annotations[{key}]: {name}: {amount} is negative: write zero or more; the "
                "annotation counts as not there"
            )
            return None
    return amounts


def _names(annotations: Mapping[str, str], problems: list[str]) -> tuple[str, ...]:
    text = annotations.get(keys.QUOTA_NAMESPACES_ANNOTATION, "")
    if not text:
        return ()
    try:
        return tuple(dict.fromkeys(_NAMES.decode(text)))
    except UNREADABLE as error:
        wanted = 'a JSON list such as ["shop", "shop-test"]'
        problems.append(_unreadable(keys.QUOTA_NAMESPACES_ANNOTATION, text, error, wanted))
        return ()


def _turn(annotations: Mapping[str, str], problems: list[str]) -> int:
    text = annotations.get(keys.QUOTA_TURN_ANNOTATION, "")
    if not text:
        return 0
    if text.isascii() and text.isdecimal() and len(text) <= _DIGITS and 0 < int(text) <= _LONGEST_TURN:
        return int(text)
    wanted = f"whole seconds from 1 to {_LONGEST_TURN}"
    problems.append(_unreadable(keys.QUOTA_TURN_ANNOTATION, text, ValueError("no such time"), wanted))
    return 0


def _unreadable(key: str, text: str, error: Exception, wanted: str) -> str:
    shown = text if len(text) <= 120 else text[:120] + "..."
    return f"metadata.annotations[{key}]: {shown!r}: {error}: write {wanted}; it counts as not there"
