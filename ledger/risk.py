"""Holds that stand where pods in flight may still land, which were answered several nodes."""

from __future__ import annotations

from collections import Counter

import numpy as np

from ledger.state import State
from ledger.table import Rows


def rows_at_risk(state: State) -> Rows:
    """Rows where holds would have to leave if every pod in flight came that may."""
    table, held = state.table, state.holds.all
    short = np.zeros(len(table.names), dtype=np.bool_)
    for dim in state.demands.dims if state.flights.by_uid else ():
        possible = table.possible[dim]
        short |= (
            (possible > 0) & (held[dim] > 0) & (held[dim] > table.free[dim] - table.charged[dim] - possible)
        )
    return np.flatnonzero(short)


def at_risk(state: State, row: int) -> bool:
    """Whether the row is one of them."""
    return any(amount > 0 for amount in _lack(state, row))


def _lack(state: State, row: int) -> list[int]:
    """How much of what is held on a row would have to go, in the demands' dimensions."""
    table, dims = state.table, state.demands.dims
    left = table.free[dims, row] - table.charged[dims, row] - table.possible[dims, row]
    held = state.holds.all[dims, row]
    lack: list[int] = np.minimum(held, held - left).tolist()
    return lack


def holds_at_risk(state: State) -> Counter[int]:
    """How many holds of each demand would have to go: the latest demands' first, as they do."""
    number = Counter[int]()
    for row in rows_at_risk(state).tolist():
        lack = _lack(state, row)
        for demand in reversed(state.holds.on(row)):
            vector = state.demands.vectors[demand].take(state.demands.dims).tolist()
            for _ in range(int(state.holds.count[demand, row])):
                if not any(amount > 0 < slot for amount, slot in zip(lack, vector, strict=True)):
                    break
                lack = [amount - slot for amount, slot in zip(lack, vector, strict=True)]
                number[demand] += 1
    return number
