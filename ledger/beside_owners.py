"""Owners' nodes that pods in flight may fill: others come first.

kube-scheduler knows before us that an owner is gone, and by its default scores sends there who comes next.
Two pods in flight would share what was free beside the owner with its place; the slot, which is to be held
again, would find none. Strict refuses the second one at bind; Guard cannot.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ledger.requests import CORE_DIMS, Request
from ledger.state import State
from ledger.table import Flags, Rows

_Left = NDArray[np.float64]


def beside_owners(state: State, request: Request, rows: Rows, passing: Flags) -> Flags:
    """Of these flags over rows, some of them set, those apart from the nodes of owners, whose holds the pod
    would see, where it and pods in flight that come for an owner's place may not all fit. Where only such
    nodes pass, or the one that the pod was just sent to in vain, the one that pods in flight leave most of.

    Nobody is refused: what is in flight may never land, and kube-scheduler, which offers the node, has room.
    """
    if not state.flights.by_uid or request.pod.uid in state.nominations.by_uid:
        return passing
    there = np.flatnonzero(passing & (state.holds.owners.take(rows) > 0))
    there = there[state.holds.owners_seen(request.priority, rows[there])]
    if not there.size:
        return passing
    certain, drawn, possible = _left(state, request, rows[there])
    apart = passing.copy()
    apart[there[drawn < 0]] = False
    if (apart & (rows != request.avoid)).any():
        return apart
    # Among equals the first as kube-scheduler names them, zones by turns: by name, they would all be of one.
    one = np.lexsort((-possible, certain < 0, rows[there] == request.avoid))[0]
    return np.asarray(np.arange(rows.size) == there[one])


def _left(state: State, request: Request, rows: Rows) -> tuple[_Left, _Left, _Left]:
    """How many more pods of this size fit on each row beside this one, below zero not even itself: if all
    others in flight land that certainly will; if so much comes as an owner's place may draw, which is a slot
    of the largest; if all land that may. What a node offers none of keeps no pod out, as in `fits_free`.
    """
    table, flight = state.table, state.flights.by_uid.get(request.pod.uid)
    found = certain, drawn, possible = tuple(np.full(rows.size, np.inf) for _ in range(3))
    for dim, amount in request.parts:
        sure, may = table.charged[dim].take(rows), table.possible[dim].take(rows)
        for there, amounts in flight.parts if flight is not None else ():
            own = sure if flight is not None and flight.certain else may
            own[np.isin(rows, there)] -= amounts.get(table.resources[dim], 0)
        beside = table.free[dim].take(rows) - sure - amount
        place = state.demands.vectors[:, dim].max(initial=0)
        offered = dim < CORE_DIMS or table.allocatable[dim].take(rows) > 0
        for left, more in zip(found, (0, np.minimum(may, place), may), strict=True):
            np.minimum(left, np.where(offered, (beside - more) / amount, np.inf), out=left)
    return certain, drawn, possible
