"""How many pods may be under way: of a node, a namespace, a workload, and in a minute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from qos.cluster.running import RunningPod
from rescheduling.records import Migration, World
from rescheduling.settings import MINUTE, Limits


def allowed(replicas: int, limit: float | None) -> int:
    """How many of so many replicas; a part is rounded up, and is one at least."""
    if limit is None:
        if replicas < 4:
            return 1
        return 2 if replicas <= 10 else -(-replicas // 10)
    if isinstance(limit, int):
        return limit
    return max(1, -int(-replicas * limit // 1))


class Budgets:
    """What is under way, and what a round adds to it."""

    def __init__(self, world: World, limits: Limits, now: float) -> None:
        self._limits = limits
        self._left = limits.minute - sum(now - at < MINUTE for at in world.begun)
        self._nodes: Counter[str] = Counter()
        self._namespaces: Counter[str] = Counter()
        self._workloads: Counter[str] = Counter()
        self._replicas: Counter[str] = Counter()
        self._unready: Counter[str] = Counter()
        self._moving: set[str] = set()
        for one in world.under_way:
            self._count(one)
        for running in _all(world):
            self._replicas[running.workload] += 1
            if (not running.ready or running.pod.deleting) and running.pod.uid not in self._moving:
                self._unready[running.workload] += 1

    def _count(self, one: Migration) -> None:
        self._moving.add(one.uid)
        self._nodes.update((one.source, one.target))
        self._namespaces[one.namespace] += 1
        self._workloads[one.workload] += 1

    @property
    def spent(self) -> str:
        """Why no pod at all may be moved now, "" if one may."""
        return "" if self._left > 0 else f"{self._limits.minute} migrations began in the last minute"

    def full(self, node: str) -> str:
        """Why none may leave this node or come to it, "" if one may."""
        busy = self._nodes[node] >= self._limits.node
        return f"{self._limits.node} migrations of the node are under way" if busy else ""

    def refusal(self, running: RunningPod) -> str:
        """Why this pod may not be moved now, "" if it may."""
        limits, workload = self._limits, running.workload
        if running.pod.uid in self._moving:
            return "it is being moved"
        most = limits.namespace
        if most is not None and self._namespaces[running.pod.namespace] >= most:
            return f"{most} migrations of its namespace are under way"
        replicas, moving = self._replicas[workload], self._workloads[workload]
        if replicas < 2:
            return "it is the only pod of its workload"
        if moving >= allowed(replicas, limits.workload):
            return f"{moving} of {replicas} pods of its workload are being moved"
        if moving + self._unready[workload] >= allowed(replicas, limits.unavailable):
            return f"{moving + self._unready[workload]} of {replicas} pods of its workload are not available"
        return ""

    def spend(self, one: Migration) -> None:
        """It begins."""
        self._left -= 1
        self._count(one)


def _all(world: World) -> Iterable[RunningPod]:
    return (running for pods in world.pods.values() for running in pods)
