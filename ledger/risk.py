"""Holds that stand where pods may still land: those in flight that were answered several nodes, and those
that DaemonSets have still to place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np

from ledger.board import Amounts
from ledger.requests import vector_of
from ledger.state import State
from ledger.table import Rows

_ROWS_A_STEP: Final = 200


def rows_at_risk(state: State) -> Rows:
    """Rows where holds would have to leave if every pod landed there that may."""
    table, held = state.table, state.holds.all
    short = np.zeros(len(table.names), dtype=np.bool_)
    for dim in state.demands.dims if uncertain(state) else ():
        may = table.possible[dim] + table.expected[dim]
        short |= (may > 0) & (held[dim] > 0) & (held[dim] > table.free[dim] - table.charged[dim] - may)
    return np.flatnonzero(short)


def uncertain(state: State) -> bool:
    """Whether a pod may land anywhere of which that is not certain."""
    return bool(state.flights.by_uid) or state.daemons.expects


def at_risk(state: State, demand: int, row: int) -> int:
    """How many holds of a demand would have to leave a row, if no others do."""
    return _too_many(_lack(state, row), vector_of(state, demand), int(state.holds.count[demand, row]))


def _too_many(lack: Amounts, vector: Amounts, there: int) -> int:
    """How many slots make up what is lacking, as far as they take of it; at most those that are there."""
    slots = (-(-amount // slot) for amount, slot in zip(lack, vector, strict=True) if amount > 0 < slot)
    return min(there, max(slots, default=0))


def _lack(state: State, row: int) -> Amounts:
    """How much of what is held on a row would have to go, in the demands' dimensions."""
    table, dims = state.table, state.demands.dims
    may = table.possible[dims, row] + table.expected[dims, row]
    left = table.free[dims, row] - table.charged[dims, row] - may
    held = state.holds.all[dims, row]
    lack: Amounts = np.minimum(held, held - left).tolist()
    return lack


def gather_at_risk(state: State) -> Iterator[Counter[str]]:
    """How many holds of each demand, by key, would have to go: the latest demands' first, as they do.

    Those given to owners in flight go last. In steps of some rows; the last is all of it.
    """
    number = Counter[str]()
    for done, row in enumerate(rows_at_risk(state).tolist()):
        if done % _ROWS_A_STEP == 0:
            yield number
        number.update(_at_risk_on(state, row))
    yield number


def _at_risk_on(state: State, row: int) -> Counter[str]:
    holds, number = state.holds, Counter[str]()
    lack = _lack(state, row)
    there = [(demand, holds.movable(demand, row)) for demand in reversed(holds.on(row))]
    there += [(demand, int(holds.count[demand, row]) - movable) for demand, movable in there]
    for demand, most in there:
        vector = vector_of(state, demand)
        if count := _too_many(lack, vector, most):
            lack = [amount - count * slot for amount, slot in zip(lack, vector, strict=True)]
            number[state.demands[demand].key] += count
    return number
