"""A cluster in virtual seconds around the product's own decisions, and one without them.

What is played: kube-scheduler (filters and preemption of simulation.scheduler), controllers that make a pod
again, kubelets. What is real: ledger.Ledger with quota.limits.Limits, extender.giving_back.GivingBack.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from adapters.api import NODES, PODS
from adapters.kubernetes import decode
from adapters.kubernetes.events import EventWriter
from adapters.memory import MemoryAPI, timestamp
from extender.config import GiveBack
from extender.giving_back import GivingBack
from extender.metrics import Metrics
from extender.view import View
from ledger.decisions import Mode
from ledger.ledger import Ledger
from qos import keys
from qos.cluster.objects import Pod
from qos.cluster.quota import ElasticQuota
from quota.limits import Limits
from simulation.scheduler.cache import EXTENDER, EXTENDER_NEVER, Cache
from simulation.scheduler.preemption import cheapest, dry_run

EPOCH: Final = 1_750_000_000
NAMESPACE: Final = "work"
STARTS_SECONDS: Final = 1
"""From a pod's Binding until it runs."""
ENDS_SECONDS: Final = 1
"""From a pod's eviction until its room is free."""


@dataclass(slots=True)
class Controller:
    """It keeps one pod, and makes it again when it was evicted.

    `lives`: seconds since it came. `runs`: those of them in which its pod ran.
    """

    name: str
    of: str
    priority: int
    requests: Mapping[str, str]
    arrives: int
    made: int = 0
    pod: str = ""
    bound: int | None = None
    ends: int | None = None
    runs: int = 0
    lives: int = 0

    @property
    def qos(self) -> float:
        """The part of its life in which its pod ran."""
        return self.runs / self.lives if self.lives else 1.0


class _Served(MemoryAPI):
    """The API server; who is evicted ends a while later."""

    def __init__(self, cluster: PlayedCluster) -> None:
        super().__init__(clock=cluster.wall)
        self._cluster = cluster

    async def evict(
        self,
        namespace: str,  # noqa: ARG002 - of the interface
        name: str,
        uid: str,  # noqa: ARG002
        *,
        dry_run: bool = False,
    ) -> None:
        if not dry_run:
            self._cluster.end(name)

    async def patch(self, *args: Any, **named: Any) -> bytes:
        answer = await super().patch(*args, **named)
        self._cluster.show(args[2])
        return answer


