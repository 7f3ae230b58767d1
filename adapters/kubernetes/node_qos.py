"""NodeQoS as JSON: a node's report written, and read back as far as the extender goes by it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from sys import intern
from typing import Any, Final

import msgspec

from adapters.api import NODE_QOS, NODES
from adapters.kubernetes.wire import DecodeError, Metadata, Object, key_of, read
from qos import keys
from qos.cluster.needs import Enforcement
from qos.cluster.network_state import LinkState, NetworkState
from qos.cluster.node_report import NodeReport, PolicyState, UsageState, conditions
from qos.cluster.objects import Resources
from qos.quantity import render

LONGEST_MESSAGE: Final = 1024
MOST_POLICIES: Final = 1000
MOST_PODS: Final = 500
"""Pods whose usage is written, those that use most; kubelet's usual limit is 110."""


@dataclass(frozen=True, slots=True)
class NodeNews:
    """What a NodeQoS says. `heartbeat`: as it was written, "" before the first; only its change counts.

    `policies`: without their deficits, which no sum needs and which change all the time.
    """

    node: str
    heartbeat: str
    enforcement: Enforcement
    policies: tuple[PolicyState, ...]


def new(node: str, uid: str) -> dict[str, Any]:
    """The body of a NodeQoS that goes with the Node of that UID."""
    owner = {"apiVersion": NODES.version, "kind": NODES.kind, "name": node, "uid": uid}
    return {
        "apiVersion": keys.API_VERSION,
        "kind": NODE_QOS.kind,
        "metadata": {"name": node, "ownerReferences": [owner]},
    }


def status_of(report: NodeReport, earlier: Iterable[Mapping[str, Any]], now: float) -> dict[str, Any]:
    """The whole status; `now`: seconds since the epoch, the heartbeat.

    `earlier`: the conditions as they were: lastTransitionTime is kept where a status did not change.
    """
    stamp = _stamp(now)
    before = {one.get("type"): one for one in earlier}
    shown = []
    for one in conditions(report):
        was = before.get(one.type, {})
        since = was.get("lastTransitionTime", stamp) if was.get("status") == one.status else stamp
        shown.append(one._asdict() | {"lastTransitionTime": since, "message": one.message[:LONGEST_MESSAGE]})
    return {
        "lastHeartbeat": stamp,
        "agentVersion": report.agent_version[:64],
        "kernelVersion": report.kernel[:128],
        "cgroupVersion": report.cgroup,
        "containerRuntime": report.runtime[:128],
        "promises": [
            _filled(
                promise=one.promise,
                enforced=one.enforced,
                file=one.file,
                message=one.message[:LONGEST_MESSAGE],
            )
            for one in report.promises
        ],
        "pressure": dict(report.pressure),
        "drift": {"repairedLastHour": report.repaired, "fights": report.fights},
        "policies": [_policy(one) for one in report.policies[:MOST_POLICIES]],
        "conditions": shown,
        "network": _network(report.network) if report.network else None,
        "usage": _usage(report.usage) if report.usage else None,
    }


def _usage(one: UsageState) -> dict[str, Any]:
    pods = sorted(one.pods.items(), key=lambda pod: (-pod[1].get(keys.MEMORY, 0), pod[0]))[:MOST_PODS]
    return {
        "measuredAt": _stamp(one.measured),
        **_amounts(one.node),
        "pods": [{"pod": key} | _amounts(used) for key, used in sorted(pods)],
    }


def _amounts(used: Resources) -> dict[str, str]:
    return {name: render(name, amount) for name, amount in used.items()}


def _network(one: NetworkState) -> dict[str, Any]:
    """What is not known is null: a merge patch takes it away."""
    link = one.link
    techniques = [
        _filled(traffic=each.traffic, technique=each.technique, message=each.message[:LONGEST_MESSAGE])
        for each in one.techniques
    ]
    return {"link": _link(link) if link else None, "techniques": techniques}


