"""Many seeds, on all processors, and what they found."""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from simulation.generator import EXTENDER, history
from simulation.play import play

_CHUNK = 20
"""Seeds played between two garbage collections, and handed to a process at once."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one seed; `rule` and `text` are of the first thing broken, "" when nothing was."""

    seed: int
    changes: int
    binds: int
    rule: str = ""
    text: str = ""


Tell = Callable[[int, float, int], None]
"""Hears how many seeds are done, in how many seconds, and how many of them failed."""


def run_seed(seed: int, keeper: str = EXTENDER) -> Result:
    """Play one seed."""
    outcome = play(history(seed, keeper=keeper))
    first = outcome.broken[0] if outcome.broken else None
    found = (first.rule, str(first)) if first else ("", "")
    return Result(seed, outcome.changes, outcome.binds, *found)


def run_seeds(seeds: Iterable[int], processes: int = 0, keeper: str = EXTENDER) -> Iterator[Result]:
    """Play seeds, in any order. `processes`: 0 for one a processor, 1 for this one."""
    processes = processes or os.cpu_count() or 1
    played = partial(_played, keeper)
    _collect_rarely()
    if processes == 1:
        yield from map(played, seeds)
        return
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        yield from pool.imap_unordered(played, seeds, _CHUNK)


def _collect_rarely() -> None:
    """From now on garbage is collected where `_played` says so, and what is there already is left out."""
    gc.collect()
    gc.freeze()
    gc.disable()


def _played(keeper: str, seed: int) -> Result:
    if seed % _CHUNK == 0:
        gc.collect()
    return run_seed(seed, keeper)


def watched(results: Iterable[Result], tell: Tell, every: float = 5.0) -> Iterator[Result]:
    """The same results; `tell` hears of progress every so many seconds."""
    began = time.monotonic()
    due, failed = began + every, 0
    for done, result in enumerate(results, 1):
        failed += bool(result.rule)
        if time.monotonic() >= due:
            due += every
            tell(done, time.monotonic() - began, failed)
        yield result
