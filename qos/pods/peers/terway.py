"""terway-qos' files of single pods: pod.json and per_cgroup_bps_limit; bytes a second.

Its users, or Koordinator's agent for them, write them below /var/lib/terway/qos. The limits in pod.json are
Koordinator's, which turns them into bytes; 0 is no limit.
Source: AliyunContainerService/terway-qos pkg/config (types.go, syncer.go, config.go);
koordinator-sh/koordinator pkg/koordlet/runtimehooks/hooks/terwayqos/types.go.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from qos.bandwidth import Band, Limits
from qos.pods.peers.asked import Asked
from qos.pods.peers.reading import Fields, shown

_LARGEST: Final = 2**63 - 1
_UID: Final = re.compile(r"[0-9a-fA-F]{8}(?:[-,_][0-9a-fA-F]{4}){3}[-,_][0-9a-fA-F]{12}")
_RATE: Final = re.compile(r"\b(tx_bps|rx_bps)(?:=|\s+)([0-9]{1,19})\b", re.ASCII)
_OTHERS: Final = ("podName", "podNamespace", "ipv4", "ipv6", "cgroupDir")
"""Fields that say which pod it is, as its uid does."""


class Entries(NamedTuple):
    """What a file says, by the pod's uid; and what of it has no effect, and why."""

    pods: Mapping[str, Asked]
    ignored: tuple[str, ...]


def pod_json(text: str) -> Entries:
    """pod.json: a list of pods, as terway-qos reads it, or an object of them, as Koordinator writes it."""
    try:
        written = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Entries({}, (f"pod.json: not JSON: {error}",))
    pods = list(written.values()) if isinstance(written, dict) else written
    if not isinstance(pods, list):
        return Entries({}, (f"pod.json: {shown(written)} is no list of pods",))
    found: dict[str, Asked] = {}
    ignored = []
    for number, pod in enumerate(pods):
        try:
            uid, asked = _pod(pod)
        except ValueError as error:
            ignored.append(f"pod.json: pod {number}: {error}")
        else:
            found[uid] = asked
    return Entries(found, tuple(ignored))


def per_cgroup_bps_limit(text: str) -> Entries:
    """per_cgroup_bps_limit: a line a pod, with its cgroup's path, tx_bps=N and rx_bps=N."""
    found: dict[str, Asked] = {}
    ignored = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        uid = _UID.search(line.split()[0])
        rates = {name: int(amount) for name, amount in _RATE.findall(line)}
        if uid is None or not rates:
            lacks = "the path of a pod's cgroup" if uid is None else "tx_bps and rx_bps"
            ignored.append(f"per_cgroup_bps_limit: line {number} has not {lacks}")
            continue
        limits = Limits(rates.get("tx_bps") or None, rates.get("rx_bps") or None)
        found[re.sub("[,_]", "-", uid[0]).lower()] = Asked(limits=limits)
    return Entries(found, tuple(ignored))


def _pod(written: Any) -> tuple[str, Asked]:
    if not isinstance(written, dict):
        raise ValueError(f"{shown(written)} is no object")
    fields = Fields(written)
    uid = fields.text("podUID")
    if not uid:
        raise ValueError("has no podUID")
    fields.boolean("hostNetwork")
    for name in _OTHERS:
        fields.text(name)
    band = fields.integer("prio", 0, max(Band))
    config = Fields(next(iter(_object(fields, "qosConfig")), {}))
    limits = Limits(
        egress=config.integer("egressBandwidth", 0, _LARGEST) or None,
        ingress=config.integer("ingressBandwidth", 0, _LARGEST) or None,
    )
    # A Go program that is told no prio takes 0.
    return uid.lower(), Asked(Band(band or 0), limits, unknown=(*fields.rest(), *config.rest()))


def _object(fields: Fields, name: str) -> Iterator[Mapping[str, Any]]:
    value = fields.take(name)
    if value is not None:
        if not isinstance(value, dict):
            raise ValueError(f"{name}: {shown(value)} is no object")
        yield value
