"""What the extender costs while nothing happens: nodes report, Prometheus reads /metrics."""

from __future__ import annotations

import time
from typing import Any, Final

from benchmarks import api_face, whole
from benchmarks.clusters import Size
from benchmarks.figures import measured

REPORT_SECONDS: Final = 300.0
"""kubelet writes its node's status as often where nothing changed; its heartbeats are Leases."""
SCRAPE_SECONDS: Final = 15.0


def measure(size: Size, seconds: float) -> dict[str, Any]:
    """Percent of a core, over so many seconds; and what it takes of memory."""
    with whole.running(size) as one:
        api_face.tell(one.api, "nodes", size.nodes / REPORT_SECONDS)
        time.sleep(min(2.0, seconds))
        began, before, scraped = time.monotonic(), one.cpu_seconds(), 0.0
        while (passed := time.monotonic() - began) < seconds:
            if passed >= scraped:
                one.metrics()
                scraped += SCRAPE_SECONDS
            time.sleep(0.1)
        share = (one.cpu_seconds() - before) / (time.monotonic() - began)
    return {"idle, share of a core": measured(100 * share, "%")}
