"""Figures with bounds: what was measured, what it is compared with in the same run, and their ratio."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure, what it is compared with in the same `unit`, and the bound of their ratio."""

    name: str
    value: float
    against: float
    bound: float
    unit: str
    beside: str = ""

    @property
    def ratio(self) -> float:
        """The figure by what it is compared with."""
        return self.value / self.against

    @property
    def kept(self) -> bool:
        """Within its bound."""
        return self.ratio <= self.bound


def show(figures: Sequence[Figure]) -> int:
    """Print them; an exit code: 1 when one is out of its bound, else 0."""
    table = Table("figure", "measured", "against", "ratio", "bound", "", box=None)
    for one in figures:
        measured = f"{one.value:.2f} {one.unit}"
        mark = "" if one.kept else "out of bound; "
        cells = f"{one.against:.2f}", f"{one.ratio:.2f}", f"{one.bound:g}", f"{mark}{one.beside}"
        table.add_row(one.name, measured, *cells)
    Console(width=110).print(table)
    return 0 if all(one.kept for one in figures) else 1


def p99(ordered: Sequence[float]) -> float:
    """The 99th percentile of what is sorted."""
    return ordered[max(0, round(0.99 * len(ordered)) - 1)]
