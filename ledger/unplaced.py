"""Why slots are not held, in numbers a person can act on."""

from __future__ import annotations

from typing import Final

import numpy as np

from ledger.board import slots_that_fit
from ledger.decisions import Unplaced
from ledger.requests import room, vector_of
from ledger.retries import cap_slots, pool_slots
from ledger.spread import VOLUMES
from ledger.state import State
from ledger.table import Columns, Rows
from qos.cluster.objects import Withheld

INSUFFICIENT = "Insufficient"
NO_NODE = "NoNode"
CAP_REACHED = "CapReached"
POOL_CAP_REACHED = "PoolCapReached"
MAX_SLOTS_PER_NODE = "MaxSlotsPerNode"
FRAGMENTED = "Fragmented"
NO_ROWS: Final[Rows] = np.zeros(0, dtype=np.intp)
NODE_CANNOT_ENFORCE = "NodeCannotEnforce"


class Place:
    """What all look at who ask why: the room of each row, good until the ledger changes."""

    def __init__(self, state: State) -> None:
        self.room: Columns = room(state, state.holds.all)
        self.positive: Columns = np.maximum(self.room, 0)


def why(state: State, demand: int, place: Place) -> tuple[Unplaced, ...]:
    """The reasons of a demand's unplaced slots; their counts add up to the slots neither filled nor held.

    `missing` is what whole slots lack: so much more of the resource, in pieces of at least one slot, would
    do.
    """
    withheld = state.demands[demand].withheld
    beyond = (_beyond(withheld),) if withheld is not None else ()
    return (*beyond, *_without_place(state, demand, place))


def _beyond(withheld: Withheld) -> Unplaced:
    return Unplaced(withheld.count, withheld.reason, withheld.resource, withheld.missing, withheld.text)


def _without_place(state: State, demand: int, place: Place) -> tuple[Unplaced, ...]:
    """Why slots have no place that budgets give."""
    count = state.holds.missing(demand)
    if count <= 0:
        return ()
    if not state.demands.eligible[demand].any():
        detail = _withheld(state, demand)
        if not detail and state.demands[demand].mounted:
            return (Unplaced(count, VOLUMES, detail=state.demands[demand].mounted),)
        return (Unplaced(count, NODE_CANNOT_ENFORCE if detail else NO_NODE, detail=detail),)
    if name := state.demands.nowhere(demand):
        amount = state.demands[demand].vector[name]
        return (Unplaced(count, INSUFFICIENT, name, count * amount),)
    reasons = []
    allowed, dim = cap_slots(state, demand)
    # A cap of all there is says no more than that the nodes lack it.
    capped = max(0, count - allowed) if state.cap_percent < 100 else 0
    if capped:
        reasons.append(_lacking(state, demand, capped, CAP_REACHED, dim))
    pooled = min(count - capped, _kept_by_pools(state, demand, place))
    if pooled:
        reasons.append(Unplaced(pooled, POOL_CAP_REACHED))
    left = count - capped - pooled
    unable = min(left, _would_take(state, demand, place))
    if unable:
        reasons.append(Unplaced(unable, NODE_CANNOT_ENFORCE, detail=_withheld(state, demand)))
    left -= unable
    closed, room_there = _kept_by_spread(state, demand, place) if left else (NO_ROWS, 0)
    uneven = min(left, room_there)
    if uneven:
        reason, detail = state.spreads.explain(demand, closed)
        reasons.append(Unplaced(uneven, reason, detail=detail))
    if left > uneven:
        reasons += _on_nodes(state, demand, left - uneven, place)
    return tuple(reasons)


def _kept_by_pools(state: State, demand: int, place: Place) -> int:
    """How many slots would find room where the cap of a pool keeps them out."""
    slots = pool_slots(state, demand)
    if slots is None or state.cap_percent >= 100:
        return 0
    rows = np.flatnonzero(state.demands.eligible[demand] & (slots == 0))
    fit = slots_that_fit(place.room[:, rows], vector_of(state, demand))
    limit = state.holds.seats(demand)
    return int((fit if limit is None else np.minimum(fit, limit[rows])).sum())


def _kept_by_spread(state: State, demand: int, place: Place) -> tuple[Rows, int]:
    """The rows with room that a spread constraint lets no more slots have, and how many it would do for."""
    if not state.spreads.required(demand):
        return NO_ROWS, 0
    rows = np.flatnonzero(state.demands.eligible[demand] & ~state.spreads.open(demand))
    fit = slots_that_fit(place.room[:, rows], vector_of(state, demand))
    limit = state.holds.seats(demand)
    fit = fit if limit is None else np.minimum(fit, limit[rows])
    return rows[fit > 0], int(fit.sum())


def _withheld(state: State, demand: int) -> str:
    strict = state.demands.strict
    return strict.explained(demand, strict.withheld(demand))


def _would_take(state: State, demand: int, place: Place) -> int:
    """How many slots would find room on the nodes that cannot enforce what the demand needs."""
    rows = state.demands.strict.withheld(demand)
    if not rows.size:
        return 0
    fit = slots_that_fit(place.room[:, rows], vector_of(state, demand))
    limit = state.holds.seats(demand)
    return int((fit if limit is None else np.minimum(fit, limit[rows])).sum())


def _lacking(state: State, demand: int, count: int, reason: str, dim: int) -> Unplaced:
    amount = int(state.demands.vectors[demand, dim])
    return Unplaced(count, reason, state.table.resources[dim], count * amount)


def _on_nodes(state: State, demand: int, count: int, place: Place) -> list[Unplaced]:
    """Room enough under the cap, but not on the nodes."""
    open_rows = state.demands.eligible[demand].copy()
    limit = state.holds.seats(demand)
    if limit is not None:
        open_rows &= limit > 0
    if not open_rows.any():
        return [Unplaced(count, MAX_SLOTS_PER_NODE)]
    left = place.positive[:, open_rows]
    scarce, slots = _scarcest(state, demand, left)
    scattered = min(count, slots)
    reasons = []
    if count > scattered:
        reasons.append(_lacking(state, demand, count - scattered, INSUFFICIENT, scarce))
    if scattered:
        reasons.append(_lacking(state, demand, scattered, FRAGMENTED, _nearest(state, demand, left)))
    return reasons


def _scarcest(
    state: State, demand: int, left: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
) -> tuple[int, int]:
    """The column of which the nodes together have least, and how many slots that would do for."""
    best: tuple[float, int] | None = None
    for position, amount in enumerate(vector_of(state, demand)):
        if amount > 0:
            share = int(left[position].sum()) / amount
            if best is None or share < best[0]:
                best = (share, state.demands.dims[position])
    assert best is not None, "a demand asks for nothing"
    return best[1], int(best[0])


def _nearest(state: State, demand: int, left: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> int:
    """The column that keeps a slot off the node that comes nearest to taking one."""
    vector = np.asarray(vector_of(state, demand), dtype=np.float64)
    asked = np.flatnonzero(vector > 0)
    lack = np.maximum(vector[asked, None] - left[asked], 0) / vector[asked, None]
    nearest = int(lack.sum(axis=0).argmin())
    return state.demands.dims[int(asked[int(lack[:, nearest].argmax())])]
