"""Which nodes are low and which are high: usage against thresholds of a pool, all pods' or prod pods'."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from qos.cluster.objects import Node
from qos.cluster.running import NodeUsage
from rescheduling.settings import Settings, Thresholds


@dataclass(slots=True)
class Gauge:
    """What a node uses in this round; whoever plans a migration changes it.

    `used`: as measured; `charged`: what comes in beside that, or is not measured yet. `prod`: whether it
    counts prod pods alone.
    """

    node: Node
    used: dict[str, int]
    charged: dict[str, int]
    prod: bool = False

    def percent(self, resource: str, more: int = 0) -> float:
        """Of allocatable; of nothing everything is 100."""
        has = self.node.allocatable.get(resource, 0)
        amount = self.used.get(resource, 0) + self.charged.get(resource, 0) + more
        return 100.0 * amount / has if has > 0 else 100.0

    def measured(self, resource: str) -> float:
        """The same without what is charged."""
        has = self.node.allocatable.get(resource, 0)
        return 100.0 * self.used.get(resource, 0) / has if has > 0 else 100.0

    def take(self, amounts: Mapping[str, int]) -> None:
        """These leave."""
        for name, amount in amounts.items():
            self.used[name] = self.used.get(name, 0) - amount

    def charge(self, amounts: Mapping[str, int]) -> None:
        """These come."""
        for name, amount in amounts.items():
            self.charged[name] = self.charged.get(name, 0) + amount


@dataclass(frozen=True, slots=True)
class Bounds:
    """Percent of allocatable by resource, the same for all nodes of a pool."""

    low: Mapping[str, float]
    high: Mapping[str, float]

    def over(self, gauge: Gauge) -> list[str]:
        """Resources of which the node uses more than high, by name; without what is charged."""
        return [name for name in self.high if gauge.measured(name) > self.high[name]]

    def is_low(self, gauge: Gauge) -> bool:
        """Whether it uses no more than low of any resource, what is charged included."""
        return not gauge.node.unschedulable and all(
            gauge.percent(name) <= least for name, least in self.low.items()
        )

    def has_room(self, gauge: Gauge, more: Mapping[str, int], margin: float) -> bool:
        """Whether it stays so many percentage points below high with that on top."""
        return all(
            gauge.percent(name, more.get(name, 0)) <= most - margin for name, most in self.high.items()
        )


@dataclass(frozen=True, slots=True)
class Loads:
    """The nodes of a pool by name, and their bounds: of what all pods use, and of what prod pods do.

    A node of `gauges` is in `prods`, too.
    """

    gauges: Mapping[str, Gauge]
    prods: Mapping[str, Gauge]
    all: Bounds
    prod: Bounds

    def of(self, *, prod: bool) -> Mapping[str, Gauge]:
        """The nodes, by one measure."""
        return self.prods if prod else self.gauges

    def bounds(self, *, prod: bool) -> Bounds:
        """The bounds of that measure."""
        return self.prod if prod else self.all


def bounds(thresholds: Thresholds, gauges: Iterable[Gauge], *, deviation: bool) -> Bounds:
    """The thresholds as they are, or as distances from what all these nodes use of all that they have.

    The mean is of amounts and not of percentages: it does not change when a pod goes from a small node to a
    large one, so no migration makes another node hot.
    """
    names = thresholds.resources
    if not deviation:
        return Bounds({n: thresholds.low[n] for n in names}, {n: thresholds.high[n] for n in names})
    gauges = list(gauges)
    low, high = {}, {}
    for name in names:
        has = sum(one.node.allocatable.get(name, 0) for one in gauges)
        used = sum(one.used.get(name, 0) for one in gauges)
        mean = 100.0 * used / has if has else 0.0
        low[name] = max(0.0, mean - thresholds.low[name])
        high[name] = min(100.0, mean + thresholds.high[name])
    return Bounds(low, high)


def may_move(settings: Settings, nodes: Mapping[str, Node], reports: Mapping[str, NodeUsage]) -> bool:
    """Whether it matters what single pods use: some node is high, or that cannot be told without them."""
    if any(pool.deviation or pool.prod.high for pool in settings.pools):
        return True
    limits = [
        Bounds({}, {name: pool.all.high[name] for name in pool.all.resources}) for pool in settings.pools
    ]
    gauges = [Gauge(node, dict(reports[name].usage), {}) for name, node in nodes.items() if name in reports]
    return any(limit.over(gauge) for gauge in gauges for limit in limits)


def score(gauge: Gauge, weights: Mapping[str, int], names: Iterable[str]) -> float:
    """The weighted mean of what it uses, percent; a resource without a weight has 1."""
    names = list(names)
    total = sum(weights.get(name, 1) for name in names)
    return sum(weights.get(name, 1) * gauge.percent(name) for name in names) / total if total else 0.0
