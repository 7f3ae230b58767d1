"""The goals of `make bench`: which figure of which cluster has which bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from benchmarks.figures import Figure

SPECIAL: Final = "5000/50"
LARGE: Final = "5000/300"
PLAIN: Final = "5000/1"
FLOOD: Final = "1000/10"
WIDE: Final = "15000/50"
PROPORTION: Final = 3.0
"""Three times the nodes may cost three times as much."""

Found = Mapping[tuple[str, str], Figure]
"""What was measured, by name and cluster."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound of one figure in one cluster; `least`: at least that much, else at most.

    `ratio_to`: another figure of the run (name, cluster) which it is compared with, where what it was
    measured beside is not meant. `quick`: whether it is measured with --quick, too. `tolerated`: Figure.
    """

    figure: str
    column: str
    bound: float
    least: bool = False
    ratio_to: tuple[str, str] | None = None
    quick: bool = True
    tolerated: float | None = None

    def judged(self, found: Found) -> Figure:
        """The figure with its bound; without a value where it was not measured."""
        figure = found.get((self.figure, self.column))
        if figure is None:
            return Figure(self.figure, None, None, self.bound, "", "not measured", self.least, self.column)
        figure = replace(figure, bound=self.bound, least=self.least, tolerated=self.tolerated)
        if self.ratio_to is None:
            return figure
        other = found.get(self.ratio_to)
        name, column = self.ratio_to
        by = name if name != self.figure else f"at {column}"
        if other is None or not other.value:
            return replace(figure, value=None, against=None, beside=f"{by} was not measured")
        return replace(figure, name=f"{self.figure} (x {by})", against=other.value, beside=by)


def _grows(figure: str) -> Goal:
    return Goal(figure, WIDE, PROPORTION, ratio_to=(figure, SPECIAL), quick=False)


def _as_fast(figure: str) -> Goal:
    return Goal(figure, FLOOD, 0.98, least=True, quick=False, tolerated=0.9)


GOALS: Final = (
    Goal("filter p50 by HTTP, 500 names (x Go)", PLAIN, 0.85),
    Goal("filter p50 by HTTP, 5,000 names (x Go)", PLAIN, 0.8),
    Goal("filter p50 by HTTP, 500 names (x echo)", PLAIN, 4.5),
    Goal("filter p50 by HTTP, 5,000 names (x echo)", PLAIN, 10.0),
    Goal("filter p99 by HTTP, 500 names, 4,000 watch events/s (x idle)", SPECIAL, 4.0),
    Goal("flood, filter and bind (x Go that accepts all), score 0", FLOOD, 1.0, least=True, quick=False),
    Goal("flood, filter and bind (x Go that accepts all), score 5", FLOOD, 1.0, least=True, quick=False),
    Goal("flood, filter only (x Go that accepts all), score 5", FLOOD, 1.0, least=True, quick=False),
    Goal("owner, creation to bind, p50 (x ordinary without us)", FLOOD, 2.0, quick=False),
    Goal("re-pack 1,000 holds, their node lost", SPECIAL, 50.0),
    Goal("re-pack 1,000 holds, a node with some of them lost", SPECIAL, 50.0),
    Goal("re-pack, longest that a verb waits", SPECIAL, 5.0),
    Goal("idle, share of a core", SPECIAL, 1.0),
    _as_fast("flood, placeholders on 32 nodes (x no floors)"),
    _as_fast("flood, placeholders on 1,000 nodes (x no floors)"),
    Goal("owner, creation to bind, p50, placeholders (x ordinary without us)", FLOOD, 4.0, quick=False),
    _grows("filter, 5000 names"),
    _grows("filter, 500 names, refused"),
    _grows("bind"),
    _grows("re-pack 1,000 holds, their node lost"),
    _grows("idle, share of a core"),
    _grows("start, all CPU"),
    _grows("memory, MB"),
    Goal("preempt, p99", SPECIAL, 30.0),
    Goal("preempt, holds move, p99", SPECIAL, 30.0),
    Goal("filter, 500 names, 1,000 nominated pods", SPECIAL, 2.0),
    Goal("filter, 500 names, 1,500 owners in flight", SPECIAL, 2.0),
    Goal(
        "bind, 300 unplaced policies, Guard",
        SPECIAL,
        1.5,
        ratio_to=("bind, 300 unplaced policies, Strict", SPECIAL),
    ),
    Goal("longest pause once ready", LARGE, 10.0),
    Goal("pause, start", LARGE, 10.0),
    # The aim of all passes; docs/limits.md says which of these miss it.
    Goal("pause, a zone is lost", LARGE, 10.0),
    Goal("pause, a budget of all is cut", LARGE, 10.0),
    Goal("pause, a budget of all grows", LARGE, 10.0),
    Goal("pause, a PriorityClass of all", LARGE, 10.0),
    Goal("pause, all policies expire", LARGE, 10.0),
    Goal("ingest, a pod event", LARGE, 0.030),
    Goal("ingest, all pods", LARGE, 8_000.0),
)


def judge(found: Found, *, quick: bool = False) -> list[Figure]:
    """Every goal in turn, met or not."""
    return [goal.judged(found) for goal in GOALS if goal.quick or not quick]
