"""The rounds of rescheduling: what it remembers between two of them is how long nodes have been hot.

All else that a decision depends on is in the world: when pods were moved, migrations under way and
failed ones are objects. So a restart forgets no migration; nodes must prove anew that they are hot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from qos.cluster.objects import Node
from qos.cluster.running import PROD
from qos.cluster.selectors import matches
from rescheduling.anomaly import Detector
from rescheduling.budgets import Budgets
from rescheduling.classifying import Gauge, Loads, bounds
from rescheduling.fitting import unmeasured
from rescheduling.passing import Pass
from rescheduling.records import Migration, PoolState, Round, World
from rescheduling.settings import Pool, Settings, Thresholds

ALL, PRODS = "", "/prod"


class Rescheduler:
    """One installation's; decide() is called now and then, and not while a call of it runs."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._detectors: dict[tuple[str, str], Detector] = {}
        self._left: dict[str, float] = {}

    def decide(self, world: World, now: float) -> Round:
        """What begins now. `now`: seconds since the epoch, as all times in the world."""
        for one in world.under_way:
            self._left[one.source] = now
        budgets = Budgets(world, self._settings.limits, now)
        begun: list[Migration] = []
        hot: dict[str, str] = {}
        pools: dict[str, PoolState] = {}
        for pool, nodes in self._pools(world):
            for name, state, passed in self._passes(pool, nodes, world, budgets, now):
                pools[name] = state
                if passed is not None:
                    begun += passed.migrations
                    hot |= {node: why for node, why in passed.hot.items() if node not in hot}
        for one in begun:
            self._left[one.source] = now
            for which in (ALL, PRODS):
                self._detector(one.source, which).reset()
        self._forget(world)
        return Round(tuple(begun), hot, pools)

    def _pools(self, world: World) -> Iterator[tuple[Pool, list[Node]]]:
        """Each pool with its nodes, by name; a node is in the first that selects it."""
        found: dict[str, list[Node]] = {pool.name: [] for pool in self._settings.pools}
        for _, node in sorted(world.nodes.items()):
            for pool in self._settings.pools:
                if matches(pool.selector, node.labels):
                    found[pool.name].append(node)
                    break
        return ((pool, found[pool.name]) for pool in self._settings.pools)

    def _passes(
        self, pool: Pool, nodes: Sequence[Node], world: World, budgets: Budgets, now: float
    ) -> Iterator[tuple[str, PoolState, Pass | None]]:
        """First what all pods use, then what prod pods use, of what the first has left."""
        prods = self._gauges(pool.prod, nodes, world, now, prod=True)
        gauges = self._gauges(pool.all, nodes, world, now, prod=False)
        gauges = {name: one for name, one in gauges.items() if name in prods}
        loads = Loads(
            gauges,
            prods,
            bounds(pool.all, gauges.values(), deviation=pool.deviation),
            bounds(pool.prod, prods.values(), deviation=pool.deviation),
        )
        for which in (ALL, PRODS):
            if loads.bounds(prod=bool(which)).high:
                yield self._pass(which, pool, nodes, loads, world, budgets, now)

    def _pass(
        self,
        which: str,
        pool: Pool,
        nodes: Sequence[Node],
        loads: Loads,
        world: World,
        budgets: Budgets,
        now: float,
    ) -> tuple[str, PoolState, Pass | None]:
        own, limit = loads.of(prod=bool(which)), loads.bounds(prod=bool(which))
        low = [name for name, one in own.items() if one.node.ready and limit.is_low(one)]
        high = [name for name, one in own.items() if limit.over(one)]
        for name in own:
            self._mark(pool, which, name, world, high=name in high, low=name in low)
        abnormal = [name for name in high if self._detector(name, which).abnormal]
        counts = PoolState(len(nodes), len(nodes) - len(own), len(low), len(high), len(abnormal))
        state = replace(counts, stopped=self._stopped(counts) or budgets.spent)
        if state.stopped:
            return pool.name + which, state, None
        passed = Pass(self._settings, pool, world, budgets, now, prod_only=bool(which))
        passed.run(abnormal, low, loads)
        return pool.name + which, state, passed

    def _stopped(self, pool: PoolState) -> str:
        """Why nothing moves, by LowNodeLoad's rules and ours of what is not known; "" where it may."""
        settings = self._settings
        if pool.unknown == pool.nodes or pool.nodes - pool.unknown < settings.fresh * pool.nodes:
            return f"{pool.unknown} of {pool.nodes} nodes have not reported what they use"
        if not pool.high:
            return "no node is high"
        if not pool.abnormal:
            return "no node has been high for long enough"
        if pool.low <= settings.fewest_low:
            return f"{pool.low} nodes are low, more than {settings.fewest_low} must be"
        return ""

    def _gauges(
        self, thresholds: Thresholds, nodes: Sequence[Node], world: World, now: float, *, prod: bool
    ) -> dict[str, Gauge]:
        """Nodes whose report is fresh and has all that is looked at; with what it does not show yet."""
        found = {}
        for node in nodes:
            report = world.reports.get(node.name)
            if report is None or now - report.at > self._settings.expiry:
                continue
            used = self._of_prods(node.name, world, report.at, thresholds) if prod else report.usage
            if used is None or any(name not in report.usage for name in thresholds.resources):
                continue
            gauge = found[node.name] = Gauge(node, dict(used), {}, prod)
            for running, amounts in unmeasured(world, node.name, report.at, self._settings.settle):
                if not prod or running.band == PROD:
                    gauge.charge(amounts)
            for one in world.under_way:
                if one.target == node.name and (not prod or one.prod):
                    gauge.charge(one.usage)
        return found

    def _of_prods(
        self, node: str, world: World, at: float, thresholds: Thresholds
    ) -> Mapping[str, int] | None:
        """What prod pods use together; None where one that has run for a while is not measured."""
        total: dict[str, int] = {}
        for running in world.pods.get(node, ()) if thresholds.resources else ():
            if running.band != PROD:
                continue
            used = world.usage.get(running.pod.key)
            if used is None and running.pod.scheduled + self._settings.settle <= at:
                return None
            for name, amount in (used or {}).items():
                total[name] = total.get(name, 0) + amount
        return total

    def _mark(self, pool: Pool, which: str, node: str, world: World, *, high: bool, low: bool) -> None:
        detector = self._detector(node, which)
        if low or self._unsettled(node, world):
            detector.reset()
        else:
            detector.mark(world.reports[node].at, high=high, abnormal=pool.abnormal, normal=pool.normal)

    def _unsettled(self, node: str, world: World) -> bool:
        """Whether its report does not show yet what migrations of it have changed."""
        at, settle = world.reports[node].at, self._settings.settle
        if self._left.get(node, 0.0) + settle > at:
            return True
        if any(node in (one.source, one.target) for one in world.under_way):
            return True
        return any(one.moved and one.moved.at + settle > at for one in world.pods.get(node, ()))

    def _detector(self, node: str, which: str) -> Detector:
        return self._detectors.setdefault((node, which), Detector())

    def _forget(self, world: World) -> None:
        """Nodes that are gone."""
        for key in [key for key in self._detectors if key[0] not in world.nodes]:
            del self._detectors[key]
        for node in [node for node in self._left if node not in world.nodes]:
            del self._left[node]
