"""Nodes, the pods that occupy them, and what is left, in the checker's own account."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from lab.promises import Promise
from qos.cluster.objects import DaemonSet, Node, Pod, Resources
from qos.cluster.selectors import admits
from qos.keys import BANDWIDTHS


@dataclass(slots=True)
class OccupiedNode:
    """A node and the pods that count against it. `used`: the sum of their requests."""

    node: Node
    pods: dict[str, Pod] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)

    def take(self, pod: Pod) -> None:
        """Count a pod."""
        self.pods[pod.uid] = pod
        add(self.used, pod.requests, 1)

    def give(self, uid: str) -> None:
        """Stop counting a pod."""
        add(self.used, self.pods.pop(uid).requests, -1)

    def ever_fits(self, requests: Resources) -> bool:
        """Whether a pod could come to the node at all, were it empty."""
        have = self.node.allocatable
        return all(amount <= have.get(name, 0) for name, amount in requests.items() if amount > 0)

    def over_committed(self) -> dict[str, int]:
        """Dimensions in which more is bound than the node has, with the excess.

        Not bandwidth where none is published: pods that are owed some may run there without it.
        """
        have = self.node.allocatable
        named = (name for name in self.used if have.get(name, 0) or name not in BANDWIDTHS.values())
        return {n: self.used[n] - have.get(n, 0) for n in named if self.used[n] > have.get(n, 0)}


def add(total: dict[str, int], vector: Resources, sign: int) -> None:
    """Add (1) or subtract (-1) a vector in place."""
    for name, amount in vector.items():
        total[name] = total.get(name, 0) + sign * amount


class Occupancy:
    """All nodes and pods. A pod occupies its node from the Binding until it is gone, or Succeeded or
    Failed.
    """

    def __init__(self) -> None:
        self.places: dict[str, OccupiedNode] = {}
        self.pods: dict[str, Pod] = {}
        self.daemon_sets: dict[str, DaemonSet] = {}
        self._on_unknown_node: dict[str, dict[str, Pod]] = {}
        self._nominated: dict[str, dict[str, Pod]] = {}

    def set_node(self, node: Node) -> None:
        """A node as it is now."""
        place = self.places.get(node.name)
        if place is not None:
            place.node = node
            return
        place = self.places[node.name] = OccupiedNode(node)
        for pod in self._on_unknown_node.pop(node.name, {}).values():
            place.take(pod)

    def remove_node(self, name: str) -> None:
        """A node is gone; pods still bound to it keep their account in case it comes back."""
        place = self.places.pop(name, None)
        if place is not None and place.pods:
            self._on_unknown_node[name] = place.pods

    def set_pod(self, pod: Pod) -> None:
        """A pod as it is now."""
        self.remove_pod(pod.uid)
        self.pods[pod.uid] = pod
        if pod.node_name and not pod.terminal:
            place = self.places.get(pod.node_name)
            if place is not None:
                place.take(pod)
            else:
                self._on_unknown_node.setdefault(pod.node_name, {})[pod.uid] = pod
        elif pod.nominated_node_name and not pod.node_name and not pod.terminal:
            self._nominated.setdefault(pod.nominated_node_name, {})[pod.uid] = pod

    def remove_pod(self, uid: str) -> None:
        """A pod is gone."""
        pod = self.pods.pop(uid, None)
        if pod is None:
            return
        place = self.places.get(pod.node_name)
        if place is not None and uid in place.pods:
            place.give(uid)
        self._on_unknown_node.get(pod.node_name, {}).pop(uid, None)
        self._nominated.get(pod.nominated_node_name, {}).pop(uid, None)

    def free(self, name: str, *, cautious: bool) -> dict[str, int]:
        """What is free on a node: allocatable minus what is bound.

        `cautious`: minus nominated pods and the DaemonSet pods still expected there as well, which the
        extender must leave room for. A proof that something fits is made cautiously; a proof that it does
        not, is not.
        """
        place = self.places[name]
        left = dict(place.node.allocatable)
        add(left, place.used, -1)
        if cautious:
            for pod in self._nominated.get(name, {}).values():
                add(left, pod.requests, -1)
            for daemon_set in self._expected(place):
                add(left, daemon_set.requests, -1)
        return left

    def _expected(self, place: OccupiedNode) -> Iterable[DaemonSet]:
        there = {pod.controller.uid for pod in place.pods.values() if pod.controller}
        return (
            d
            for d in self.daemon_sets.values()
            if d.uid not in there and place.ever_fits(d.requests) and admits(d.where, place.node)
        )

    def eligible(self, promise: Promise, name: str) -> bool:
        """Whether slots of a promise may lie on a node at all."""
        node = self.places[name].node
        labelled = all(one.key in node.labels for one in promise.spread if one.keyed)
        return node.ready and labelled and admits(promise.where, node)

    def owners_on(self, name: str, promise: Promise) -> int:
        """How many slots of a promise are filled on a node."""
        return sum(promise.owned(pod) for pod in self.places[name].pods.values())