@dataclass
class PlayedCluster:
    """So many equal nodes. quotas: None plays kube-scheduler alone."""

    nodes: int
    allocatable: Mapping[str, str]
    quotas: Iterable[ElasticQuota] | None = None
    give_back: GiveBack = field(default_factory=GiveBack)
    now: int = 0
    evictions: int = 0
    used: list[int] = field(default_factory=list)
    """How many pods had a node, at each second."""

    def __post_init__(self) -> None:
        self.controllers: dict[str, Controller] = {}
        self._pods: dict[str, Pod] = {}
        self._owner: dict[str, Controller] = {}
        self._cache, self._view, self._limits = Cache(), View(), Limits()
        self._extended = self.quotas is not None
        self._ledger = Ledger(Mode.STRICT, cap_percent=100, quotas=self._limits)
        self._api = _Served(self)
        for one in self.quotas or ():
            self._ledger.set_quota(one)
        for number in range(self.nodes):
            self._add_node(f"n{number:02}")
        metrics = Metrics()
        events = EventWriter(self._api, lambda _: None, identity="played", clock=self.clock, wall=self.wall)
        self._giving = GivingBack(
            self._api,
            self._ledger,
            self._limits,
            self._view,
            events,
            metrics,
            self.give_back,
            schedulers=["default-scheduler"],
            clock=self.clock,
            wall=self.wall,
        )
        self._changed = True

    def clock(self) -> float:
        return float(self.now)

    def wall(self) -> float:
        return float(EPOCH + self.now)

    def _add_node(self, name: str) -> None:
        stored = self._api.put(
            NODES,
            {
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
                "status": {
                    "allocatable": dict(self.allocatable),
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            },
        )
        node = decode.node(orjson.dumps(stored))
        self._ledger.set_node(node)
        self._cache.set_node(node)

    # --- time ---

    def play(self, controllers: Iterable[Controller], seconds: int) -> None:
        """Let them arrive when they do, and time pass."""
        coming = sorted(controllers, key=lambda one: one.arrives)
        asyncio.run(self._play(coming, seconds))

    async def _play(self, coming: list[Controller], seconds: int) -> None:
        while self.now < seconds:
            self._ended()
            while coming and coming[0].arrives <= self.now:
                one = coming.pop(0)
                self.controllers[one.name] = one
                self._make(one)
            await self._schedule()
            if self._extended:
                await self._giving.run_once()
            self._count()
            self.now += 1

    def _count(self) -> None:
        self.used.append(sum(one.bound is not None for one in self.controllers.values()))
        for one in self.controllers.values():
            one.lives += 1
            started = one.bound is not None and self.now >= one.bound + STARTS_SECONDS
            one.runs += started and one.ends is None

    # --- controllers and kubelets ---

    def _make(self, one: Controller) -> None:
        one.made += 1
        one.pod, one.bound, one.ends = f"{one.name}-{one.made}", None, None
        self._owner[one.pod] = one
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": one.name, "uid": one.name}
        self._api.put(
            PODS,
            {
                "metadata": {
                    "namespace": NAMESPACE,
                    "name": one.pod,
                    "labels": {keys.QUOTA_NAME_LABEL: one.of},
                    "ownerReferences": [owner | {"controller": True}],
                },
                "spec": {
                    "containers": [{"name": "main", "resources": {"requests": dict(one.requests)}}],
                    "schedulerName": "default-scheduler",
                    "priority": one.priority,
                },
                "status": {"phase": "Pending"},
            },
        )
        self.show(one.pod)

    def end(self, name: str) -> None:
        """A pod is evicted, or preempted."""
        one = self._owner[name]
        if one.ends is not None or one.pod != name:
            return
        one.ends = self.now + ENDS_SECONDS
        self.evictions += 1
        body = self._api.get_object(PODS, NAMESPACE, name)
        body["metadata"]["deletionTimestamp"] = timestamp(self.wall())
        self._api.put(PODS, body)
        self.show(name)

    def _ended(self) -> None:
        for one in self.controllers.values():
            if one.ends is not None and one.ends <= self.now:
                pod = self._pods.pop(one.pod)
                self._api.remove(PODS, NAMESPACE, one.pod)
                self._ledger.remove_pod(pod.uid)
                self._view.remove_pod(pod.uid)
                self._cache.drop(pod.uid)
                self._make(one)

    def show(self, name: str) -> None:
        """All who watch see a pod as it is now."""
        raw = orjson.dumps(self._api.get_object(PODS, NAMESPACE, name))
        pod = self._pods[name] = decode.pod(raw)
        self._ledger.set_pod(pod)
        self._view.set_pod(pod)
        if pod.node_name:
            self._cache.put(pod, pod.node_name, raw)
        self._cache.nominate(pod, "" if pod.node_name else pod.nominated_node_name)
        self._changed = True

    # --- kube-scheduler ---

    async def _schedule(self) -> None:
        """Whoever waits is tried when anything has changed, by priority, then by age; where one was in vain,
        others like it are as well.
        """
        while self._changed:
            self._changed, in_vain = False, set[tuple[int, str]]()
            waiting = [pod for pod in self._pods.values() if not pod.node_name and not pod.deleting]
            for pod in sorted(waiting, key=lambda one: (-one.priority, one.created, one.uid)):
                kind = pod.priority, self._owner[pod.name].of
                if pod.nominated_node_name or kind not in in_vain:
                    if await self._attempt(self._pods[pod.name]):
                        in_vain.clear()
                    else:
                        in_vain.add(kind)
                else:
                    self._refused(pod)

    async def _attempt(self, pod: Pod) -> bool:
        """Whether it is bound, or others end for it."""
        statuses = dict(self._cache.obstacles(pod))
        names = [name for name, why in statuses.items() if not why]
        if pod.nominated_node_name in names:
            names.remove(pod.nominated_node_name)
            names.insert(0, pod.nominated_node_name)
        for node in self._passed(pod, names, statuses):
            if await self._bound(pod, node):
                return True
        self._refused(pod)
        if self._victims_end(pod):
            return False
        return self._preempt(pod, {name: why for name, why in statuses.items() if why})

    def _passed(self, pod: Pod, names: list[str], statuses: dict[str, str]) -> Iterator[str]:
        """The nodes that are left, the emptiest first; the pod's own nominated one before."""
        passed = names
        if self._extended and names:
            answer = self._ledger.filter(pod, names, self.clock())
            passed = answer.nodes
            for name in answer.refused(names):
                statuses[name] = EXTENDER if name in answer.resolvable else EXTENDER_NEVER
        own = pod.nominated_node_name
        yield from sorted(passed, key=lambda name: (name != own, -self._cache.left(name), name))

    async def _bound(self, pod: Pod, node: str) -> bool:
        if self._extended and self._ledger.bind(pod, node, self.clock()).refusal:
            return False
        await self._api.bind(NAMESPACE, pod.name, pod.uid, node, {})
        self._ledger.bound(pod.uid, node)
        self.show(pod.name)
        self._owner[pod.name].bound = self.now
        return True

    def _refused(self, pod: Pod) -> None:
        """Its condition says so."""
        if pod.unschedulable_since:
            return
        body = self._api.get_object(PODS, NAMESPACE, pod.name)
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        body["status"]["conditions"] = [condition | {"lastTransitionTime": timestamp(self.wall())}]
        self._api.put(PODS, body)
        self.show(pod.name)

    def _victims_end(self, pod: Pod) -> bool:
        there = self._cache.on.get(pod.nominated_node_name, {}).values()
        return any(one.pod.deleting for one in there)

    def _preempt(self, pod: Pod, statuses: Mapping[str, str]) -> bool:
        victims = dry_run(self._cache, pod, statuses)
        if not victims:
            return False
        if self._extended:
            asked = {node: [one.pod.uid for one in there] for node, there in victims.items()}
            kept = set(self._ledger.preempt(pod, asked, self.clock()))
            victims = {node: there for node, there in victims.items() if node in kept}
        node = cheapest(victims)
        if not node:
            return False
        body = self._api.get_object(PODS, NAMESPACE, pod.name)
        body["status"]["nominatedNodeName"] = node
        self._api.put(PODS, body)
        self.show(pod.name)
        for one in victims[node]:
            self.end(one.pod.name)
        return True
