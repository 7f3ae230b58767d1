"""What /metrics shows. The hot path pays one observation of a histogram; gauges are read at a look."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ledger.decisions import DemandReport
from qos import keys

disable_created_metrics()  # type: ignore[no-untyped-call]  # a _created series for each counter helps nobody

log = logging.getLogger(__name__)

LedgerSays: TypeAlias = tuple[Mapping[str, DemandReport], Mapping[str, float]]
"""Each policy's account, and totals."""
VERBS: Final = ("filter", "prioritize", "preempt", "bind")
DECISION_BUCKETS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.3, 1.0)
BIND_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
MOST_POLICIES: Final = 200
"""Distinct values of the label `policy` on counters; the policies beyond share the value `other`."""


class Metrics:
    """The process's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._duration = {f"/{verb}": self._histogram(verb) for verb in VERBS}
        self._failures = self._counter(
            "verb_failures", "Answers other than 200, by verb and status.", "verb", "status"
        )
        self._crashes = self._counter("verb_crashes", "Verbs that met a bug of ours; each has a log line.")
        self._refusals = self._counter(
            "filter_refusals", "Pods that filter refused because of holds, by policy.", "policy"
        )
        self._would_refuse = self._counter(
            "filter_would_refuse",
            "Observe: pods that filter would have kept from some node.",
        )
        self._binds = self._counter(
            "bind_outcomes",
            "Binds by outcome: bound, elsewhere, refused, gone, failed, unknown, late, crashed.",
            "outcome",
        )
        self._bind_reads = self._counter(
            "bind_reads",
            "Reads of pods whose Binding brought no answer, by outcome: settled, open, failed.",
            "outcome",
        )
        self._skipped = self._counter(
            "objects_skipped", "Objects that cannot be read, by resource.", "resource"
        )
        self._statuses = self._counter(
            "status_writes",
            "Writes of policies' status by outcome: written, conflict, gone, failed.",
            "outcome",
        )
        self._events = self._counter(
            "events", "Events by outcome: written, dropped by the rate limit, failed.", "outcome"
        )
        self._slot_marks = self._counter(
            "slot_marks",
            "Pods that were told anew whether they fill a slot, by outcome: taken, freed, gone, failed.",
            "outcome",
        )
        self._placeholders = self._counter(
            "placeholder_writes",
            "Placeholders created and deleted, by outcome: created, deleted, failed.",
            "outcome",
        )
        self._hand_overs = self._counter(
            "hand_overs",
            "Owners that waited for a place: handed over, none there, gone, failed; taken by others.",
            "outcome",
        )
        self._reviews = self._counter(
            "gate_reviews", "Pods that the webhook was asked about: gated, or passed.", "outcome"
        )
        self._evicted = self._counter(
            "owner_evictions",
            "Pods that kube-scheduler evicted for owners that placeholders hold slots for, by policy.",
            "policy",
        )
        self._buffer_writes = self._counter(
            "buffer_writes",
            "CapacityBuffers and PodTemplates by outcome: written, deleted, gone, conflict, failed.",
            "outcome",
        )
        self._wakes = self._counter(
            "wakes", "Waiting pods made to try again, by outcome: woken, gone, failed.", "outcome"
        )
        self._loops = self._counter(
            "loop_errors", "Errors of background loops, by loop; each has a log line.", "loop"
        )
        self._given_back = self._counter(
            "quota_evictions",
            "Evictions for quotas: given to one that is owed, inside one, by turn, refused by the API.",
            "outcome",
        )
        self._quota_statuses = self._counter(
            "quota_status_writes", "Writes of ElasticQuotas' status by outcome: written, failed.", "outcome"
        )
        self._gangs = self._counter(
            "gangs",
            "Gangs by outcome: started, late (not whole in time), failed and unwritten (API calls).",
            "outcome",
        )
        self._policies: set[str] = set()
        self._gauges: list[tuple[Gauge, Callable[[], float]]] = []
        self._ledgers: list[LedgerCollector] = []

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"j10ce_{name}", text, labels, registry=self.registry)

    def _histogram(self, verb: str) -> Histogram:
        buckets = BIND_BUCKETS if verb == "bind" else DECISION_BUCKETS
        text = f"Seconds from the body of {verb} to its answer."
        return Histogram(f"j10ce_{verb}_duration_seconds", text, buckets=buckets, registry=self.registry)

    def observe(self, path: str, seconds: float, status: int) -> None:
        """A verb was answered."""
        self._duration[path].observe(seconds)
        if status != 200:
            self._failures.labels(path[1:], status).inc()

    def crashed(self, error: Exception) -> None:
        """A verb raised."""
        self._crashes.inc()
        log.error("verb crashed error=%s", error, exc_info=error)

    def refused(self, policies: Iterable[str], withheld: int) -> None:
        """Filter refused a pod because of these policies, or in Observe would have."""
        for policy in policies:
            self._refusals.labels(self._bounded(policy)).inc()
        if withheld:
            self._would_refuse.inc()

    def _bounded(self, policy: str) -> str:
        if policy not in self._policies:
            if len(self._policies) >= MOST_POLICIES:
                return "other"
            self._policies.add(policy)
        return policy

    def bind_outcome(self, outcome: str) -> None:
        """bound, elsewhere, refused, gone, failed, unknown, late or crashed."""
        self._binds.labels(outcome).inc()

    def bind_read(self, outcome: str) -> None:
        """settled, open or failed."""
        self._bind_reads.labels(outcome).inc()

    def skipped(self, resource: str) -> None:
        """An object could not be read."""
        self._skipped.labels(resource).inc()

    def status_write(self, outcome: str) -> None:
        """written, conflict, gone or failed."""
        self._statuses.labels(outcome).inc()

    def event(self, outcome: str) -> None:
        """written, dropped or failed."""
        self._events.labels(outcome).inc()

    def wake(self, outcome: str) -> None:
        """woken, gone or failed."""
        self._wakes.labels(outcome).inc()

    def placeholder(self, outcome: str) -> None:
        """created, deleted or failed."""
        self._placeholders.labels(outcome).inc()

    def handed_over(self, outcome: str) -> None:
        """handed, none, gone, taken or failed."""
        self._hand_overs.labels(outcome).inc()

    def reviewed(self, outcome: str) -> None:
        """gated or passed."""
        self._reviews.labels(outcome).inc()

    def evicted(self, policy: str) -> None:
        """A pod had to go for an owner of this policy."""
        self._evicted.labels(self._bounded(policy)).inc()

    def slot_mark(self, outcome: str) -> None:
        """taken, freed, gone or failed."""
        self._slot_marks.labels(outcome).inc()

    def buffer_write(self, outcome: str) -> None:
        """written, deleted, gone, conflict or failed."""
        self._buffer_writes.labels(outcome).inc()

    def quota_status(self, outcome: str) -> None:
        """written or failed."""
        self._quota_statuses.labels(outcome).inc()

    def gave_back(self, outcome: str) -> None:
        """given, inside, turn or refused."""
        self._given_back.labels(outcome).inc()

    def gang(self, outcome: str) -> None:
        """started, late, failed or unwritten."""
        self._gangs.labels(outcome).inc()

    def loop_error(self, loop: str) -> None:
        """A background loop met an error."""
        self._loops.labels(loop).inc()

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A gauge that is read at each look."""
        self._gauges.append((Gauge(f"j10ce_{name}", text, registry=self.registry), read))

    def watch_ledger(self, latest: Callable[[], LedgerSays]) -> None:
        """Show the ledger's account, reports and gauges, as it is at each look."""
        self._ledgers.append(LedgerCollector(latest))
        self.registry.register(self._ledgers[-1])

    def look(self) -> None:
        """Read what others change, on the event loop that changes it."""
        for gauge, read in self._gauges:
            gauge.set(read())
        for ledger in self._ledgers:
            ledger.look()

    def render(self) -> bytes:
        """The Prometheus text format, of the latest look; in any thread."""
        return generate_latest(self.registry)

    def exposition(self) -> bytes:
        """Look and render."""
        self.look()
        return self.render()


