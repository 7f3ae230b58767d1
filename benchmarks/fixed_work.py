"""The fixed work that times are measured in, so that a bound means the same on a slow and on a busy machine.

One unit is the CPU time of `work`: about one millisecond on the machine that REFERENCE names. It does what an
extender does: reads JSON, looks names up, compares numbers in arrays.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from typing import Final

import msgspec
import numpy as np

REFERENCE: Final = "AMD EPYC 9004 (Zen 4), one of two virtual CPUs, CPython 3.11: 1 unit = 1.0 ms"
_NAMES: Final = [f"ip-10-0-{i // 256:03d}-{i % 256:03d}.compute.example.internal" for i in range(2_000)]
_INDEX: Final = {name: row for row, name in enumerate(_NAMES)}
_JSON: Final = msgspec.json.encode(
    {"names": _NAMES, "pods": [{"uid": f"uid-{i}", "labels": {"app": f"app-{i}"}} for i in range(200)]}
)
_DECODE: Final = msgspec.json.Decoder().decode
_FREE: Final = np.arange(8_000, dtype=np.int64).reshape(4, 2_000) * 7_919 % 64_000
_PROBES: Final = 5
_MOST_SECONDS: Final = 2.0


def work() -> int:
    """One unit: some tenths each of JSON, lookups by name, arrays and plain Python."""
    said = _DECODE(_JSON)
    rows = np.fromiter(map(_INDEX.get, said["names"], repeat(-1)), dtype=np.intp, count=len(_NAMES))
    fits = 0
    for need in range(6):
        fits += int(((_FREE[:, rows] >= need * 1_000).all(axis=0)).sum())
    sums: dict[str, int] = {}
    for number in range(6_500):
        key = _NAMES[number % 400]
        sums[key] = sums.get(key, 0) + number
    return fits + len(sorted(sums.items(), key=lambda item: -item[1]))


def unit_seconds(probes: int = _PROBES) -> float:
    """Seconds of CPU that a unit takes here and now: the best of some; the first finds cold caches."""
    return min(_cpu_seconds(work) for _ in range(probes))


def usual_seconds(probes: int = 9) -> float:
    """The same as it usually is just now: to compare with what ran once, among the same neighbours."""
    return statistics.median(_cpu_seconds(work) for _ in range(probes))


def _cpu_seconds(call: Callable[[], object]) -> float:
    began = time.thread_time()
    call()
    return time.thread_time() - began


@dataclass(frozen=True, slots=True)
class Took:
    """What a call took, in units: the middle and the 99th percentile of its runs."""

    p50: float
    p99: float


def took(calls: Callable[[int], Callable[[], object]], runs: int, between: int = 10) -> Took:
    """CPU time of `calls(0)()` .. `calls(runs - 1)()`, with the fixed work measured every few of them.

    What calls(i) itself does, making ready, is not measured. It ends early, after three at least, where calls
    take seconds.
    """
    found, unit, spent = [], unit_seconds(), 0.0
    for number in range(runs):
        if number % between == between - 1:
            unit = min(unit_seconds(2), 2 * unit)
        seconds = _cpu_seconds(calls(number))
        found.append(seconds / unit)
        spent += seconds
        if spent > _MOST_SECONDS and len(found) >= 3:
            break
    found.sort()
    return Took(found[len(found) // 2], found[min(len(found) - 1, round(0.99 * len(found)))])
