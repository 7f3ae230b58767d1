"""Figures with bounds: what was measured, what it is compared with in the same run, and their ratio."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure, what it is compared with in the same `unit`, and the bound of their ratio.

    `value` None: it was not measured, and `beside` says why. `against` None: it is compared with nothing, and
    the bound is its own. `bound` None: it has no goal. `least`: the bound is a least, else a most. `where`:
    the cluster, as nodes/policies. `tolerated`: how far one noisy run may miss the bound.
    """

    name: str
    value: float | None
    against: float | None
    bound: float | None
    unit: str
    beside: str = ""
    least: bool = False
    where: str = ""
    tolerated: float | None = None

    @property
    def ratio(self) -> float | None:
        """The figure by what it is compared with; None where there is not both."""
        return None if self.value is None or not self.against else self.value / self.against

    @property
    def kept(self) -> bool:
        """Within its bound, if it has one, or as near as is tolerated; what was not measured is not."""
        return self.met or self._within(self.tolerated)

    @property
    def met(self) -> bool:
        """Within its bound, if it has one; what was not measured is not."""
        return self.bound is None or self._within(self.bound)

    def _within(self, bound: float | None) -> bool:
        judged = self.value if self.against is None else self.ratio
        if judged is None or bound is None:
            return False
        return judged >= bound if self.least else judged <= bound

    @property
    def goal(self) -> str:
        """In words; "" without one."""
        return "" if self.bound is None else f"{'>=' if self.least else '<='} {self.bound:g}"

    def as_json(self) -> dict[str, Any]:
        """For programs; `met` is null where there is no goal."""
        return {
            "name": self.name,
            "cluster": self.where,
            "value": self.value,
            "unit": self.unit,
            "baseline": self.against,
            "ratio": self.ratio,
            "goal": self.goal or None,
            "tolerated": self.tolerated,
            "met": None if self.bound is None else self.met,
            "beside": self.beside,
        }


def from_json(said: dict[str, Any]) -> Figure:
    """What as_json() made."""
    sign, _, bound = (said["goal"] or "").partition(" ")
    return Figure(
        said["name"],
        said["value"],
        said["baseline"],
        float(bound) if bound else None,
        said["unit"],
        said["beside"],
        sign == ">=",
        said["cluster"],
        tolerated=said["tolerated"],
    )


def show(figures: Sequence[Figure]) -> int:
    """Print them; an exit code: 1 when one is out of its bound, else 0."""
    table = Table("figure", "measured", "against", "ratio", "bound", "", box=None)
    for one in figures:
        mark = "" if one.met else "within noise; " if one.kept else "out of bound; "
        measured = "-" if one.value is None else f"{number(one.value)} {one.unit}"
        cells = number(one.against), number(one.ratio), one.goal, f"{mark}{one.beside}"
        name = f"{one.name}, at {one.where}" if one.where else one.name
        table.add_row(name, measured, *cells)
    Console(width=150).print(table)
    return 0 if all(one.kept for one in figures) else 1


def number(value: float | None) -> str:
    """Three digits that count."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def p99(ordered: Sequence[float]) -> float:
    """The 99th percentile of what is sorted."""
    return ordered[max(0, round(0.99 * len(ordered)) - 1)]


def measured(value: float, unit: str, against: float | None = None, beside: str = "") -> dict[str, Any]:
    """What a part of `make bench` hands over, as JSON; see Figure."""
    return {"value": value, "unit": unit, "against": against, "beside": beside}
