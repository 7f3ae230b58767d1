"""The player itself: one scheduling cycle at a time, binds beside it; all is forgotten when it is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from adapters.api import NODES, PODS, APIError, NotFound, Unreachable
from adapters.kubernetes.reflector import Reflector
from qos.cluster.objects import Node, Pod
from simulation import parsed
from simulation.api import Client
from simulation.books import PLACEHOLDERS, SCHEDULER
from simulation.chance import Chance
from simulation.history import World
from simulation.loop import Part, VirtualLoop
from simulation.scheduler.cache import EXTENDER, FIT, NEVER, SPREAD, Cache
from simulation.scheduler.informer import Informer
from simulation.scheduler.preemption import Victims, cheapest, dry_run, eligible
from simulation.scheduler.queue import Queue, Queued

CYCLE_SECONDS = 0.002


class Refused(Exception):  # noqa: N818 - what happened
    """A call brought no answer, or one that kube-scheduler takes for an error."""


class Listens(Protocol):
    """Who is told what it does."""

    def stamp(self) -> str:
        """The time, as the API server writes it."""
        ...

    def assumed(self, pod: Pod, node: str) -> None:
        """It has chosen a node."""
        ...

    def unassumed(self, pod: Pod) -> None:
        """It takes its choice back; the Binding may land all the same."""
        ...

    def preempted(self, pod: Pod, node: str, victims: list[Pod], *, asked: bool) -> None:
        """It evicts. asked: all that were to be asked have answered."""
        ...


class Scheduler:
    """kube-scheduler as it comes: it asks nobody."""

    def __init__(
        self,
        world: World,
        api: Client,
        watcher: Listens,
        loop: VirtualLoop,
        chance: Chance,
        evict: Callable[[Pod], None],
    ) -> None:
        self._world, self._api, self._watcher = world, api, watcher
        self._loop, self._chance, self._evict = loop, chance, evict
        self.part = Part(loop)
        self.part.alive = False
        self.cache = Cache(world.skew)
        self.queue = Queue(loop.time, eager=world.eager)
        self._tries: dict[str, int] = {}
        self._uneven: set[tuple[str, str]] = set()
        """Pods and nodes, by name: topology spread alone cost them their nomination there."""
        self._next = 0

    # --- the process ---

    def start(self) -> None:
        """Begin with nothing but what the API server lists."""
        self.part = self._api.part = Part(self._loop)
        self._api.streams.clear()
        self.cache, self.queue = Cache(self._world.skew), Queue(self._loop.time, eager=self._world.eager)
        self._informer = Informer(self.cache, self.queue)
        self.part.call(self._run)

    def kill(self) -> None:
        """The process ends."""
        self.part.kill()

    @property
    def binds(self) -> bool:
        """Whether some pod has its node by the scheduler's own account alone."""
        return any(self.cache.assumed(uid) for uid in self.cache.placed)

    def waiting(self) -> dict[str, tuple[Pod, list[str]]]:
        """Pods without a node, by name, and the nodes that the in-tree filters would let pass if no
        placeholder stood there.
        """
        found = {}
        for raw in self._informer.known.values():
            pod = parsed.pod(raw)
            if (
                pod.scheduler_name != SCHEDULER
                or pod.namespace == PLACEHOLDERS
                or self.cache.assumed(pod.uid)
            ):
                continue
            if not (pod.node_name or pod.terminal or pod.deleting):
                nodes = [n.name for n in self.cache.nodes.values() if not self._beside_placeholders(pod, n)]
                if nodes:
                    found[pod.name] = pod, sorted(nodes)
        return found

    def _beside_placeholders(self, pod: Pod, node: Node) -> str:
        there = [one.pod for one in self.cache.on.get(node.name, {}).values()]
        there += [one for where, one in self.cache.nominated.values() if where == node.name]
        without = [one for one in there if one.namespace == PLACEHOLDERS]
        return self.cache.obstacle(pod, node, without=without)

    def uneven(self) -> set[tuple[str, str]]:
        """Pods without a node and nodes, by name, where topology spread alone is in the way, or was, with the
        room still there, when it cost them their nomination: what others took afterwards was theirs to take.
        """
        pods = [pod for pod in map(parsed.pod, self._informer.known.values()) if not pod.node_name]
        return self._uneven | {
            (pod.name, node.name)
            for pod in pods
            for node in self.cache.nodes.values()
            if self.cache.obstacle(pod, node) == SPREAD
        }

    def _run(self) -> None:
        there, reflectors = self._informer, list[Reflector]()
        handlers = ((NODES, there.set_node, there.remove_node), (PODS, there.set_pod, there.remove_pod))
        for resource, take, drop in handlers:
            reflector = Reflector(self._api, resource, take, drop, clock=self._loop.time, jitter=lambda: 0.5)
            reflectors.append(reflector)
            self.part.start(reflector.run())
        self.part.start(self._schedule(reflectors))
        self.part.start(self._flush())

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(30)
            self.queue.flush()

    # --- the cycle ---

    async def _schedule(self, reflectors: Sequence[Reflector]) -> None:
        """Nothing is tried before all is listed (cmd/kube-scheduler/app/server.go)."""
        for one in reflectors:
            await one.synced.wait()
        while True:
            queued = self.queue.pop()
            if queued is None:
                await self._wait()
                continue
            await asyncio.sleep(CYCLE_SECONDS)
            await self._attempt(queued)

    async def _wait(self) -> None:
        self.queue.news.clear()
        due = self.queue.next_time()
        if due is None:
            await self.queue.news.wait()
            return
        timer = self._loop.call_at(due, self.queue.news.set)
        await self.queue.news.wait()
        timer.cancel()

    async def _attempt(self, queued: Queued) -> None:
        pod = queued.pod
        if pod.deleting or self.cache.assumed(pod.uid):
            self.queue.done(pod.uid)
            return
        self._tries[pod.uid] = self._tries.get(pod.uid, 0) + 1
        statuses: dict[str, str] = {}
        rejectors: set[str] = set()
        try:
            feasible = await self._find(queued, statuses, rejectors)
        except Refused:
            self._failed(queued, frozenset(), "")
            return
        if feasible:
            self._assume(queued, self._choose(pod, feasible))
            return
        nominated = await self._preempt(queued, statuses)
        self._failed(queued, frozenset(rejectors), nominated)

    async def _find(self, queued: Queued, statuses: dict[str, str], rejectors: set[str]) -> list[str]:
        """The nodes that pass; `statuses` says of others why not. Refused: the extender gave no answer."""
        pod = queued.pod
        if pod.nominated_node_name in self.cache.nodes:
            try:
                alone = self._in_tree(pod, [pod.nominated_node_name], statuses, rejectors)
                passed = await self._ask(queued, alone, statuses)
            except Refused:
                passed = []
            if passed:
                return passed
        names = sorted(self.cache.nodes)
        start = self._next % len(names) if names else 0
        fitting = self._in_tree(pod, names[start:] + names[:start], statuses, rejectors)
        passed = await self._ask(queued, fitting, statuses)
        if len(passed) != len(fitting):
            rejectors.add(EXTENDER)
        return passed

    def _in_tree(
        self, pod: Pod, names: list[str], statuses: dict[str, str], rejectors: set[str]
    ) -> list[str]:
        """The in-tree filters, until enough nodes are found (T18)."""
        found = []
        most = self._world.sample or len(names)
        obstacles = self.cache.obstacles(pod)
        for count, name in enumerate(names):
            obstacle = obstacles[name]
            if obstacle:
                statuses[name] = obstacle
                rejectors.add(FIT if obstacle == NEVER else obstacle)
                continue
            statuses.pop(name, None)
            found.append(name)
            if len(found) == most:
                self._next += count + 1
                break
        return found

    async def _ask(self, _queued: Queued, names: list[str], _statuses: dict[str, str]) -> list[str]:
        """Whom else it asks which nodes pass: nobody."""
        return names

    def _choose(self, pod: Pod, names: list[str]) -> str:
        """The best score; ties, and all where nothing is scored, at random."""
        tries = self._tries[pod.uid]

        def score(name: str) -> tuple[float, float]:
            left = round(self.cache.left(name), 2) if self._world.spread else 0.0
            return left, self._chance.share("score", pod.name, tries, name)

        there = [name for name in names if name in self.cache.nodes]
        return max(there or names, key=score)

    # --- binding ---

    def _assume(self, queued: Queued, node: str) -> None:
        pod = queued.pod
        self.queue.done(pod.uid)
        self.cache.put(pod, node)
        self.cache.nominate(pod, "")
        self._watcher.assumed(pod, node)
        self.part.start(self._bind(queued, node))

    async def _bind(self, queued: Queued, node: str) -> None:
        pod = queued.pod
        name = "prebind", pod.name, self._tries[pod.uid]
        if self._chance.happens(self._world.prebind, *name):
            await asyncio.sleep(self._chance.between(0.0, 2.0, *name, "seconds"))
        if await self._bound(pod, node):
            return
        self._watcher.unassumed(pod)
        self._informer.forget(pod.uid)
        self._failed(queued, frozenset(), "")

    async def _bound(self, pod: Pod, node: str) -> bool:
        """The in-tree binder."""
        try:
            await self._api.bind(pod.namespace, pod.name, pod.uid, node, {})
        except (APIError, Unreachable):
            return False
        return True

    # --- failure ---

    def _failed(self, queued: Queued, rejectors: frozenset[str], nominated: str | None) -> None:
        """Back to the queue; condition and nomination are written. `nominated` None: as it was."""
        pod = queued.pod
        raw = self._informer.known.get(pod.uid)
        now = parsed.pod(raw) if raw is not None else None
        if raw is None or now is None or now.node_name or now.terminal:
            self.queue.done(pod.uid)
            return
        queued.pod, queued.raw = now, raw
        if pod.uid not in self.queue.in_flight and self.queue.find(pod.uid) is not None:
            return
        self.queue.fail(queued, rejectors)
        self.cache.nominate(now, now.nominated_node_name if nominated is None else nominated)
        reason = "Unschedulable" if rejectors else "SchedulerError"
        self._write(now, raw, reason, nominated)

    def _write(self, pod: Pod, raw: bytes, reason: str, nominated: str | None) -> None:
        status: dict[str, Any] = {}
        if nominated is not None and nominated != pod.nominated_node_name:
            status["nominatedNodeName"] = nominated or None
        conditions = parsed.conditions(raw)
        if not any(c["type"] == "PodScheduled" and c["reason"] == reason for c in conditions):
            at = self._watcher.stamp()
            condition = {
                "type": "PodScheduled",
                "status": "False",
                "reason": reason,
                "lastTransitionTime": at,
            }
            status["conditions"] = [c for c in conditions if c["type"] != "PodScheduled"] + [condition]
        if status:
            self.part.start(self._patch(pod, status))

    async def _patch(self, pod: Pod, status: dict[str, Any]) -> None:
        body = {"metadata": {"uid": pod.uid}, "status": status}
        try:
            await self._api.patch(PODS, pod.namespace, pod.name, body, subresource="status")
        except (APIError, Unreachable):
            return

    # --- preemption ---

    async def _preempt(self, queued: Queued, statuses: dict[str, str]) -> str | None:
        """Evict, where that helps; the node nominated, "" to clear, None to leave the nomination as it is."""
        raw = self._informer.known.get(queued.pod.uid)
        if raw is None:
            return None
        pod = parsed.pod(raw)
        if parsed.wants(raw).never or not eligible(self.cache, pod, statuses):
            return None
        victims = dry_run(self.cache, pod, statuses)
        if not victims:
            if statuses.get(pod.nominated_node_name) == SPREAD:
                self._uneven.add((pod.name, pod.nominated_node_name))
            return ""
        victims, asked = await self._kept(pod, raw, victims)
        node = cheapest(victims)
        if not node:
            return None
        chosen = [one for one in victims[node] if not one.pod.deleting]
        if chosen:
            self._watcher.preempted(pod, node, [one.pod for one in chosen], asked=asked)
            self._uneven.discard((pod.name, node))
            queued.gated = True
            self.part.start(self._evictions(pod, node, [one.pod for one in chosen]))
        return node

    async def _kept(self, _pod: Pod, _raw: bytes, victims: Victims) -> tuple[Victims, bool]:
        """Candidates that whom else it asks leaves, and whether there was an answer."""
        return victims, True

    async def _evictions(self, pod: Pod, node: str, victims: list[Pod]) -> None:
        """Evict them; the preemptor is not tried before that. Lower nominations there are taken back."""
        for uid, (where, other) in list(self.cache.nominated.items()):
            if where == node and other.priority < pod.priority and uid != pod.uid:
                await self._patch(other, {"nominatedNodeName": None})
        for victim in victims:
            try:
                await self._api.evict(victim.name, partial(self._evict, victim))
            except NotFound:
                continue
            except (APIError, Unreachable):
                break
        self.queue.ungate(pod.uid)
