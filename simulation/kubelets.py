"""kubelets: each admits pods in the order in which they come to its node, and refuses what does not fit.

kubelet looks at more (topology, memory that is really free), and at all again once it restarts: left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from adapters.api import NODES, PODS, Resource
from qos.cluster.objects import Pod
from simulation import parsed
from simulation.chance import Chance
from simulation.history import World
from simulation.loop import VirtualLoop
from simulation.store import Body, Entry, Store

if TYPE_CHECKING:
    from simulation.placeholder_watcher import PlaceholderWatcher


class Kubelets:
    """Admission by what pods request, at once; that a pod was refused the API server hears later."""

    def __init__(
        self, world: World, store: Store, loop: VirtualLoop, chance: Chance, told: PlaceholderWatcher
    ) -> None:
        self._world, self._store, self._loop, self._chance, self._told = world, store, loop, chance, told
        self._admitted: dict[str, dict[str, Pod]] = {}
        """By node and UID, as they were admitted: one that grows beyond its node stays as it was."""
        self._refused: set[str] = set()
        store.listeners.append(self._see)

    def _see(self, resource: Resource, entry: Entry, _before: Body | None) -> None:
        if resource is not PODS:
            return
        pod = parsed.pod(entry.raw)
        there = self._admitted.setdefault(pod.node_name, {})
        if entry.type == "DELETED" or pod.terminal:
            there.pop(pod.uid, None)
        elif not pod.node_name or pod.uid in self._refused:
            return
        elif problem := self._problem(pod, there):
            if pod.uid not in there:
                self._refuse(pod, problem)
        else:
            there[pod.uid] = pod

    def _problem(self, pod: Pod, there: Mapping[str, Pod]) -> str:
        """Of which resource it asks for more than others leave on its node, "" none."""
        name = pod.node_name
        if self._store.find(NODES, "", name) is None:
            return ""
        node = parsed.node(self._store.raw(NODES, "", name))
        others = [one for one in there.values() if one.uid != pod.uid]
        for resource, amount in pod.requests.items():
            used = sum(one.requests.get(resource, 0) for one in others)
            if amount and used + amount > node.allocatable.get(resource, 0):
                return resource
        return ""

    def _refuse(self, pod: Pod, resource: str) -> None:
        self._refused.add(pod.uid)
        self._told.refused(pod, resource)
        after = self._chance.between(0.0, self._world.refuses, "refuses", pod.name, pod.uid)
        self._loop.call_later(after, self._say, pod, f"OutOf{resource}")

    def _say(self, pod: Pod, reason: str) -> None:
        body = self._store.find(PODS, pod.namespace, pod.name)
        if body is not None and body["metadata"]["uid"] == pod.uid:
            self._store.write(
                PODS, {**body, "status": {**body["status"], "phase": "Failed", "reason": reason}}
            )
