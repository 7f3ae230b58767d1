"""Pinned holds after a restart: they stand where they stood, as only the loss of their node moves them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ledger.board import slots_that_fit
from ledger.requests import room, vector_of
from ledger.state import State


def restore(state: State, key: str, holds: Iterable[tuple[str, int]]) -> None:
    """Place a demand's holds (node, slots) as they were, as far as they are missing, and have room there."""
    demand = state.demands.numbers[key]
    for name, slots in holds:
        row = state.table.index.get(name)
        if row is None or not state.demands.eligible[demand, row]:
            continue
        left = room(state, state.holds.all, rows=np.asarray([row], dtype=np.intp))
        fit = min(slots, state.holds.missing(demand), int(slots_that_fit(left, vector_of(state, demand))[0]))
        seats = state.holds.seats(demand)
        count = fit if seats is None else min(fit, int(seats[row]))
        if count > 0:
            state.holds.add(demand, row, count)
