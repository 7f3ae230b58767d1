"""Holds that stand where pods may still land: those in flight that were answered several nodes, and those
that DaemonSets have still to place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ledger.board import NEVER, Amounts, slots_that_fit
from ledger.refuge import Refuge
from ledger.requests import Request, avail, cells, room, vector_of
from ledger.retries import slots_by_pool
from ledger.state import State
from ledger.table import Columns, Rows

_ROWS_A_STEP: Final = 200
_MOST_KINDS: Final = 64
"""Pods in flight of more kinds are not reckoned up for each answer."""


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


def refuge(state: State) -> Refuge | None:
    """As things are; None when nothing is known to be spare."""
    if state.refuge is None or state.refuge[0] != state.stamp:
        state.refuge = state.stamp, _refuge(state)
    return state.refuge[1]


def _refuge(state: State) -> Refuge | None:
    table, demands = state.table, state.demands
    if not 0 < len(state.flights.uncertain) <= _MOST_KINDS or _short(state):
        return None
    risky = rows_at_risk(state)
    if not risky.size:
        return None
    flags = np.zeros(len(table.names), dtype=np.bool_)
    flags[risky] = True
    standing, on, _ = state.holds.pairs()
    there = np.flatnonzero(np.bincount(standing[flags[on]])).tolist()
    if any(state.spreads.required(demand) for demand in there):
        return None  # where their holds find a place depends on how the others lie
    vectors = demands.vectors[there][:, demands.dims]
    slot: Amounts = vectors.max(axis=0).tolist()
    left = room(state, state.holds.all) - table.expected[demands.dims]
    most = _allowed(state, there)
    places = np.minimum(most, slots_that_fit(left, slot))
    for demand in there:
        if not demands.floating(demand):
            flags &= state.holds.count[demand] == 0
    return Refuge(flags, slot, left, most, places, _cost(state, vectors))


def _short(state: State) -> bool:
    """Whether holds have to leave some row as things are."""
    table, dims = state.table, state.demands.dims
    held = state.holds.all[dims]
    return bool(((held > 0) & (held > table.free[dims] - table.charged[dims])).any())


def _allowed(state: State, there: list[int]) -> NDArray[np.int64]:
    """How many holds each row may get, whichever of these demands they are of."""
    most = np.where(state.demands.eligible[there].all(axis=0), NEVER, 0)
    for demand in there:
        seats = state.holds.seats(demand)
        most = most if seats is None else np.minimum(most, seats)
        if state.pools:
            slots = slots_by_pool(state, demand, beside_all=True)
            most = state.pools.keep_within(slots, np.arange(most.size), most)
    return most


def _cost(state: State, vectors: Columns) -> int:
    """How many places the pods in flight can cost, wherever they land: those that they take themselves, and
    those for the holds that they push away, which is the same place if all slots are alike.
    """
    largest, alike = vectors.max(axis=0), bool((vectors == vectors[0]).all())
    named = largest > 0
    smallest = np.where(vectors > 0, vectors, NEVER).min(axis=0)[named]
    total = 0
    for kind, count in state.flights.uncertain.items():
        asked = dict(kind)
        amounts = np.asarray([asked.get(name, 0) for name in state.demands.resources], dtype=np.int64)[named]
        taken = int((-(-amounts // largest[named])).max(initial=0))
        pushed = 0 if alike else int((-(-amounts // smallest)).sum())
        total += count * (taken + pushed)
    return total


def beside_risk(state: State, request: Request, rows: Rows) -> tuple[Rows, Columns]:
    """Of these rows those with holds at risk that the pod may have all the same, and what it may use there.

    Each pod in flight lands on one node at most, so all of them together push away no more holds than one
    landing each does. The pod may take what is free beside the holds, as long as that many other places are
    left, wherever they land. Not beside holds that may not move; nor beside safe ones: those stay safe.
    """
    spare = refuge(state)
    rows = rows[spare.rows[rows]] if spare is not None else rows[:0]
    need = np.asarray(request.need, dtype=np.int64)[:, None]
    if spare is None or not rows.size:
        return rows, np.zeros((len(request.need), 0), dtype=np.int64)
    left = avail(state, request, rows, own=False) + state.table.possible[cells(state, rows)]
    fit = ((need <= left) | (need <= 0)).all(axis=0) & spare.spared(rows, need)
    return rows[fit], left[:, fit]


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
