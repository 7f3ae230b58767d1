"""What /metrics says of an agent that only observes."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agent.observer import Observer


class ObserverMetrics(Collector):
    """Reads the observer when Prometheus asks."""

    def __init__(self, observer: Observer, registry: CollectorRegistry) -> None:
        self._observer = observer
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """A gauge by kernel controller."""
        family = GaugeMetricFamily(
            "j10ce_agent_observed_settings",
            "Settings that would be written now, were the agent not told to observe, by controller.",
            labels=["controller"],
        )
        for name, count in sorted(self._observer.pending().items()):
            family.add_metric([name], count)
        yield family
