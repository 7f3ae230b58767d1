"""What holds may use of nodes, kept until anything changes: while nothing does, one missing slot after the
other is looked for, and most such looks end in vain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ledger.requests import room
from ledger.state import State
from ledger.table import Columns, Rows, Vector

_MOST_KEPT: Final = 8
"""Half a megabyte each at 5,000 nodes."""


@dataclass(slots=True)
class Vacancy:
    """`left`, [columns, rows], of which `most` is there of each column; None: it was not asked for twice."""

    left: Columns
    most: Vector | None = None


def vacant(
    state: State, demand: int, rows: Rows | None = None, *, safe: bool = False, beside: bool = True
) -> Columns | None:
    """What a demand's holds may use of these rows, or of all, [its weighed columns, rows]; None where it is
    known that no row has enough for a slot. `safe`: as for `room`; `beside` the holds that are there.
    """
    dims = state.demands.weighed(demand)
    held = state.holds.all if beside else None
    if rows is not None:
        return room(state, held, safe=safe, rows=rows, dims=dims)
    vector = state.demands.vectors[demand].take(dims)
    if _exceeds(vector, state.table.largest.take(dims)):
        return None
    if state.vacant_at != state.stamp:
        state.vacant, state.vacant_at = {}, state.stamp
    kind = safe, beside, tuple(dims)
    known = state.vacant.get(kind)
    if known is None:
        if len(state.vacant) >= _MOST_KEPT:
            del state.vacant[next(iter(state.vacant))]
        known = state.vacant[kind] = Vacancy(room(state, held, safe=safe, dims=dims))
        return known.left
    if known.most is None:
        known.most = known.left.max(axis=1)
    return None if _exceeds(vector, known.most) else known.left


def _exceeds(vector: Vector, most: Vector) -> bool:
    return bool(((vector > most) & (vector > 0)).any())