class LedgerCollector(Collector):
    """Slots per policy, and the ledger's totals."""

    def __init__(self, latest: Callable[[], LedgerSays]) -> None:
        self._latest = latest
        self._seen: LedgerSays = ({}, {})

    def look(self) -> None:
        """Take what the ledger says now; what it gave is not changed later."""
        self._seen = self._latest()

    def describe(self) -> list[GaugeMetricFamily]:
        """Names only."""
        return [self._slots(), self._at_risk()]

    def collect(self) -> Iterator[Metric]:
        """Two families for the policies, the others for the totals."""
        reports, gauges = self._seen
        slots, at_risk = self._slots(), self._at_risk()
        for key, account in reports.items():
            namespace, _, name = key.partition("/")
            for state in ("desired", "filled", "held"):
                slots.add_metric([namespace, name, state], getattr(account, state))
            slots.add_metric([namespace, name, "unplaced"], account.missing)
            at_risk.add_metric([namespace, name], account.at_risk)
        yield slots
        yield at_risk
        yield from ledger_families(gauges)

    @staticmethod
    def _slots() -> GaugeMetricFamily:
        text = "Slots by namespace, policy and state: desired, filled, held, unplaced."
        return GaugeMetricFamily("j10ce_slots", text, labels=["namespace", "policy", "state"])

    @staticmethod
    def _at_risk() -> GaugeMetricFamily:
        text = (
            "Held slots that pods in flight, or of DaemonSets, may still push away, by namespace and policy."
        )
        return GaugeMetricFamily("j10ce_slots_at_risk", text, labels=["namespace", "policy"])


