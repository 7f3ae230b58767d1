"""What the monitor and the tally show on /metrics; made at a look, nothing at a tick.

Series of pods: only of those with a floor, and they end with the pod. All else: per policy and per node.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from agent.deficit.tally import Tally
from agent.monitor.monitor import Monitor
from agent.monitor.shown import NODE, POD_LABELS, PODS, NodeSeen, Shown

Family = CounterMetricFamily | GaugeMetricFamily

_POLICY: Final = ("namespace", "policy")


class MonitorCollector(Collector):
    """The figures as of the latest tick. clock: monotonic, as the ticks have it."""

    def __init__(
        self,
        monitor: Monitor,
        tally: Tally,
        registry: CollectorRegistry,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monitor, self._tally, self._clock = monitor, tally, clock
        registry.register(self)

    def collect(self) -> Iterator[Family]:
        """One family a metric, whether it has series or not."""
        yield from self._of_pods()
        yield from self._of_node()
        yield from self._of_policies()
        yield self._deficits_of_pods()
        yield self._of_budgets()
        yield self._own()

    def _of_pods(self) -> Iterator[Family]:
        tick = self._monitor.latest
        seen = tick.pods if tick else {}
        pods = self._monitor.watched.items()
        # Of two pods of one name (the old one still ends) the newer is shown: no series may be there twice.
        named = {(one.namespace, one.name): seen[uid] for uid, one in pods if uid in seen}
        for shown in PODS:
            family = _family(shown, POD_LABELS)
            for pod, sample in named.items():
                for labels, value in shown.read(sample):
                    family.add_metric((*pod, *labels), value)
            yield family

    def _of_node(self) -> Iterator[Family]:
        tick = self._monitor.latest
        for shown in NODE:
            family = _family(shown)
            for labels, value in shown.read(NodeSeen(tick.node, self._monitor.levels)) if tick else ():
                family.add_metric(labels, value)
            yield family

    def _of_policies(self) -> Iterator[Family]:
        wanted = _counter(
            "floor_wanted_seconds",
            "Seconds in which pods of the policy wanted their floor, summed over pods.",
            *(*_POLICY, "resource"),
        )
        missed = _counter(
            "floor_deficit_seconds",
            "Of the wanted seconds those in which less than 98 % of the floor was received.",
            *(*_POLICY, "resource"),
        )
        for policy, seconds in self._tally.policies.items():
            for resource, judged in seconds.items():
                wanted.add_metric((*_split(policy), resource), judged.wanted)
                missed.add_metric((*_split(policy), resource), judged.deficit)
        yield from (wanted, missed)

    def _deficits_of_pods(self) -> Family:
        family = _counter(
            "pod_floor_deficit_seconds",
            "Seconds in which the pod wanted its floor and received less than 98 % of it.",
            *(*POD_LABELS, "resource"),
        )
        pods = self._tally.pods.values()
        named = {(one.watched.namespace, one.watched.name): one.seconds for one in pods}
        for pod, seconds in named.items():
            for resource, judged in seconds.items():
                family.add_metric((*pod, resource), judged.deficit)
        return family

    def _of_budgets(self) -> Family:
        family = _gauge(
            "error_budget_remaining_ratio",
            "What is left of the policy's budget here: a deficit second in 1,000 wanted. Below 0: overspent.",
            *(*_POLICY, "window"),
        )
        for policy, windows in self._tally.budgets(self._clock()).items():
            for window, spent in windows.items():
                family.add_metric((*_split(policy), window), spent.remaining)
        return family

    def _own(self) -> Family:
        text = "Failed readings of pods whose cgroup is there; a pod's first has a log line."
        family = _counter("monitor_failures", text)
        family.add_metric((), self._monitor.failures)
        return family


def _split(policy: str) -> tuple[str, str]:
    namespace, _, name = policy.partition("/")
    return namespace, name


def _family(shown: Shown[Any], before: tuple[str, ...] = ()) -> Family:
    make = _counter if shown.counter else _gauge
    return make(shown.name, shown.text, *before, *shown.labels)


def _counter(name: str, text: str, *labels: str) -> Family:
    return CounterMetricFamily(f"j10ce_agent_{name}", text, labels=labels)


def _gauge(name: str, text: str, *labels: str) -> Family:
    return GaugeMetricFamily(f"j10ce_agent_{name}", text, labels=labels)
