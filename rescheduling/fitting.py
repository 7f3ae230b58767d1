"""Where a pod of a hot node may go: never to a node that would become hot by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from qos.cluster.objects import Resources
from qos.cluster.running import PROD, RunningPod
from qos.cluster.selectors import admits
from rescheduling.budgets import Budgets
from rescheduling.classifying import Gauge, Loads, score
from rescheduling.records import Migration, World
from rescheduling.settings import ESTIMATE, Pool


@dataclass(slots=True)
class Target:
    """A low node: what it uses in all, what prod pods use of that, and what is not requested of it yet."""

    all: Gauge
    prod: Gauge
    free: dict[str, int]

    def charge(self, running: RunningPod, usage: Resources) -> None:
        """The pod will come."""
        self.all.charge(usage)
        if running.band == PROD:
            self.prod.charge(usage)
        for name, amount in running.pod.requests.items():
            self.free[name] = self.free.get(name, 0) - amount


class Targets:
    """The low nodes of a pool. margin: percentage points that each keeps below high."""

    def __init__(
        self, pool: Pool, targets: Iterable[Target], loads: Loads, margin: float, budgets: Budgets
    ) -> None:
        self._pool = pool
        self._targets = list(targets)
        self._all, self._prod = loads.all, loads.prod
        self._margin = margin
        self._budgets = budgets

    def best(self, running: RunningPod, usage: Resources) -> Target | None:
        """The one that uses least, where the pod may run, fits, and makes nothing hot."""
        names = self._all.high or self._prod.high
        fit = [one for one in self._targets if self._fits(one, running, usage)]
        weights = self._pool.weights
        return min(fit, key=lambda one: (score(one.all, weights, names), one.all.node.name), default=None)

    def _fits(self, one: Target, running: RunningPod, usage: Resources) -> bool:
        node = one.all.node
        if self._budgets.full(node.name) or not admits(running.where, node):
            return False
        if any(amount > one.free.get(name, 0) for name, amount in running.pod.requests.items()):
            return False
        if running.band == PROD and not self._prod.has_room(one.prod, usage, self._margin):
            return False
        return self._all.has_room(one.all, usage, self._margin)


def target_of(gauge: Gauge, prod: Gauge, pods: Sequence[RunningPod], coming: Iterable[Migration]) -> Target:
    """A node as a target; what comes to it is charged already in its gauges."""
    free = dict(gauge.node.allocatable)
    for amounts in (*(one.pod.requests for one in pods), *(one.requests for one in coming)):
        for name, amount in amounts.items():
            free[name] = free.get(name, 0) - amount
    return Target(gauge, prod, free)


def unmeasured(world: World, node: str, at: float, settle: float) -> Iterable[tuple[RunningPod, Resources]]:
    """Pods of a node that its report of `at` does not show yet in full, and what they will use."""
    for running in world.pods.get(node, ()):
        pod = running.pod
        if max(pod.scheduled or pod.created, running.moved.at if running.moved else 0.0) + settle <= at:
            continue
        known = world.usage.get(pod.key, {})
        own: Mapping[str, int] = running.moved.own if running.moved else {}
        asked = {name: pod.requests.get(name, 0) or amount for name, amount in ESTIMATE.items()}
        yield running, own or {name: max(asked.get(name, 0), known.get(name, 0)) for name in {*asked, *known}}
