"""What /metrics says of drift, and of limits that are lowered."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from agent.counted import Counted
from agent.enforcement.lowering import OUTCOMES, Lowering
from agent.enforcement.places import Place
from agent.enforcement.repair import Drift

_HOUR: Final = 3600.0
_MOST: Final = 10_000


class LoweringMetrics:
    """Counts what becomes of limits that the kernel has to reclaim for."""

    def __init__(self, lowering: Lowering, registry: CollectorRegistry) -> None:
        Gauge(
            "j10ce_agent_lowerings",
            "Limits that are not what is planned yet, because what is in use has to be reclaimed first.",
            registry=registry,
        ).set_function(lambda: len(lowering))
        Counted(
            "j10ce_agent_lowered",
            "Such limits by outcome; what was late or refused is tried again.",
            lambda: {one: lowering.outcomes[one] for one in OUTCOMES},
            label="outcome",
            registry=registry,
        )


class DriftMetrics:
    """Counts what DriftWatch reports. clock: as time.monotonic()."""

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._repaired: deque[float] = deque(maxlen=_MOST)
        self._repairs = Counter(
            "j10ce_agent_drift_repairs_total", "Kernel files that others changed and that were put right.",
            ["controller", "writer"], registry=registry,
        )  # fmt: skip
        self._refused = Counter(
            "j10ce_agent_drift_refused_total",
            "Kernel files that others changed, where the kernel refused the repair.",
            ["controller"], registry=registry,
        )  # fmt: skip
        self._fights = Counter(
            "j10ce_agent_drift_fights_total", "Files left alone because somebody keeps changing them back.",
            registry=registry,
        )  # fmt: skip
        self._losses = Counter(
            "j10ce_agent_drift_events_lost_total",
            "Times that writes went untold: then all is checked.",
            registry=registry,
        )  # fmt: skip

    def drifted(self, drift: Drift) -> None:
        """A file was changed by somebody else, and dealt with."""
        if drift.repaired:
            self._repairs.labels(drift.controller, drift.writer).inc()
            self._repaired.append(self._clock())
        else:
            self._refused.labels(drift.controller).inc()

    def escalated(self, place: Place) -> None:  # noqa: ARG002 - its name would be a series a file
        """Somebody keeps changing it back."""
        self._fights.inc()

    def lost(self) -> None:
        """Some writes went unreported."""
        self._losses.inc()

    def repaired_last_hour(self) -> int:
        """Repairs of the last hour; counted up to ten thousand."""
        since = self._clock() - _HOUR
        while self._repaired and self._repaired[0] < since:
            self._repaired.popleft()
        return len(self._repaired)
