"""The workload by which a QoS-driven scheduler was compared with priorities, played with elastic quotas.

`python -P -m benchmarks.slo_workload [--seeds N --batch-turn S --free-turn S]`; 1 when a goal is missed.
20 hosts, 256 controllers of one pod each, one arrival a second; what is asked for, at each one's SLO, is
exactly what there is. A controller's QoS is the part of its life in which its pod ran. Source of workload and
of their figures: Silva, Brasileiro et al., 2020, doi 10.1186/s13174-020-00129-0, recomputed from raw data.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.played_cluster import Controller, PlayedCluster
from qos.cluster.quota import ElasticQuota

SECONDS: Final = 3660
HOSTS: Final = 20
HOST: Final = {"cpu": "3750m", "memory": "3750Mi", "pods": "110"}
POD: Final = {"cpu": "375m", "memory": "375Mi"}
MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Kind:
    """Controllers of one SLO. turn: seconds, as the quota's annotation has it; 0: none."""

    name: str
    count: int
    slo: float
    priority: int
    turn: int


KINDS: Final = (
    Kind("prod", 80, 1.0, 300, 0),
    Kind("batch", 80, 0.9, 200, 330),
    Kind("free", 96, 0.5, 100, 900),
)
UNAVOIDABLE: Final = 0.001
"""Of its life a pod may be on its way to its node: no controller can have 1.0."""


@dataclass(frozen=True, slots=True)
class Result:
    """What one run, or the mean of some, came to. fulfilled, free_fulfilled, allocated: 0..1."""

    fulfilled: float
    prod: float
    batch: float
    free: float
    free_least: float
    free_fulfilled: float
    deficit: float
    recreations: float
    allocated: float


PRIORITY: Final = Result(0.778, 1.0, 1.0, 0.421, 0.006, 0.406, 26.9, 42.7, 0.962)
QOS_DRIVEN: Final = Result(0.668, 1.0, 0.915, 0.476, 0.452, 0.010, 2.05, 3096, 0.950)
"""Theirs: SLOs met, deficit and recreations are means of ten workloads, the rest is of one."""
GOALS: Final = {"fulfilled": 0.778, "deficit": 2.3, "recreations": 310.0}


def quotas(kinds: Sequence[Kind] = KINDS) -> Iterator[ElasticQuota]:
    """Min: what its controllers need for their SLO. Max: all there is."""
    most = {"cpu": HOSTS * 3750, "memory": HOSTS * 3750 * MIB}
    for one in kinds:
        slots = one.count * one.slo
        least = {"cpu": int(slots * 375), "memory": int(slots * 375) * MIB}
        yield ElasticQuota("quotas", one.name, min=least, max=most, weight=most, turn_seconds=one.turn)


def arrivals(seed: int, kinds: Sequence[Kind] = KINDS) -> Iterator[Controller]:
    """One a second, in any order."""
    wanted = [(one, number) for one in kinds for number in range(one.count)]
    random.Random(seed).shuffle(wanted)
    for second, (kind, number) in enumerate(wanted):
        yield Controller(f"{kind.name}-{number}", kind.name, kind.priority, POD, second)


def played(seed: int, *, with_quotas: bool, kinds: Sequence[Kind] = KINDS) -> Result:
    """One run, by quotas or by kube-scheduler's priorities alone."""
    cluster = PlayedCluster(HOSTS, HOST, list(quotas(kinds)) if with_quotas else None)
    cluster.play(arrivals(seed, kinds), SECONDS)
    return judged(cluster, kinds)


def judged(cluster: PlayedCluster, kinds: Sequence[Kind]) -> Result:
    """The figures of their tables."""
    slo = {one.name: min(one.slo, 1.0 - UNAVOIDABLE) for one in kinds}
    of = {
        one.name: [each.qos for each in cluster.controllers.values() if each.of == one.name] for one in kinds
    }
    met = {name: [qos >= slo[name] for qos in each] for name, each in of.items()}
    free = of["free"]
    return Result(
        fulfilled=fmean([one for each in met.values() for one in each]),
        prod=fmean(of["prod"]),
        batch=fmean(of["batch"]),
        free=fmean(free),
        free_least=min(free),
        free_fulfilled=fmean(met["free"]),
        deficit=sum(max(0.0, slo["free"] - qos) for qos in free),
        recreations=cluster.evictions,
        allocated=fmean(cluster.used) / (HOSTS * 10),
    )


def mean(results: Sequence[Result]) -> Result:
    """Of each figure."""
    return Result(*(fmean([getattr(one, name) for one in results]) for name in Result.__slots__))


def missed(result: Result) -> list[str]:
    """The goals that it misses."""
    kept = {
        "fulfilled": result.fulfilled >= GOALS["fulfilled"],
        "deficit": result.deficit <= GOALS["deficit"],
        "recreations": result.recreations <= GOALS["recreations"],
    }
    return [name for name, one in kept.items() if not one]


_ROWS: Final = (
    ("fulfilled", "controllers that meet their SLO", ".1%", "at least 77.8%"),
    ("prod", "prod (1.0): mean QoS", ".3f", ""),
    ("batch", "batch (0.9): mean QoS", ".3f", ""),
    ("free", "free (0.5): mean QoS", ".3f", ""),
    ("free_least", "free: least QoS", ".3f", ""),
    ("free_fulfilled", "free that meet 0.5", ".1%", ""),
    ("deficit", "free: summed deficit", ".2f", "at most 2.3"),
    ("recreations", "pods made again", ".1f", "at most 310"),
    ("allocated", "slots taken", ".1%", ""),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--batch-turn", type=int, default=KINDS[1].turn)
    parser.add_argument("--free-turn", type=int, default=KINDS[2].turn)
    options = parser.parse_args()
    turns = {"batch": options.batch_turn, "free": options.free_turn}
    kinds = [replace(one, turn=turns.get(one.name, 0)) for one in KINDS]
    by_priority = mean([played(seed, with_quotas=False) for seed in range(options.seeds)])
    ours = mean([played(seed, with_quotas=True, kinds=kinds) for seed in range(options.seeds)])
    title = f"{SECONDS} s; here: mean of {options.seeds} orders of arrival"
    columns = ("theirs: priority", "theirs: QoS-driven", "priority, here", "quotas, here", "goal", "")
    table = Table(title, *columns, box=None)
    for name, says, shape, goal in _ROWS:
        figures = (format(getattr(one, name), shape) for one in (PRIORITY, QOS_DRIVEN, by_priority, ours))
        table.add_row(says, *figures, goal, "missed" if name in missed(ours) else "")
    Console(width=150).print(table)
    return 1 if missed(ours) else 0


if __name__ == "__main__":
    sys.exit(main())
