"""Counters whose values others keep: Prometheus' own only count by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector


class Counted(Collector):
    """One counter, read when Prometheus asks; its series' name ends in _total.

    values: by the value of `label`; where there is no label, by "".
    """

    def __init__(
        self,
        name: str,
        text: str,
        values: Callable[[], Mapping[str, float]],
        *,
        label: str = "",
        registry: CollectorRegistry,
    ) -> None:
        self._name, self._text, self._values, self._label = name, text, values, label
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """The counter as it is now."""
        family = CounterMetricFamily(self._name, self._text, labels=[self._label] if self._label else [])
        for value, count in self._values().items():
            family.add_metric([value] if self._label else [], count)
        yield family
