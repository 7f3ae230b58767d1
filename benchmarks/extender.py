"""What the extender costs, by the size of the cluster, and whether the goals are met; `make bench`.

Columns are nodes/policies, with 30 pods a node up to 150,000. `units` are CPU time as ratios to a fixed work
of the same run (benchmarks/fixed_work.py): 1 unit is one millisecond on the machine named there. What is
compared with a baseline is measured beside it, in interleaved rounds. Left out: more names than there are
nodes, or nodes with holds; most parts are measured in the one column where their goals are.

Each figure is one JSON object (--save FILE, or -o json), after a line about the run; benchmarks/page.py makes
docs/performance.md of them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from benchmarks import (
    changes,
    control_plane,
    go_programs,
    http_cost,
    idle,
    pauses,
    repack,
    reports,
    verbs,
    watch_load,
)
from benchmarks.clusters import Size
from benchmarks.figures import Figure, show
from benchmarks.goals import FLOOD, LARGE, PLAIN, SPECIAL, WIDE, judge
from benchmarks.reports import Report
from lab.progress import build_progress

MOST_PODS: Final = 150_000
PODS_A_NODE: Final = 30
FEW_PODS_A_NODE: Final = 2
PART_SECONDS: Final = 240.0
ALL_SECONDS: Final = 1_440.0
CONTROL_PLANE_SECONDS: Final = 800.0
"""Within which another round on a control plane is begun."""
NODES: Final = (1_000, 5_000, 15_000)
POLICIES: Final = (1, 50, 300)
QUICK: Final = ("1000/50", "5000/50", "5000/300")


@dataclass(frozen=True, slots=True)
class Options:
    """How much is measured; `scale` shrinks the clusters; `quiet`: seconds that each phase goes on,
    half of it where no goal is.
    """

    runs: int
    rounds: int
    quiet: float
    scale: float
    quick: bool

    def size(self, column: str) -> Size:
        """The cluster of a column."""
        nodes, policies = (max(1, round(int(part) * self.scale)) for part in column.split("/"))
        return Size(nodes, policies, min(nodes * PODS_A_NODE, MOST_PODS))

    def few_pods(self, column: str) -> Size:
        """The same where pods that only run play no part."""
        size = self.size(column)
        return replace(size, pods=size.nodes * FEW_PODS_A_NODE)


def measure_verbs(column: str, options: Options) -> dict[str, Any]:
    """The verbs, bytes to bytes."""
    return verbs.measure(options.size(column), options.runs)


def measure_special(column: str, options: Options) -> dict[str, Any]:
    """What once was slow."""
    return verbs.special(options.size(column), options.runs)


def measure_pauses(column: str, options: Options) -> dict[str, Any]:
    """The whole program."""
    found, causes = pauses.measure(
        options.size(column), options.quiet if column == LARGE else options.quiet / 2
    )
    return {**found, "causes": causes}


def measure_changes(column: str, options: Options) -> dict[str, Any]:
    """The whole program with budgets, spread constraints and Reservations."""
    found, causes = changes.measure(options.few_pods(column), options.quiet)
    return {**found, "causes": causes}


def measure_http(column: str, options: Options) -> dict[str, Any]:
    """Filter against Go and an echo."""
    return http_cost.measure(options.size(column), (500, 5_000), 2 * options.rounds, 100)


def measure_watch_load(column: str, options: Options) -> dict[str, Any]:
    """Filter while many pods change."""
    return watch_load.measure(options.few_pods(column), options.rounds, options.quiet)


def measure_repack(column: str, options: Options) -> dict[str, Any]:
    """A node with holds is lost."""
    return repack.measure(options.size(column), options.rounds)


def measure_idle(column: str, options: Options) -> dict[str, Any]:
    """Nothing happens."""
    return idle.measure(options.size(column), 15 * options.quiet)


def measure_control_plane(column: str, options: Options) -> dict[str, Any]:
    """Pods a second, and how soon an owner is bound, on a real control plane."""
    return control_plane.measure(options.size(column), 25 * options.runs, CONTROL_PLANE_SECONDS)


PARTS: Final[Mapping[str, Callable[[str, Options], dict[str, Any]]]] = {
    "pauses": measure_pauses,
    "changes": measure_changes,
    "verbs": measure_verbs,
    "special": measure_special,
    "repack": measure_repack,
    "idle": measure_idle,
    "http": measure_http,
    "watch load": measure_watch_load,
    "control plane": measure_control_plane,
}


ALONE: Final[tuple[tuple[str, str], ...]] = (
    ("http", PLAIN),
    ("watch load", SPECIAL),
    ("idle", SPECIAL),
    ("idle", WIDE),
    ("control plane", FLOOD),
)
"""Parts of two processes each or more, which need two processors; all others need one."""


def plan(columns: Sequence[str], *, quick: bool = False) -> list[tuple[str, str]]:
    """(part, column), those with goals first: whatever takes too long, the goals are known."""
    alone = [one for one in ALONE if not quick or one not in (("control plane", FLOOD), ("idle", WIDE))]
    goals = [*alone, ("pauses", LARGE), ("changes", LARGE)]
    goals += [("verbs", SPECIAL), ("special", SPECIAL), ("repack", SPECIAL)]
    if not quick:
        goals += [("repack", WIDE), ("verbs", WIDE), ("pauses", WIDE), ("pauses", SPECIAL)]
    rest = [(part, column) for column in columns for part in ("verbs", "pauses")]
    return goals + [one for one in rest if one not in goals]


def run(part: str, column: str, options: Options, seconds: float) -> dict[str, Any]:
    """One part in a process of its own, whose memory is its own; `missing`: why it found nothing."""
    argv = [sys.executable, "-P", "-m", "benchmarks.extender", "--part", part, column]
    argv.append(json.dumps(asdict(options)))
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return {"missing": "it took too long"}
    if done.returncode:
        return {"missing": f"it failed:\n{done.stderr[-3000:]}"}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(columns: Sequence[str], options: Options, console: Console) -> Report:
    """Everything within ALL_SECONDS, two at a time where there are processors: CPU time hardly minds."""
    began, load = time.monotonic(), os.getloadavg()[0]

    def one(planned: tuple[str, str]) -> dict[str, Any]:
        left = ALL_SECONDS - (time.monotonic() - began)
        console.print(f"{time.monotonic() - began:4.0f} s: {planned[0]} at {planned[1]}")
        seconds = CONTROL_PLANE_SECONDS + PART_SECONDS if planned[0] == "control plane" else PART_SECONDS
        return run(*planned, options, min(seconds, left)) if left > 1 else {"missing": "no time was left"}

    parts = plan(columns, quick=options.quick)
    results = {planned: one(planned) for planned in parts if planned in ALONE}
    with ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
        others = [planned for planned in parts if planned not in ALONE]
        results |= dict(zip(others, pool.map(one, others), strict=True))
    found: dict[tuple[str, str], Figure] = {}
    causes: dict[str, dict[str, str]] = {}
    missing = []
    for (part, column), result in results.items():
        if "missing" in result:
            missing.append(f"{part} at {column}: {result['missing']}")
            continue
        causes.setdefault(column, {}).update(result.pop("causes", {}))
        missing += [f"{part} at {column}: {why}" for why in result.pop("failed", ())]
        found |= {(name, column): reports.figure(name, column, value) for name, value in result.items()}
    about = reports.about(time.monotonic() - began, load)
    goals = tuple(judge(found, quick=options.quick))
    return Report(about, goals, reports.others(goals, found.values()), causes, missing)


def main() -> int:
    """Exit code 1 when a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="three columns, fewer runs, no control plane: about 3 minutes"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="shrink the clusters: 0.02 tries whether all of it works"
    )
    parser.add_argument("--save", type=Path, help="write all figures into this file, one JSON object a line")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    parser.add_argument("--part", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        part, column, said = given.part
        print(json.dumps(PARTS[part](column, Options(**json.loads(said)))))
        return 0
    columns = QUICK if given.quick else [f"{nodes}/{policies}" for nodes in NODES for policies in POLICIES]
    quiet = pauses.QUIET_SECONDS if given.scale == 1 else 0.05
    runs, rounds = (15, 3) if given.quick else (30, 5)
    if given.scale < 1:
        columns, runs, rounds = [LARGE], 3, 1
    console = Console(stderr=True)
    with build_progress(console) as report:
        go_programs.build(os.environ, report)
    found = measure(columns, Options(runs, rounds, quiet, given.scale, given.quick), console)
    lines = found.lines()
    if given.save:
        given.save.parent.mkdir(parents=True, exist_ok=True)
        given.save.write_text("".join(f"{line}\n" for line in lines))
    if given.output == "json":
        print(*lines, sep="\n")
        return int(not found.kept())
    reports.show_columns(found, columns, Console(width=150))
    return show(found.goals)


if __name__ == "__main__":
    sys.exit(main())
