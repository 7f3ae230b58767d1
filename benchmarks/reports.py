"""What a run of `make bench` found: kept as lines of JSON, shown as tables by the clusters' size."""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.figures import Figure, from_json, number
from benchmarks.fixed_work import REFERENCE, unit_seconds
from benchmarks.goals import LARGE, PLAIN, SPECIAL

MEASURED_IN_ALL: Final = "bind"
_UNITS: Final = (("pods/s", "pods/s"), (", MB", "MB"), ("bytes a pod", "bytes"), (", KB", "KB"))


@dataclass(frozen=True, slots=True)
class Report:
    """`about` the run; `goals`: figures with bounds; `figures`: what else was measured; what held the loop
    longest, by column and phase; `missing`: what was not measured, and why.
    """

    about: Mapping[str, Any]
    goals: tuple[Figure, ...]
    figures: tuple[Figure, ...]
    causes: Mapping[str, Mapping[str, str]]
    missing: Sequence[str]

    def kept(self) -> bool:
        """Whether all goals are met."""
        return all(goal.kept for goal in self.goals)

    def lines(self) -> list[str]:
        """JSON: about the run, then a figure a line; those with goals first."""
        about = {**self.about, "causes": self.causes, "missing": self.missing}
        return [json.dumps(about), *(json.dumps(one.as_json()) for one in self.all)]

    @property
    def all(self) -> tuple[Figure, ...]:
        """With goals and without."""
        return *self.goals, *self.figures


def load(lines: Iterable[str]) -> Report:
    """What lines() made."""
    about, *said = (json.loads(line) for line in lines)
    figures = [from_json(one) for one in said]
    goals = tuple(one for one in figures if one.bound is not None)
    rest = tuple(one for one in figures if one.bound is None)
    return Report(about, goals, rest, about.pop("causes"), about.pop("missing"))


def about(seconds: float, load_before: float) -> dict[str, Any]:
    """The machine, the state of the repository, the time; `load`: of the machine when the run began."""
    return {
        "machine": _machine(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": _git("rev-parse", "--short=12", "HEAD") + ("+" if _git("status", "--porcelain") else ""),
        "load": round(load_before, 1),
        "seconds": round(seconds),
        "reference": REFERENCE,
        "unitMilliseconds": round(1_000 * unit_seconds(20), 2),
    }


def _machine() -> str:
    words = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if "model name" in line]
    memory = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if "MemTotal" in line), 0)
    return f"{words[0] if words else os.uname().machine}, {os.cpu_count()} CPUs, {memory / 2**20:.0f} GiB"


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def _git(*arguments: str) -> str:
    """What git says about this repository; "" where there is no git."""
    folder = Path(__file__).parents[1]
    try:
        done = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def figure(name: str, column: str, value: float | Mapping[str, Any]) -> Figure:
    """What a part measured: a number, in units unless its name says otherwise, or a measured()."""
    if isinstance(value, Mapping):
        return Figure(
            name, value["value"], value["against"], None, value["unit"], value["beside"], False, column
        )
    unit = next((unit for ending, unit in _UNITS if name.endswith(ending)), "units")
    return Figure(name, value, None, None, unit, where=column)


def by_name(figures: Iterable[Figure]) -> dict[str, dict[str, float]]:
    """Figures that are compared with nothing: name -> column -> value."""
    found: dict[str, dict[str, float]] = {}
    for one in figures:
        if one.value is not None and one.against is None:
            found.setdefault(one.name, {})[one.where] = one.value
    return found


def exponent(values: Mapping[str, float], columns: Sequence[str]) -> str:
    """How the cost grows with the nodes, at 50 policies: 1.0 is in proportion."""
    found = [(int(column.split("/")[0]), values.get(column, 0.0)) for column in columns if "/50" in column]
    found = [(nodes, value) for nodes, value in found if value > 0]
    if len(found) < 2:
        return ""
    (few, less), (many, more) = found[0], found[-1]
    return f"{math.log(more / less) / math.log(many / few):.1f}"


def factor(values: Mapping[str, float]) -> str:
    """How many times as much 300 policies cost as 1 (or 50), at 5,000 nodes."""
    few = values.get(PLAIN) or values.get(SPECIAL)
    return f"{values[LARGE] / few:.1f}" if few and LARGE in values else ""


def others(goals: Iterable[Figure], found: Iterable[Figure]) -> tuple[Figure, ...]:
    """What was measured and is no goal as it is."""
    judged = {(one.name, one.where) for one in goals}
    return tuple(one for one in found if (one.name, one.where) not in judged)


def rows(report: Report, columns: Sequence[str]) -> list[list[str]]:
    """The table by size: a figure's name, its value in each column, how it grows."""
    made = []
    for name, values in by_name(report.all).items():
        if len(values.keys() & set(columns)) > 1:
            cells = [number(values.get(column)) for column in columns]
            made.append([name, *cells, exponent(values, columns), factor(values)])
    return made


def columns_of(report: Report) -> list[str]:
    """The columns of the table by size: those of a figure that is measured in all of them."""
    found = by_name(report.all).get(MEASURED_IN_ALL, {})
    return sorted(found, key=lambda column: [int(part) for part in column.split("/")])


def show_columns(report: Report, columns: Sequence[str], console: Console) -> None:
    """The table by size; what has no goal; what was not measured."""
    table = Table(title="units; 1 unit is 1 ms on the machine of reference", box=None, title_justify="left")
    table.add_column("")
    for name in (*columns, "nodes^", "policies x"):
        table.add_column(name, justify="right")
    shown = rows(report, columns)
    for row in shown:
        table.add_row(*row)
    console.print(table)
    console.print("nodes^: the exponent by which it grows with the nodes, at 50 policies (1: in proportion)")
    console.print("policies x: how many times as much 300 policies cost at 5,000 nodes as 1, or as 50")
    names = {row[0] for row in shown}
    for one in report.figures:
        if one.name not in names and one.value is not None:
            beside = f", by {number(one.against)} ({one.beside}): {number(one.ratio)}" if one.against else ""
            console.print(f" {one.name}, at {one.where}: {number(one.value)} {one.unit}{beside}")
    for column, causes in report.causes.items():
        if column == LARGE:
            said = ", ".join(f"{phase}: {what}" for phase, what in causes.items())
            console.print(f"What held the loop longest at {column}: {said}")
    for key, value in report.about.items():
        console.print(f"{key}: {value}")
    for why in report.missing:
        console.print(f"[red]not measured[/]: {why}")
