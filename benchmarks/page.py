"""docs/performance.md, from a run of `make bench` that was saved.

python -m benchmarks.page build/bench.jsonl
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from benchmarks.contenders import WATCHER
from benchmarks.figures import Figure, number
from benchmarks.reports import Report, columns_of, load, rows

PAGE: Final = Path(__file__).parents[1] / "docs" / "performance.md"

_METHOD: Final = (
    "What is compared with a baseline is measured beside it, in rounds that alternate, and each figure is a "
    "median of rounds: so a busy machine moves both sides. Units are CPU time by that of a fixed work of the "
    "same run; milliseconds without a baseline are CPU time. A cluster is nodes/policies; score is "
    "kube-scheduler's percentageOfNodesToScore (0: its own rule, 420 of 1,000 nodes; 5: 100 of them). Floods "
    "are of pods of 100m that wait when kube-scheduler starts; 1,000 slots of 1 CPU are held, on 32 of 1,000 "
    "nodes of 32 CPUs, by placeholders also on each of the 1,000. Who decides it, ours (extender) or "
    "placeholders, runs as shipped, in Guard. What is beside:\n"
)
_BASELINES: Final = """\
- **The Go extender** (`benchmarks/gomodule/floors`): the same decision on one picture of nodes and holds,
  with Go's standard library alone, charges of pods in flight included; a test compares its answers with ours.
  It moves no holds, follows no watch and knows no owners: it has less to do than ours.
- **Go that accepts all** (`benchmarks/gomodule/accept-all`): filter, preempt and bind, no decision: what the
  protocol costs.
- **Python that accepts all** (`benchmarks/accept_all.py`): filter and bind, bare ASGI on uvicorn.
- **A bare ASGI echo**: reads the body, answers a constant.
- **No extender**: kube-scheduler alone, on the same control plane.
"""
_A_WATCH: Final = """\
- **A watch alone**: the same, and somebody reads in protobuf what changes of all pods, and drops it: what it
  costs that anybody keeps an account of pods, on two processors that all share.
"""
_COLUMNS: Final = (
    "Units unless the name says otherwise. nodes^: the exponent by which it grows with the nodes, at 50 "
    "policies (1: in proportion). policies x: how many times as much 300 policies cost at 5,000 nodes as 1, "
    "or as 50.\n"
)


def page(report: Report) -> str:
    """The whole page."""
    return "\n".join(_parts(report))


def _parts(report: Report) -> Iterator[str]:
    about = report.about
    yield "# Performance\n"
    yield "<!-- Written by `make bench` (benchmarks/page.py): do not edit. -->\n"
    yield (
        f"Measured on {about['date']}, commit `{about['commit']}`, on {about['machine']}; the load average "
        f"was {about['load']} when the run began; it took {about['seconds'] / 60:.0f} minutes.\n"
    )
    yield "## Goals\n"
    yield from _table(("", "cluster", "measured", "beside", "ratio", "goal", "met"), map(_goal, report.goals))
    yield "## How\n"
    yield _METHOD
    watched = any(one.name.startswith(f"flood, {WATCHER}") for one in report.figures)
    yield _BASELINES + (_A_WATCH if watched else "")
    others = [one for one in report.figures if one.against is not None]
    yield "## Beside a baseline, without a goal\n"
    yield from _table(("", "cluster", "measured", "beside", "ratio"), (_goal(one)[:5] for one in others))
    columns = columns_of(report)
    sized = rows(report, columns)
    yield "## By size\n"
    yield _COLUMNS
    yield from _table(("", *columns, "nodes^", "policies x"), sized)
    names = {row[0] for row in sized}
    plain = [one for one in report.figures if one.against is None and one.name not in names]
    yield "## What else was measured\n"
    yield from _table(("", "cluster", "measured"), (_goal(one)[:3] for one in plain))
    if report.missing:
        yield "## Not measured\n"
        yield "".join(f"- {why.splitlines()[0]}\n" for why in report.missing)
    yield f"One unit: {about['reference']}; on this machine {about['unitMilliseconds']} ms."
    yield ""


def _goal(one: Figure) -> Sequence[str]:
    measured = "-" if one.value is None else f"{number(one.value)} {one.unit}"
    beside = one.beside if one.against is None else f"{number(one.against)} {one.unit}: {one.beside}"
    met = "yes" if one.met else f"no, but >= {one.tolerated:g}" if one.kept else "**no**"
    if one.value is None:
        met = "not measured"
    return one.name, one.where, measured, beside, number(one.ratio), one.goal, met


def _table(head: Sequence[str], cells: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|---" * len(head) + "|"
    for row in cells:
        yield "| " + " | ".join(row) + " |"
    yield ""


def main() -> None:
    """Write the page, or another file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("saved", type=Path, help="what `make bench` saved")
    parser.add_argument("--to", type=Path, default=PAGE)
    given = parser.parse_args()
    given.to.write_text(page(load(given.saved.read_text().splitlines())))


if __name__ == "__main__":
    main()
