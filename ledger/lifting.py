"""How holds leave: their demands look for another place for them, or what a cap keeps from them is let go."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ledger.demands import NO_DEMAND
from ledger.risk import rows_at_risk
from ledger.state import State
from ledger.table import Flags, Rows

_GIVE_WAY_PER_SETTLE = 16
"""Demands whose holds give way to a cap, at some tenths of a millisecond each."""


def lift(state: State, demand: int, row: int, count: int) -> None:
    """Take holds off a node; an owner in flight that was given one of them is charged in full."""
    state.holds.add(demand, row, -count)
    _note(state, demand)
    given = int(state.holds.given[demand, row])
    for _ in range(given - int(state.holds.count[demand, row])):
        state.flights.bereave(demand, row)
    state.version += 1


def lift_many(state: State, demand: int, rows: Rows, counts: NDArray[np.int64]) -> None:
    """The same on many nodes, each named once."""
    given = state.holds.given[demand].take(rows) > 0
    for row, count in zip(rows[given].tolist(), counts[given].tolist(), strict=True):
        lift(state, demand, row, count)
    if not given.all():
        state.holds.add_many(demand, rows[~given], -counts[~given])
        _note(state, demand)
        state.version += 1


def _note(state: State, demand: int) -> None:
    """Its other holds may be too many above the lowest domain now."""
    if demand in state.demands.spread:
        state.uneven[demand] = None


def lift_least_useful(state: State, demand: int, count: int, among: Flags | None = None) -> None:
    """Lift this many holds: first those at risk, then where a node becomes free of holds.

    Those given to owners in flight last. `among`: only from these rows.
    """
    holds = state.holds
    rows = _least_useful(state, demand, among)
    there = holds.count[demand].take(rows).astype(np.int64)
    if demand in state.demands.spread:
        there = state.spreads.to_leave(demand, rows, there, count)
    given = np.minimum(holds.given[demand].take(rows), there)
    lifted = first_of(there - given, count)
    lifted += first_of(given, count - int(lifted.sum()))
    some = lifted > 0
    lift_many(state, demand, rows[some], lifted[some])


def _least_useful(state: State, demand: int, among: Flags | None = None) -> Rows:
    """The rows with holds of a demand, or those of them among these, in the order in which they are left."""
    holds, rank = state.holds, state.table.rank()
    rows = np.flatnonzero(holds.count[demand] if among is None else holds.count[demand] * among)
    safe = ~np.isin(rows, rows_at_risk(state))
    return rows[np.lexsort((-rank.take(rows), holds.number.take(rows), safe))]


def lift_uneven(state: State, demand: int) -> None:
    """Lift the holds that no owner could take where they are, by a spread constraint; a Pinned one stays."""
    while demand in state.demands.spread and state.demands.floating(demand):
        rows = _least_useful(state, demand)
        there = state.holds.count[demand].take(rows).astype(np.int64)
        lifted = state.spreads.excess(demand, rows, there)
        some = lifted > 0
        if not some.any():
            return
        lift_many(state, demand, rows[some], lifted[some])


def first_of(counts: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """How many to take of each, in this order, until there are `most`."""
    before = np.cumsum(counts) - counts
    return np.asarray(np.clip(most - before, 0, counts))


def keep_cap(state: State) -> None:
    """All holds together stay below the cap, in each pool as well; the latest demands' give way.

    Those of as many demands as one call may take: what nodes offer may shrink by much at once.
    """
    for _ in range(_GIVE_WAY_PER_SETTLE if state.holds.heavier else 0):
        over = over_cap(state)
        state.holds.heavier = over is not None
        if over is None:
            return
        lift_least_useful(state, *over)


def over_cap(state: State) -> tuple[int, int, Flags | None] | None:
    """The last demand that has a part in the excess over a cap, how many of its holds have to go, and on
    which rows (None: any); None when there is no excess.
    """
    demands = state.demands
    if state.pools and (most := state.pools.over(demands.vectors, demands.dims, state.cap_percent)):
        pool, dim, excess = most
        there, among = state.pools.count[:, pool].tolist(), state.pools.members(pool)
    else:
        beyond = ((dim, int(state.holds.total[dim]) - state.limits[dim]) for dim in demands.dims)
        dim, excess = next((one for one in beyond if one[1] > 0), (-1, 0))
        if dim < 0:
            return None
        there, among = state.holds.held_total, None
    demand = next((d for d in demands.order[::-1] if there[d] and demands.vectors[d, dim]), NO_DEMAND)
    if demand == NO_DEMAND:
        return None  # nothing is held: nodes say that they offer less than nothing
    return demand, min(-(-excess // int(demands.vectors[demand, dim])), there[demand]), among
