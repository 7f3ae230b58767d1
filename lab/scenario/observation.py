"""What a run sees of its cluster: its pods with their times, the policies' status, events."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from adapters.api import EVENTS, NODES, PODS, POLICIES, RESERVATIONS, Resource
from adapters.kubernetes import decode
from qos.cluster.objects import Node, Pod
from qos.keys import SCENARIO_WORKLOAD_LABEL


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str | None = ""


class _PodStatus(msgspec.Struct):
    conditions: list[_Condition] | None = None


class _PodWire(msgspec.Struct):
    status: _PodStatus | None = None


class _Regarding(msgspec.Struct):
    name: str = ""


class _Series(msgspec.Struct):
    count: int = 0


class _EventWire(msgspec.Struct, rename="camel"):
    reason: str = ""
    regarding: _Regarding | None = None
    note: str | None = ""
    series: _Series | None = None
    deprecated_count: int | None = None


_POD = msgspec.json.Decoder(_PodWire)
_EVENT = msgspec.json.Decoder(_EventWire)


@dataclass(slots=True)
class PodRecord:
    """One pod over its life. Times are when the watch showed it, seconds since the epoch; None: not yet."""

    pod: Pod
    created: float
    bound: float | None = None
    gone: float | None = None
    evicted: bool = False
    message: str = ""
    """Why it waits, as kube-scheduler put it."""

    @property
    def runs(self) -> bool:
        """On a node, not ended, not ending."""
        return (
            bool(self.pod.node_name) and self.gone is None and not self.pod.terminal and not self.pod.deleting
        )

    @property
    def waits(self) -> bool:
        """Wants a node and has none."""
        return (
            not self.pod.node_name and self.gone is None and not self.pod.terminal and not self.pod.deleting
        )

    @property
    def took(self) -> float | None:
        """Seconds from creation to bind."""
        return None if self.bound is None else self.bound - self.created


@dataclass(slots=True)
class EventRecord:
    """An event, with how often it was repeated."""

    reason: str
    about: str
    note: str
    count: int


@dataclass(slots=True)
class Observation:
    """All of it, for one namespace; `changed` is set whenever something is seen."""

    namespace: str
    pods: dict[str, PodRecord] = field(default_factory=dict)
    policies: dict[str, dict[str, Any]] = field(default_factory=dict)
    reservations: dict[str, dict[str, Any]] = field(default_factory=dict)
    events: dict[str, EventRecord] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    remembered: dict[str, set[str]] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def see(self, resource: Resource, raw: bytes, at: float, *, deleted: bool) -> None:
        """An object as it became, or its last state when it is gone."""
        if resource == PODS:
            self._see_pod(raw, at, deleted)
        elif resource == EVENTS:
            self._see_event(raw)
        elif resource == NODES:
            node = decode.node(raw)
            self.nodes[node.name] = node
            if deleted:
                del self.nodes[node.name]
        elif resource == RESERVATIONS:
            thing = msgspec.json.decode(raw)
            self.reservations[thing["metadata"]["name"]] = {} if deleted else thing.get("status") or {}
        elif resource == POLICIES:
            thing = msgspec.json.decode(raw)
            if thing["metadata"]["namespace"] == self.namespace:
                self.policies[thing["metadata"]["name"]] = {} if deleted else thing.get("status") or {}
        self.changed.set()

    def held_on(self, policy: str) -> set[str]:
        """Nodes on which a policy's status shows holds."""
        return {hold["nodeName"] for hold in self.policies.get(policy, {}).get("holds") or ()}

    def remember(self, policy: str) -> None:
        """Keep in mind where a policy's slots are held now."""
        self.remembered[policy] = self.held_on(policy)

    def workload(self, name: str) -> list[PodRecord]:
        """Every pod there ever was of a workload, the oldest first."""
        return [r for r in self.pods.values() if r.pod.labels.get(SCENARIO_WORKLOAD_LABEL) == name]

    def workloads(self) -> list[str]:
        """Names of the workloads whose pods were seen, in the order of their appearance."""
        names = (r.pod.labels.get(SCENARIO_WORKLOAD_LABEL, "") for r in self.pods.values())
        return list(dict.fromkeys(name for name in names if name))

    def evictions(self) -> int:
        """Pods that were evicted to make room for others."""
        return sum(record.evicted for record in self.pods.values())

    def _see_pod(self, raw: bytes, at: float, deleted: bool) -> None:
        pod = decode.pod(raw)
        if pod.namespace != self.namespace:
            return
        record = self.pods.setdefault(pod.uid, PodRecord(pod, at))
        record.pod = pod
        if pod.node_name and record.bound is None:
            record.bound = at
        if deleted:
            record.gone = at
        for condition in conditions_of(raw):
            if condition.type == "DisruptionTarget" and condition.status == "True":
                record.evicted = True
            if condition.type == "PodScheduled":
                record.message = condition.message or ""

    def _see_event(self, raw: bytes) -> None:
        meta = decode.metadata(raw)
        wire = _EVENT.decode(raw)
        count = max(wire.series.count if wire.series else 0, wire.deprecated_count or 0, 1)
        about = wire.regarding.name if wire.regarding else ""
        self.events[meta.uid] = EventRecord(wire.reason, about, wire.note or "", count)


def conditions_of(raw: bytes) -> Iterable[_Condition]:
    """A pod's conditions."""
    status = _POD.decode(raw).status
    return (status.conditions if status else None) or ()
