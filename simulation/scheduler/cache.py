"""What kube-scheduler believes of nodes and pods: what its watch showed, and what it assumes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qos.cluster.objects import Node, Pod
from qos.keys import ZONE_LABEL
from simulation.parsed import PIN_LABEL

FIT = "NodeResourcesFit"
NEVER = "NodeResourcesFit, whatever is evicted"
TAINT = "TaintToleration"
AFFINITY = "NodeAffinity"
SPREAD = "PodTopologySpread"
EXTENDER = "Extender"
EXTENDER_NEVER = "Extender, whatever is evicted"
RESOLVABLE = frozenset({FIT, EXTENDER})
"""Reasons that an eviction may change (framework code Unschedulable)."""


@dataclass(slots=True)
class Placed:
    """A pod on a node, as seen or assumed; `raw` is empty while it is only assumed."""

    pod: Pod
    node: str
    raw: bytes = b""


class Cache:
    """Nodes, the pods on them, and the pods nominated to them. `only`: the one node where a pod may run."""

    def __init__(self, skew: int = 0) -> None:
        self._skew = skew
        self.nodes: dict[str, Node] = {}
        self.placed: dict[str, Placed] = {}
        self.on: dict[str, dict[str, Placed]] = {}
        self.nominated: dict[str, tuple[str, Pod]] = {}
        self.only: dict[str, str] = {}
        self._used: dict[str, dict[str, int]] = {}
        self._obstacles: dict[str, tuple[Pod, dict[str, str]]] = {}

    def set_node(self, node: Node) -> None:
        """A node as it is now."""
        self.nodes[node.name] = node
        self._obstacles.clear()

    def remove_node(self, name: str) -> None:
        """A node is gone."""
        self.nodes.pop(name, None)
        self._obstacles.clear()

    def put(self, pod: Pod, node: str, raw: bytes = b"") -> None:
        """A pod is on a node: seen there (`raw`), or assumed."""
        self.drop(pod.uid)
        placed = self.placed[pod.uid] = Placed(pod, node, raw)
        self.on.setdefault(node, {})[pod.uid] = placed
        self._count(node, pod, 1)

    def drop(self, uid: str) -> Placed | None:
        """The pod is not there any more."""
        placed = self.placed.pop(uid, None)
        if placed is not None:
            del self.on[placed.node][uid]
            self._count(placed.node, placed.pod, -1)
        return placed

    def assumed(self, uid: str) -> bool:
        """Whether the pod is on a node only by our own account."""
        placed = self.placed.get(uid)
        return placed is not None and not placed.raw

    def nominate(self, pod: Pod, node: str) -> None:
        """Keep a place for a pod; "" for none."""
        if self.nominated.get(pod.uid) == (node, pod):
            return
        if node:
            self.nominated[pod.uid] = node, pod
        elif self.nominated.pop(pod.uid, None) is None:
            return
        self._obstacles.clear()

    def _count(self, node: str, pod: Pod, sign: int) -> None:
        self._obstacles.clear()
        used = self._used.setdefault(node, {})
        for name, amount in pod.requests.items():
            used[name] = used.get(name, 0) + sign * amount

    def left(self, node: str) -> float:
        """Share of the node's CPU that is not requested; 0 where the node has gone meanwhile."""
        have = self.nodes[node].allocatable.get("cpu", 0) if node in self.nodes else 0
        return (have - self._used.get(node, {}).get("cpu", 0)) / have if have else 0.0

    def obstacles(self, pod: Pod) -> dict[str, str]:
        """Of each node, by name: kept until something changes, for pods are tried again and again."""
        known = self._obstacles.get(pod.uid)
        if known is None or known[0] is not pod:
            found = {name: self.obstacle(pod, self.nodes[name]) for name in self.nodes}
            known = self._obstacles[pod.uid] = pod, found
        return known[1]

    def obstacle(self, pod: Pod, node: Node, *, without: Sequence[Pod] = ()) -> str:
        """Why the in-tree filters refuse the node, "" when they do not; `without` these pods, which are on it
        or nominated to it.
        """
        if (pin := pod.labels.get(PIN_LABEL)) is not None and pin != node.name:
            return TAINT
        if not pin and (
            node.unschedulable or (node.taints and any(t.effect != "PreferNoSchedule" for t in node.taints))
        ):
            return TAINT
        if self.only.get(pod.uid, node.name) != node.name:
            return AFFINITY
        used = self._used.get(node.name, {})
        if without or self.nominated:
            used = self._expected(pod, node.name, used, without)
        have, short = node.allocatable, ""
        for name, amount in pod.requests.items():
            there = have.get(name, 0)
            if amount > there:
                return NEVER
            if amount > there - used.get(name, 0):
                short = FIT
        return short or self._uneven(pod, node)

    def _uneven(self, pod: Pod, node: Node) -> str:
        """PodTopologySpread, of workloads' pods; that evicting some of them may help is left out."""
        app = pod.labels.get("app")
        if not self._skew or app is None:
            return ""
        counts = dict.fromkeys((there.labels[ZONE_LABEL] for there in self.nodes.values()), 0)
        for placed in self.placed.values():
            if placed.node in self.nodes and placed.pod.labels.get("app") == app and not placed.pod.deleting:
                counts[self.nodes[placed.node].labels[ZONE_LABEL]] += 1
        over = counts[node.labels[ZONE_LABEL]] + 1 - min(counts.values()) > self._skew
        return SPREAD if over else ""

    def _expected(self, pod: Pod, node: str, used: dict[str, int], without: Sequence[Pod]) -> dict[str, int]:
        """What is used with nominated pods of at least the pod's priority, and without some."""
        left_out = {pod.uid, *(other.uid for other in without)}
        nominated = [
            other
            for uid, (where, other) in self.nominated.items()
            if where == node and uid not in left_out and other.priority >= pod.priority
        ]
        if not (nominated or without):
            return used
        used = dict(used)
        for other in without:
            if other.uid in self.placed:
                add(used, other.requests, -1)
        for other in nominated:
            add(used, other.requests, 1)
        return used


def add(total: dict[str, int], amounts: Mapping[str, int], sign: int) -> None:
    """Add amounts in place, or take them away."""
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + sign * amount
