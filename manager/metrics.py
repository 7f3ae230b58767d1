"""What /metrics shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from rescheduling.records import PoolState


class Metrics:
    """The process's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        text = "Events by outcome: written, dropped by the rate limit, failed."
        self._events = Counter("j10ce_manager_events", text, ["outcome"], registry=self.registry)
        text = "Errors of background loops, by loop; each has a log line."
        self._loops = Counter("j10ce_manager_loop_errors", text, ["loop"], registry=self.registry)
        text = "Objects that cannot be read, by resource."
        self._skipped = Counter("j10ce_manager_objects_skipped", text, ["resource"], registry=self.registry)

        text = "Migrations of rescheduling by outcome: previewed; begun, succeeded, failed."
        self._migrations = Counter("j10ce_rescheduling_migrations", text, ["outcome"], registry=self.registry)

        text = "Questions of the API server about quotas, by resource and outcome: allowed, refused."
        self._reviews = Counter("j10ce_quota_reviews", text, ["resource", "outcome"], registry=self.registry)

    def quota_review(self, resource: str, outcome: str) -> None:
        """elasticquotas or pods; allowed or refused."""
        self._reviews.labels(resource, outcome).inc()

    def event(self, outcome: str) -> None:
        """written, dropped or failed."""
        self._events.labels(outcome).inc()

    def loop_error(self, loop: str) -> None:
        """A background loop met an error."""
        self._loops.labels(loop).inc()

    def skipped(self, resource: str) -> None:
        """An object could not be read."""
        self._skipped.labels(resource).inc()

    def migration(self, outcome: str) -> None:
        """A pod that is moved, or would be: previewed, begun, succeeded, failed."""
        self._migrations.labels(outcome).inc()

    def show_pools(self, read: Callable[[], Mapping[str, PoolState]]) -> None:
        """Nodes by pool and state; read: the last round's pools, at each look."""
        self.registry.register(_Pools(read))

    def show_usage(self, read: Callable[[], Mapping[str, int]]) -> None:
        """Nodes by where their usage is known from; read: at the last look, at each look."""
        self.registry.register(_Usage(read))

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A gauge that is read at each look."""
        Gauge(f"j10ce_manager_{name}", text, registry=self.registry).set_function(read)

    def show_below_floor(self, read: Callable[[], Mapping[str, int]]) -> None:
        """Pods below their floor, by policy; read: namespace/name to how many, at each look."""
        self.registry.register(_BelowFloor(read))

    def render(self) -> bytes:
        """The Prometheus text format."""
        return generate_latest(self.registry)


class _BelowFloor(Collector):
    def __init__(self, read: Callable[[], Mapping[str, int]]) -> None:
        self._read = read

    def collect(self) -> Iterator[GaugeMetricFamily]:
        text = "Pods that request less than their policy's floor, by namespace and policy; of the leader."
        family = GaugeMetricFamily("j10ce_pods_below_floor", text, labels=["namespace", "policy"])
        for key, count in self._read().items():
            namespace, _, name = key.partition("/")
            family.add_metric([namespace, name], count)
        yield family


class _Usage(Collector):
    def __init__(self, read: Callable[[], Mapping[str, int]]) -> None:
        self._read = read

    def collect(self) -> Iterator[GaugeMetricFamily]:
        text = "Nodes by what says what they use: NodeQoS, metrics.k8s.io, unknown; of the leader."
        family = GaugeMetricFamily("j10ce_rescheduling_usage_nodes", text, labels=["source"])
        for source, count in self._read().items():
            family.add_metric([source], count)
        yield family


class _Pools(Collector):
    def __init__(self, read: Callable[[], Mapping[str, PoolState]]) -> None:
        self._read = read

    def collect(self) -> Iterator[GaugeMetricFamily]:
        text = "Nodes by rescheduling's pool and state: all, unknown, low, high, abnormal; of the leader."
        family = GaugeMetricFamily("j10ce_rescheduling_nodes", text, labels=["pool", "state"])
        for pool, one in self._read().items():
            counts = {"all": one.nodes, "unknown": one.unknown, "low": one.low, "high": one.high}
            for state, count in (counts | {"abnormal": one.abnormal}).items():
                family.add_metric([pool, state], count)
        yield family