_LEDGER_TEXTS: Final = {
    "nodes": "Nodes that are known.",
    "ready_nodes": "Nodes that may take holds.",
    "held_nodes": "Nodes with at least one hold.",
    "lumped_nodes": "Nodes that share a pool because capPoolLabels have too many values.",
    "overcommitted_nodes": "Nodes whose pods ask for more than is allocatable: someone went by.",
    "pods": "Pods that are known, pending ones included.",
    "claims": "Pods that take capacity of a node.",
    "claims_unseen": "Pods bound by us that the watch has not shown yet.",
    "in_flight": "Pods that filter has answered and that are charged until their bind.",
    "nominated": "Pods that wait for their victims to go.",
    "waiting": "Pods that filter refused and that may be woken.",
    "holds": "Slots that are held, of all policies.",
    "unplaced": "Slots that are neither filled nor held, of all policies.",
    "over_budget": "Those of them that budgets do not give.",
    "moves_total": "Holds that moved to make room.",
    "displaced_total": "Holds that lost their place to a pod.",
    "refusals_total": "Pods that filter refused, each attempt counted.",
    "withheld_total": "Observe: nodes that filter would have withheld.",
    "exempt_total": "Answers to pods that always pass.",
}


def ledger_families(values: Mapping[str, float]) -> list[Metric]:
    """The ledger's totals: STATE/RESOURCE as one family, NAME_total as counters, the rest as gauges."""
    text = "Sums over all nodes, cpu in cores, by state: allocatable, claimed, held."
    capacity = GaugeMetricFamily("j10ce_capacity", text, labels=["state", "resource"])
    families: list[Metric] = [capacity]
    for name, value in values.items():
        state, _, resource = name.partition("/")
        words = _LEDGER_TEXTS.get(name, f"The ledger's {name.removesuffix('_total').replace('_', ' ')}.")
        if resource:
            capacity.add_metric([state, resource], value / 1000 if resource == keys.CPU else value)
        elif name.endswith("_total"):
            families.append(CounterMetricFamily(f"j10ce_ledger_{name}", words, value))
        else:
            families.append(GaugeMetricFamily(f"j10ce_ledger_{name}", words, value))
    return families
