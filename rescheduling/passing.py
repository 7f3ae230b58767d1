"""One pass over the abnormal nodes of a pool: which pods leave them, and for where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from qos.cluster.running import PROD, RunningPod
from rescheduling.budgets import Budgets
from rescheduling.candidates import (
    expected,
    failed_lately,
    helps,
    obstacle,
    ordered,
    times_of,
    unrested,
)
from rescheduling.classifying import Bounds, Gauge, Loads, score
from rescheduling.fitting import Targets, target_of
from rescheduling.records import Migration, World
from rescheduling.settings import Pool, Settings


class Pass:
    """What all pods use, or what prod pods use (prod_only). `migrations`, and `hot` as Round has it."""

    def __init__(
        self,
        settings: Settings,
        pool: Pool,
        world: World,
        budgets: Budgets,
        now: float,
        *,
        prod_only: bool,
    ) -> None:
        self._settings, self._pool, self._world = settings, pool, world
        self._budgets, self._now, self._prod_only = budgets, now, prod_only
        self.migrations: list[Migration] = []
        self.hot: dict[str, str] = {}

    def run(self, abnormal: Iterable[str], low: Iterable[str], loads: Loads) -> None:
        """Relieve them, the fullest first."""
        world, gauges, prods = self._world, loads.gauges, loads.prods
        own, limit = loads.of(prod=self._prod_only), loads.bounds(prod=self._prod_only)
        coming: dict[str, list[Migration]] = {}
        for one in world.under_way:
            coming.setdefault(one.target, []).append(one)
        found = (
            target_of(gauges[name], prods[name], world.pods.get(name, ()), coming.get(name, ()))
            for name in low
            if name in gauges and not loads.all.over(gauges[name])
        )
        targets = Targets(self._pool, found, loads, self._settings.change, self._budgets)
        weights, names = self._pool.weights, tuple(limit.high)
        for name in sorted(abnormal, key=lambda name: (-score(own[name], weights, names), name)):
            if name in gauges:
                self._relieve(own[name], gauges[name], prods[name], limit, targets)

    def _relieve(self, own: Gauge, gauge: Gauge, prod: Gauge, limit: Bounds, targets: Targets) -> None:
        """Plan migrations until the node is not high any more, or nothing more can be done now."""
        node = own.node.name
        why: Counter[str] = Counter()
        for running in self._candidates(own, limit, why):
            over = limit.over(own)
            if not over:
                break
            stopped = self._budgets.spent or self._budgets.full(node)
            if stopped:
                why = Counter({stopped: 1})
                break
            refused = self._refusal(running, own, over)
            usage = self._world.usage.get(running.pod.key, {})
            target = None if refused else targets.best(running, usage)
            if target is None:
                why[refused or "no low node takes it and stays below high"] += 1
                continue
            target.charge(running, usage)
            gauge.take(usage)
            if running.band == PROD:
                prod.take(usage)
            self._begin(running, node, target.all, usage, own, over)
        over = limit.over(own)
        if over:
            self.hot[node] = _told(own, limit, over, why)

    def _candidates(self, own: Gauge, limit: Bounds, why: Counter[str]) -> list[RunningPod]:
        """Pods that may be moved at all, in order; why: what is to be said of the others."""
        found = []
        over = limit.over(own)
        for running in self._world.pods.get(own.node.name, ()):
            reason = obstacle(running, self._settings)
            if self._prod_only and running.band != PROD:
                reason = reason or "it is not a prod pod"
            if not reason and running.pod.key not in self._world.usage:
                reason = "nobody says what it uses"
            if reason:
                why[reason] += 1
            else:
                found.append(running)
        excess = {name: own.measured(name) - limit.high[name] for name in over}
        return ordered(found, self._world.usage, own, excess)

    def _refusal(self, running: RunningPod, own: Gauge, over: Sequence[str]) -> str:
        """Why this pod may not be moved now, "" if it may."""
        settings, now = self._settings, self._now
        if running.pod.deleting or not running.ready:
            return "it is not ready"
        if not helps(self._world.usage[running.pod.key], own, over):
            return "it uses too little of what is scarce"
        if failed_lately(running.workload, self._world.failures, settings, now):
            return "a migration of its workload failed not long ago"
        then = expected(self._world.pods[own.node.name])
        return unrested(running.moved, then, own, over, settings, now) or self._budgets.refusal(running)

    def _begin(
        self,
        running: RunningPod,
        source: str,
        target: Gauge,
        usage: Mapping[str, int],
        own: Gauge,
        over: Sequence[str],
    ) -> None:
        then = {name: target.used.get(name, 0) + target.charged.get(name, 0) for name in own.used}
        one = Migration(
            pod=running.pod.key,
            uid=running.pod.uid,
            workload=running.workload,
            source=source,
            target=target.node.name,
            usage=dict(usage),
            requests=running.pod.requests,
            expected=then,
            times=times_of(running, self._now),
            why=f"{source} uses too much {' and '.join(over)}",
            prod=running.band == PROD,
            at=self._now,
        )
        self.migrations.append(one)
        self._budgets.spend(one)


def _told(own: Gauge, limit: Bounds, over: Sequence[str], why: Counter[str]) -> str:
    """For people: how hot the node is, and what keeps its pods there."""
    whose = "prod pods use" if own.prod else "it uses"
    amounts = " and ".join(
        f"{own.measured(name):.0f} % of {name} (high {limit.high[name]:.0f})" for name in over
    )
    rest = "; ".join(f"{count} pods: {text}" if count > 1 else text for text, count in why.most_common(3))
    return f"{whose} {amounts}{': ' + rest if rest else ''}"
