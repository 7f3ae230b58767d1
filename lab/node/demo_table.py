"""The table at the end of the demonstration: what was promised, planned, in the kernel, and delivered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

_VERDICTS: Final = {True: "[green]kept[/]", False: "[bold red]BROKEN[/]", None: "not judged"}


@dataclass(frozen=True, slots=True)
class Row:
    """One promise at one moment, and whether it was kept; None: a figure that is only shown."""

    promise: str
    planned: str
    kernel: str
    delivered: str
    kept: bool | None


def show(rows: Sequence[Row], console: Console) -> bool:
    """Print the table and the verdict; True when every promise that is judged was kept."""
    table = Table(title="one floor, from the policy to the kernel", title_justify="left")
    for column in ("promise", "planned", "in the kernel", "delivered", ""):
        table.add_column(column)
    for row in rows:
        cells = (escape(cell) for cell in (row.promise, row.planned, row.kernel, row.delivered))
        table.add_row(*cells, _VERDICTS[row.kept])
    console.print(table)
    judged = [row.kept for row in rows if row.kept is not None]
    broken = judged.count(False)
    summary = f"[red]{broken} of {len(judged)} BROKEN[/]" if broken else f"[green]all {len(judged)} kept[/]"
    console.print(summary, highlight=False)
    return not broken
