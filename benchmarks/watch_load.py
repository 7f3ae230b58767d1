"""Filter over HTTP while pods change by the thousand: the 99th percentile, beside that of an idle cluster.

The extender is a process of its own; events come by its watch, over HTTP, from another. A call every two
milliseconds, as kube-scheduler's cycles come. Rounds with and without events alternate.
"""

from __future__ import annotations

import random
import statistics
import time
from typing import Any, Final

import orjson

from benchmarks import api_face, clusters, whole
from benchmarks.clusters import Size
from benchmarks.figures import measured, p99
from benchmarks.serving import Connection

EVENTS_A_SECOND: Final = 4_000
NAMES: Final = 500
PAUSE_SECONDS: Final = 0.002
SETTLE_SECONDS: Final = 0.3


def measure(size: Size, rounds: int, seconds: float) -> dict[str, Any]:
    """Microseconds, p50 and p99, with events and without."""
    rates = {"busy": EVENTS_A_SECOND, "idle": 0}
    found: dict[str, list[list[float]]] = {kind: [] for kind in rates}
    with whole.running(size) as one:
        bodies = _bodies(size)
        to = Connection(one.verbs)
        taken: list[float] = []
        for number in range(2 * rounds):
            for kind in rates if number % 2 else reversed(rates):
                api_face.tell(one.api, "pods", rates[kind])
                time.sleep(SETTLE_SECONDS)
                before = api_face.tell(one.api, "pods", rates[kind]).sent
                began = time.monotonic()
                found[kind].append(_calls(to, bodies, seconds))
                sent = api_face.tell(one.api, "pods", rates[kind]).sent - before
                if rates[kind]:
                    taken.append(sent / (time.monotonic() - began))
        api_face.tell(one.api, "pods", 0)
    rate = statistics.median(taken)
    if rate < EVENTS_A_SECOND / 10:
        raise RuntimeError(f"hardly any events came, {rate:.0f} a second: is the watch open?")
    name = f"filter {{}} by HTTP, {NAMES} names, {EVENTS_A_SECOND:,} watch events/s (x idle)"
    middles = {
        "p50": {kind: statistics.median(map(statistics.median, them)) for kind, them in found.items()},
        "p99": {kind: statistics.median(p99(sorted(one)) for one in them) for kind, them in found.items()},
    }
    return {
        name.format(what): measured(
            1e6 * by["busy"], "us", 1e6 * by["idle"], f"idle; {rate:,.0f} events/s came"
        )
        for what, by in middles.items()
    }


def _bodies(size: Size) -> list[bytes]:
    shown = clusters.node_names(size.nodes)
    random.Random(7).shuffle(shown)
    pods = [clusters.new_pod(f"POD-{number}", 0.5) for number in range(16)]
    return [orjson.dumps({"Pod": pod, "Nodes": None, "NodeNames": shown[:NAMES]}) for pod in pods]


def _calls(to: Connection, bodies: list[bytes], seconds: float) -> list[float]:
    """Seconds of each call."""
    taken: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        began = time.perf_counter()
        to.call("/filter", bodies[len(taken) % len(bodies)])
        taken.append(time.perf_counter() - began)
        time.sleep(PAUSE_SECONDS)
    return taken
