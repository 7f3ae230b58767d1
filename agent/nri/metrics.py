"""What /metrics says of NRI."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

ANSWERED: Final = "answered"
EMPTY: Final = "empty"
LATE: Final = "late"
FAILED: Final = "failed"
UNKNOWN: Final = "unimplemented"
OUTCOMES: Final = (ANSWERED, EMPTY, LATE, FAILED, UNKNOWN)
_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Metrics:
    """Requests by event and outcome, how long they took, and whether a runtime is connected.

    answered: with what the handler said; empty: it had nothing to say; late: the budget was over before it
    said anything, so the answer was empty; failed: it raised, so the answer was empty; unimplemented: a
    method that is not ours.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "j10ce_agent_nri_requests",
            "Requests of the container runtime, by event and outcome.",
            ("event", "outcome"),
            registry=registry,
        )
        self.seconds = Histogram(
            "j10ce_agent_nri_request_seconds",
            "From a request of the container runtime to its answer.",
            buckets=_BUCKETS,
            registry=registry,
        )
        self.connected = Gauge(
            "j10ce_agent_nri_connected",
            "1 while the container runtime asks this agent, else 0.",
            registry=registry,
        )
