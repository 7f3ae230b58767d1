"""Gangs as the API server has them: what pods and PodGroups say, and the patch that lifts a gate."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from adapters.api import POD_GROUPS
from adapters.kubernetes import wire
from adapters.kubernetes.placeholders import gates, placement
from adapters.kubernetes.wire import UNREADABLE, read
from qos import keys
from qos.cluster.gangs import WAITING_SECONDS, Match, Member, PodGroup, Rules
from qos.cluster.objects import NodePredicate, Pod

MARKS: Final = (keys.GANG_NAME_ANNOTATION.encode(), keys.POD_GROUP_LABEL.encode(), keys.GANG_GATE.encode())
"""What the JSON of a pod contains that is of a gang, or was."""
VERSION: Final = f"{POD_GROUPS.group}/{POD_GROUPS.version}"
_LONGEST_WAITING_SECONDS: Final = 3600.0
"""Longer counts as so long: meanwhile a gang's places are kept from everybody, of whatever priority."""
_MOST_DIGITS: Final = 9
_MOST_NAME: Final = 253
_MOST_GROUPS: Final = 100
_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|h|m|s)")


class _Metadata(msgspec.Struct, rename="camel"):
    namespace: str = ""
    name: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata


class _GroupSpec(msgspec.Struct, rename="camel"):
    min_member: int = 0
    schedule_timeout_seconds: int | None = None


class _Group(msgspec.Struct):
    metadata: wire.FullMetadata
    spec: _GroupSpec | None = None


_OBJECT: Final = msgspec.json.Decoder(_Object)
_GROUP: Final = msgspec.json.Decoder(_Group)
_NAMES: Final = msgspec.json.Decoder(list[str])


def member(pod: Pod, raw: bytes) -> Member | None:
    """A pod as one of a gang; None where it is of none and has not our gate. DecodeError.

    One that has the gate and names no gang is a gang of its own.
    """
    if not any(mark in raw for mark in MARKS):
        return None
    waits = not (pod.node_name or pod.terminal)
    there = gates(raw) if waits else ()
    meta = read(_OBJECT, "Pod", raw).metadata
    annotations, group = meta.annotations or {}, (meta.labels or {}).get(keys.POD_GROUP_LABEL, "")
    name = annotations.get(keys.GANG_NAME_ANNOTATION, "")
    gated = keys.GANG_GATE in there
    if not (name or group or gated):
        return None
    where = placement(raw) if gated else NodePredicate()
    if name:
        key = f"{pod.namespace}/{name[:_MOST_NAME]}"
        return Member(pod, key, there, where, _annotated(annotations, key))
    return Member(pod, f"{pod.namespace}/{group or pod.name}", there, where, None if group else Rules(1))


def pod_group(raw: bytes) -> PodGroup:
    """A PodGroup. DecodeError."""
    obj = read(_GROUP, "PodGroup", raw)
    meta, spec = obj.metadata, obj.spec or _GroupSpec()
    key = f"{meta.namespace}/{meta.name}"
    seconds = None if spec.schedule_timeout_seconds is None else float(spec.schedule_timeout_seconds)
    rules = _rules(meta.annotations or {}, key, max(1, spec.min_member), seconds)
    return PodGroup(meta.namespace, meta.name, meta.uid, rules)


def _annotated(annotations: Mapping[str, str], key: str) -> Rules:
    text = annotations.get(keys.GANG_MIN_ANNOTATION, "")
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS and int(text) > 0):
        wanted = "write how many of its pods run, or none"
        return Rules(1, problem=f"annotation {keys.GANG_MIN_ANNOTATION} is {text[:40]!r}: {wanted}")
    return _rules(annotations, key, int(text), None)


def _rules(annotations: Mapping[str, str], key: str, least: int, seconds: float | None) -> Rules:
    """What cannot be read counts as not there, as Koordinator has it."""
    written = annotations.get(keys.GANG_MATCH_ANNOTATION, "")
    match = next((one for one in Match if one.value == written), Match.ONCE)
    if seconds is None:
        seconds = _seconds(annotations.get(keys.GANG_WAITING_ANNOTATION, "")) or WAITING_SECONDS
    seconds = min(seconds, _LONGEST_WAITING_SECONDS)
    try:
        named = _NAMES.decode(annotations.get(keys.GANG_GROUPS_ANNOTATION, "") or "[]")
    except UNREADABLE:
        named = []
    if len(named) > _MOST_GROUPS:
        why = f"annotation {keys.GANG_GROUPS_ANNOTATION} names {len(named)} gangs, more than {_MOST_GROUPS}"
        return Rules(least, seconds, match, problem=f"{why}: name fewer")
    groups = tuple(sorted({*named, key})) if named else ()
    return Rules(least, seconds, match, groups if len(groups) > 1 else ())


def _seconds(text: str) -> float:
    """A duration as Go writes it, such as 1m30s; 0 where it is none."""
    if not re.fullmatch(f"(?:{_DURATION.pattern})+", text):
        return 0.0
    return sum(float(number) * _UNITS[unit] for number, unit in _DURATION.findall(text))


def ungated(one: Member) -> dict[str, Any]:
    """The merge patch that takes our gate off a pod and leaves the others."""
    others = [{"name": name} for name in one.gates if name != keys.GANG_GATE]
    return {"metadata": {"uid": one.pod.uid}, "spec": {"schedulingGates": others or None}}
