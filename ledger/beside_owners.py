"""Owners' nodes that pods in flight may fill: others come first.

kube-scheduler knows before us that an owner is gone, and by its default scores sends there who comes next.
Two pods in flight would share what was free beside the owner with its place; the slot, which is to be held
again, would find none. Strict refuses the second one at bind; Guard cannot.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ledger.requests import CORE_DIMS, Request
from ledger.state import State
from ledger.table import Columns, Flags, Rows, Vector

_MOST_COMPARED = 64
"""Nodes, where one is chosen: the first that kube-scheduler names, which begins elsewhere each time."""


def beside_owners(state: State, request: Request, rows: Rows, passing: Flags) -> Flags:
    """Of these flags over rows, some of them set, those apart from the nodes of owners, whose holds the pod
    would see, where it and pods in flight that come for an owner's place may not all fit. Where only such
    nodes pass, or the one that the pod was just sent to in vain, the one that pods in flight leave most of.

    Nobody is refused: what is in flight may never land, and kube-scheduler, which offers the node, has room.
    """
    if not state.flights.by_uid or request.pod.uid in state.nominations.by_uid:
        return passing
    if not _scarce(state, request, rows) or np.count_nonzero(passing) == 1:
        return passing
    there = np.flatnonzero(passing & (state.holds.owners_seen(request.priority).take(rows) > 0))
    there = there[_lacking(state, request, rows[there], state.demands.largest, drawn=False)]
    if not there.size:
        return passing
    places = _places(state, request)
    full = _lacking(state, request, rows[there], places.item, drawn=True)
    if not full.any():
        return passing
    apart = passing.copy()
    apart[there[full]] = False
    if (apart & (rows != request.avoid)).any():
        return apart
    row = _emptiest(state, request, rows, there[:_MOST_COMPARED], places)
    return np.asarray(np.arange(rows.size) == row)


def _scarce(state: State, request: Request, rows: Rows) -> bool:
    """Whether on any of these rows less may be left than the pod asks for and a slot: told in a third of the
    time that it takes to look at owners' nodes.
    """
    free, charged = state.table.free, state.table.charged
    return any(
        (free[dim].take(rows) - charged[dim].take(rows)).min() < amount + state.demands.largest(dim)
        for dim, amount in request.parts
    )


def _places(state: State, request: Request) -> Vector:
    """By column what an owner's place is at the most: a slot of the largest policy that has owners, would
    hold their slots again, and is none that the pod does not see. Who makes a policy must fill slots of it.
    """
    demands, holds = state.demands, state.holds
    there = [
        number
        for number in demands.order
        if holds.filled_total[number]
        and demands[number].desired > 0
        and demands[number].priority >= request.priority
    ]
    places: Vector = demands.vectors[there].max(axis=0, initial=0)
    return places


def _lacking(
    state: State, request: Request, rows: Rows, place: Callable[[int], int], *, drawn: bool
) -> Flags:
    """Where less is left than the pod asks for and what an owner's place draws: at the most such a place, by
    column, and with `drawn` no more than is in flight.
    """
    lacking = np.zeros(rows.size, dtype=np.bool_)
    for dim, amount in request.parts:
        left = _certain(state, request, rows, dim) - amount
        few = left < place(dim)
        if few.any() and drawn:
            few &= left < _possible(state, request, rows, dim)
        lacking |= few & _offered(state, rows, dim)
    return lacking


def _emptiest(state: State, request: Request, rows: Rows, there: Rows, places: Vector) -> int:
    """Which of these places in rows pods in flight leave most of, if all land that may, of what some lack;
    last of all the one that the pod was just sent to, and those that are certainly full.

    Among equals the first as kube-scheduler names them, zones by turns: by name, they would all be of one.
    """
    few = rows[there]
    most = np.full(few.size, np.inf)
    for dim, amount in request.parts:
        certain, possible = (of(state, request, few, dim) for of in (_certain, _possible))
        if (certain - amount >= np.minimum(possible, places[dim])).all():
            continue  # by it there is room for all: thousands of pods of no requests decide nothing
        left = certain - possible
        pods = np.where(_offered(state, few, dim), left / amount, np.inf)
        np.minimum(most, pods, out=most)
    full = certainly_full(state, request, few)
    return int(there[np.lexsort((-most, full, few == request.avoid))[0]])


def certainly_full(state: State, request: Request, rows: Rows) -> Flags:
    """Where too little is left for the pod when all others in flight have landed that certainly will."""
    full = np.zeros(rows.size, dtype=np.bool_)
    for dim, amount in request.parts:
        full |= (_certain(state, request, rows, dim) < amount) & _offered(state, rows, dim)
    return full


def _offered(state: State, rows: Rows, dim: int) -> Flags | bool:
    """Where a node offers any of a column: elsewhere it keeps no pod out, as in `fits_free`."""
    return dim < CORE_DIMS or np.asarray(state.table.allocatable[dim].take(rows) > 0)


def _certain(state: State, request: Request, rows: Rows, dim: int) -> NDArray[np.int64]:
    """What is free of a column when all others in flight have landed that certainly will."""
    table = state.table
    free: NDArray[np.int64] = table.free[dim].take(rows)
    return free - _of_others(state, request, rows, dim, table.charged, certain=True)


def _possible(state: State, request: Request, rows: Rows, dim: int) -> NDArray[np.int64]:
    """What all others in flight take of it that may land there, or elsewhere."""
    return _of_others(state, request, rows, dim, state.table.possible, certain=False)


def _of_others(
    state: State, request: Request, rows: Rows, dim: int, columns: Columns, *, certain: bool
) -> NDArray[np.int64]:
    """What is charged there without the pod's own earlier answer, which it keeps where it only waits."""
    there: NDArray[np.int64] = columns[dim].take(rows)
    flight = state.flights.by_uid.get(request.pod.uid)
    if flight is not None and flight.certain is certain:
        for own, amounts in flight.parts:
            there[np.isin(rows, own)] -= amounts.get(state.table.resources[dim], 0)
    return there