def _link(link: LinkState) -> dict[str, Any]:
    return {
        "interface": link.interface,
        "egress": render("", link.egress) if link.egress else None,
        "egressSource": link.egress_source or None,
        "ingress": render("", link.ingress) if link.ingress else None,
        "ingressSource": link.ingress_source or None,
    }


def _policy(one: PolicyState) -> dict[str, Any]:
    return _filled(
        policy=one.key,
        uid=one.uid,
        pods=one.pods,
        applied=one.applied,
        verified=one.verified,
        message=one.message[:LONGEST_MESSAGE],
        deficitSeconds=math.ceil(one.deficit_seconds),
    )


def _filled(**fields: Any) -> dict[str, Any]:
    """Without texts that are empty."""
    return {name: value for name, value in fields.items() if value != ""}


def _stamp(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def uid_in(raw: bytes) -> str:
    """metadata.uid of any object. DecodeError."""
    return read(_OBJECT, "object", raw).metadata.uid


def conditions_in(raw: bytes) -> list[Mapping[str, Any]]:
    """The conditions of a NodeQoS, as they were written; [] where there are none. DecodeError."""
    return read(_WITH_CONDITIONS, NODE_QOS.kind, raw).status.conditions


class _Promise(msgspec.Struct, rename="camel", gc=False):
    promise: str
    enforced: bool = False
    message: str = ""


class _Policy(msgspec.Struct, rename="camel", gc=False):
    policy: str
    uid: str = ""
    pods: int = 0
    applied: int = 0
    verified: int = 0
    message: str = ""


class _Condition(msgspec.Struct, rename="camel", gc=False):
    type: str
    status: str = ""
    message: str = ""


class _Status(msgspec.Struct, rename="camel", gc=False):
    last_heartbeat: str = ""
    promises: list[_Promise] = []
    policies: list[_Policy] = []
    conditions: list[_Condition] = []


class _NodeQoS(msgspec.Struct, gc=False):
    metadata: Metadata
    status: _Status = msgspec.field(default_factory=_Status)


class _Conditions(msgspec.Struct, gc=False):
    conditions: list[Mapping[str, Any]] = []


class _WithConditions(msgspec.Struct, gc=False):
    status: _Conditions = msgspec.field(default_factory=_Conditions)


_NODE_QOS = msgspec.json.Decoder(_NodeQoS)
_WITH_CONDITIONS = msgspec.json.Decoder(_WithConditions)
_OBJECT = msgspec.json.Decoder(Object)


def news(raw: bytes) -> NodeNews:
    """What the extender goes by. DecodeError."""
    obj = read(_NODE_QOS, NODE_QOS.kind, raw)
    name = obj.metadata.name
    if not name:
        raise DecodeError(NODE_QOS.kind, key_of(obj.metadata), "metadata.name", name, "is empty")
    return NodeNews(intern(name), obj.status.last_heartbeat, _enforcement(obj.status), _policies(obj.status))


def _enforcement(status: _Status) -> Enforcement:
    unready = next((c.message for c in status.conditions if c.type == keys.READY and c.status != "True"), "")
    problem = f"its agent is not ready: {unready}" if unready else ""
    if not status.last_heartbeat:
        problem = "its agent has not reported yet"
    return _shared(
        frozenset(one.promise for one in status.promises if one.enforced),
        tuple((one.promise, one.message) for one in status.promises if not one.enforced),
        problem,
    )


@lru_cache(maxsize=256)
def _shared(enforced: frozenset[str], refused: tuple[tuple[str, str], ...], problem: str) -> Enforcement:
    """Nodes of one kind say the same: kept once."""
    return Enforcement(enforced, dict(refused), problem)


def _policies(status: _Status) -> tuple[PolicyState, ...]:
    return tuple(
        PolicyState(
            intern(one.policy),
            one.uid,
            one.pods,
            one.applied,
            one.verified,
            one.message,
        )
        for one in status.policies
    )
