"""kube-scheduler with an extender: what it asks, and what it does when there is no answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import orjson

from qos.cluster.objects import Pod
from simulation.api import Client
from simulation.chance import Chance
from simulation.history import World
from simulation.loop import VirtualLoop
from simulation.scheduler.cache import EXTENDER, EXTENDER_NEVER
from simulation.scheduler.player import Listens, Refused, Scheduler
from simulation.scheduler.preemption import Victims
from simulation.scheduler.queue import Queued

DECISION_SECONDS = 0.3
BIND_SECONDS = 2.0
"""httpTimeout of the two entries in scheduler-config."""


class Answers(Protocol):
    """The extender, as kube-scheduler calls it."""

    async def call(self, verb: str, body: bytes, timeout: float) -> bytes:  # noqa: ASYNC109 - the scheduler's
        """POST a verb. Refused for anything but 200 within `timeout` seconds."""
        ...


class ListensToCalls(Listens, Protocol):
    """Who is told of the calls as well."""

    def answered(self, pod: Pod, shown: list[str], names: list[str]) -> None:
        """Filter was shown some nodes, and answered."""
        ...

    def unasked(self, pod: Pod) -> None:
        """There was no answer, and the pod goes on without it."""
        ...

    def broken(self, text: str) -> None:
        """An answer that cannot be used."""
        ...


class Extended(Scheduler):
    """With the extender's two entries; both are ignorable in Guard."""

    def __init__(
        self,
        world: World,
        api: Client,
        extender: Answers,
        watcher: ListensToCalls,
        loop: VirtualLoop,
        chance: Chance,
        evict: Callable[[Pod], None],
    ) -> None:
        super().__init__(world, api, watcher, loop, chance, evict)
        self._extender, self._listener = extender, watcher
        self._ignorable = world.mode != "Strict"

    def waiting(self) -> dict[str, tuple[Pod, list[str]]]:
        """Pods without a node, by name, and the nodes that the in-tree filters let pass.

        Left out is who was refused by the in-tree filters alone: no event tells kube-scheduler that a
        nominated pod shrinks, for one, and what it does not notice is not the extender's to tell.
        """
        return {name: one for name, one in super().waiting().items() if not self._refused_in_tree(one[0].uid)}

    def _refused_in_tree(self, uid: str) -> bool:
        queued = self.queue.unschedulable.get(uid)
        return queued is not None and bool(queued.rejectors) and EXTENDER not in queued.rejectors

    async def _ask(self, queued: Queued, names: list[str], statuses: dict[str, str]) -> list[str]:
        """The extender's filter."""
        if not names:
            return []
        body = b'{"Pod":%b,"Nodes":null,"NodeNames":%b}' % (queued.raw, orjson.dumps(names))
        try:
            answer = orjson.loads(await self._extender.call("filter", body, DECISION_SECONDS))
            if answer["Error"]:
                raise Refused(answer["Error"])
        except Refused:
            if not self._ignorable:
                raise
            self._listener.unasked(queued.pod)
            return names
        self._listener.answered(queued.pod, names, answer["NodeNames"])
        statuses.update(dict.fromkeys(answer["FailedNodes"] or (), EXTENDER))
        statuses.update(dict.fromkeys(answer["FailedAndUnresolvableNodes"] or (), EXTENDER_NEVER))
        passed: list[str] = answer["NodeNames"] or []
        if set(passed) - set(names):
            self._listener.broken(f"filter answered {passed}, asked {names}")
        return passed

    async def _bound(self, pod: Pod, node: str) -> bool:
        """The extender's bind, where that is configured; the in-tree binder, where it may."""
        if self._world.binds and await self._bound_by_extender(pod, node):
            return True
        if self._world.binds and not self._ignorable:
            return False
        if self._world.binds:
            self._listener.unasked(pod)
        return await super()._bound(pod, node)

    async def _bound_by_extender(self, pod: Pod, node: str) -> bool:
        body = orjson.dumps(
            {"PodName": pod.name, "PodNamespace": pod.namespace, "PodUID": pod.uid, "Node": node}
        )
        try:
            return not orjson.loads(await self._extender.call("bind", body, BIND_SECONDS))["Error"]
        except Refused:
            return False

    async def _kept(self, pod: Pod, raw: bytes, victims: Victims) -> tuple[Victims, bool]:
        """The extender's preempt."""
        try:
            return await self._allowed(raw, victims), True
        except Refused:
            if not self._ignorable:
                return {}, True
            self._listener.unasked(pod)
            return victims, False

    async def _allowed(self, raw: bytes, victims: Victims) -> Victims:
        asked = {
            node: {"Pods": [{"UID": one.pod.uid} for one in there], "NumPDBViolations": 0}
            for node, there in victims.items()
        }
        body = b'{"Pod":%b,"NodeNameToVictims":null,"NodeNameToMetaVictims":%b}' % (raw, orjson.dumps(asked))
        answer = orjson.loads(await self._extender.call("preempt", body, DECISION_SECONDS))
        kept = answer["NodeNameToMetaVictims"] or {}
        result: Victims = {}
        for node, there in kept.items():
            on = self.cache.on.get(node, {})
            uids = [one["UID"] for one in there["Pods"]]
            if not uids or set(uids) - {one.pod.uid for one in victims.get(node, ())}:
                self._listener.broken(f"preempt answered {uids} on {node}, asked {asked.get(node)}")
            if not uids or any(uid not in on for uid in uids):
                raise Refused("preempt names a pod that is not there")
            result[node] = [on[uid] for uid in uids]
        return result
