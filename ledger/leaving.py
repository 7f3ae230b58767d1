"""Why holds leave: their node is lost, others took their room, or there are too many of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from ledger.lifting import lift, lift_least_useful, lift_many, lift_uneven
from ledger.state import State
from ledger.table import Flags, Rows, Table, Vector

_UNEVEN_PER_SETTLE = 8
"""Demands with spread constraints, at a tenth of a millisecond each."""
_ANCHORS_PER_SETTLE = 400
"""Their anchors, at some hundredths."""
_FEW = 4
"""Nodes, of which each is looked at sooner than all of them together."""
_SHORT_PER_SETTLE = 150
"""Nodes that holds leave, at some hundredths; until they do, pods are refused there."""


def leave_lost_nodes(state: State) -> None:
    """Holds leave nodes that are gone, not ready or no longer eligible.

    A lost node is the one thing that moves a Pinned hold.
    """
    count, eligible = state.holds.count, state.demands.eligible
    regraded, state.regraded = state.regraded, set()
    rejudged, state.rejudged = state.rejudged, set()
    lost: dict[int, set[int]] = {}
    for demand in filter(state.demands.there, rejudged):
        if state.holds.held_total[demand]:
            lost[demand] = {*np.flatnonzero((count[demand] > 0) & ~eligible[demand]).tolist()}
    for row in regraded:
        for demand in state.holds.standing.get(row, ()):
            if not eligible[demand, row]:
                lost.setdefault(demand, set()).add(row)
    for demand in sorted(lost, key=state.demands.position.__getitem__):
        rows = np.asarray(sorted(lost[demand]), dtype=np.intp)
        lift_many(state, demand, rows, count[demand].take(rows).astype(np.int64))


def forget_beneath_holds(state: State) -> None:
    """Where nobody asks us, pods in flight land on no node where holds leave them no room any more."""
    if not state.answers and state.flights.by_uid:
        state.flights.drop_on(_short_rows(state, charged=True))


def forget_hopeless(state: State) -> None:
    """Pods in flight that were answered one node alone, whose room there others have taken, land nowhere.

    Once that has lasted: while the account is behind the scheduler's, a pod may be let in where another that
    is counted yet has ended.
    """
    table = state.table
    for row in _touched_and_short(table):
        if _over_charged(table, row):
            state.short.setdefault(row, state.now)
    late = {row for row in state.short_for_long() if _over_charged(table, row)}
    if late and state.flights.drop_hopeless(late, state.offers.by_uid):
        state.changed()


def _touched_and_short(table: Table) -> Iterable[int]:
    """Rows that were touched, without most of those where nothing is short."""
    if len(table.touched) < _FEW:
        return table.touched
    rows = np.fromiter(table.touched, dtype=np.intp)
    short: list[int] = rows[(table.free[:, rows] < table.charged[:, rows]).any(axis=0)].tolist()
    return short


def _over_charged(table: Table, row: int) -> bool:
    """Whether more is charged than is free, of what is charged at all."""
    charged = table.charged[:, row]
    return bool(((charged > 0) & (table.free[:, row] < charged)).any())


def _leave_full_nodes(state: State, demand: int, rows: Rows) -> None:
    """maxSlotsPerNode counts filled and held slots: owners may have come to a node with holds."""
    limit = state.demands[demand].max_slots_per_node
    if limit is None or not state.holds.held_total[demand]:
        return
    count = state.holds.count[demand].take(rows).astype(np.int64)
    filled = state.holds.filled[demand].take(rows)
    over = (count > 0) & (count + filled > limit)
    lift_many(state, demand, rows[over], np.minimum(count + filled - limit, count)[over])


def lift_excess(state: State) -> None:
    """Where more is filled and held than before: too many on a node, or more than desired.

    The least useful holds go.
    """
    fuller, state.holds.fuller = state.holds.fuller, {}
    for demand in sorted(fuller, key=state.demands.position.__getitem__):
        if state.ownership.unsettled(state.demands[demand].namespace):
            state.holds.fuller[demand] = fuller[demand]
            continue
        _leave_full_nodes(state, demand, np.asarray(sorted(fuller[demand]), dtype=np.intp))
        excess = -state.holds.missing(demand)
        if excess > 0 and state.holds.held_total[demand]:
            lift_least_useful(state, demand, min(excess, state.holds.held_total[demand]))


def leave_uneven(state: State) -> None:
    """Pods or nodes came or went: by a spread constraint holds may be where no owner can go.

    Those of as many demands as one call may take, those that wait longest first.
    """
    touched, state.headcount.touched = state.headcount.touched, set()
    for namespace in touched:
        there = state.demands.spread.intersection(state.demands.rivals(namespace))
        state.uneven |= dict.fromkeys(sorted(there))
    anchors = state.spreads.anchors
    for demand in [*state.uneven][:_UNEVEN_PER_SETTLE]:
        if anchors.effort > _ANCHORS_PER_SETTLE:
            break
        del state.uneven[demand]
        lift_uneven(state, demand)
        if state.holds.missing(demand) > 0:
            state.holds.wanting.add(demand)
    anchors.effort = 0


def _short_dims(
    state: State, row: int, *, spare: bool = False, promised: Vector | None = None
) -> dict[int, int]:
    """Columns in which more is held on a node than is free there, and how much more.

    With `spare` also less what others are about to take; less what is `promised` to some of them.
    """
    table, held = state.table, state.holds.all
    free = table.free[:, row].copy()
    if promised is not None:
        free -= promised
    if spare or state.charges_win:
        free -= table.charged[:, row]
    if spare:
        free -= table.nominated[:, row] + table.expected[:, row]
    return {
        dim: int(held[dim, row] - free[dim]) for dim in state.demands.dims if 0 < held[dim, row] > free[dim]
    }


def _in_excess(state: State, demand: int, short: Mapping[int, int]) -> int:
    """How many slots of a demand are too many by what is short, as far as they take of it."""
    vector = state.demands.vectors[demand]
    return max((-(-lack // int(vector[dim])) for dim, lack in short.items() if vector[dim]), default=0)


def _short_rows(state: State, *, charged: bool) -> Flags:
    """Where more of something is held than is free, or than pods in flight leave of it (`charged`)."""
    table, short = state.table, np.zeros(len(state.table.names), dtype=np.bool_)
    for dim in state.demands.dims:
        held = state.holds.all[dim]
        short |= (held > 0) & (held > table.free[dim] - (table.charged[dim] if charged else 0))
    return short


def leave_short_nodes(state: State) -> None:
    """Something took what was held (a bypass, a resize, a pod of higher priority).

    The latest demands' holds leave.
    """
    table, holds = state.table, state.holds
    touched, table.touched = table.touched, set()
    landed, state.landed = state.landed, set()
    for row, priority, promised in list(_holes(state, landed)):
        later = [demand for demand in holds.on(row) if state.demands[demand].priority <= priority]
        leave_short_node(state, row, later, promised=promised)
    if len(touched) * 8 < len(table.names) and not state.recheck:
        rows = [row for row in touched if holds.number[row] and _short_dims(state, row)]
    else:
        rows = np.flatnonzero(_short_rows(state, charged=state.charges_win)).tolist()
    state.recheck = False
    table.touched.update(rows[_SHORT_PER_SETTLE:])
    for row in rows[:_SHORT_PER_SETTLE]:
        leave_short_node(state, row)


def _holes(state: State, rows: Collection[int]) -> Iterator[tuple[int, int, Vector]]:
    """What pods wait for whose victims are gone, where holds stand as well: row, priority and columns.

    Of rows where a DaemonSet's pod has landed. New holds keep off such a hole, unless that pod was expected;
    now that it is there, it must not cost the preemptor its hole, for which others died. Where nothing else
    landed, a hold was there before, and preempt knew it.
    """
    if not state.nominations.by_uid:
        return
    table, there = state.table, np.fromiter(rows, dtype=np.intp)
    there = there[state.holds.number[there] > 0]
    crowded = set(there.tolist()) & {row for row, _ in state.nominations.by_uid.values()}
    for uid, (row, pod) in state.nominations.by_uid.items() if crowded else ():
        offer = state.offers.by_uid.get(uid)
        victims = offer.victims.get(table.names[row]) if offer is not None and row in crowded else None
        claims = (state.claims.by_uid.get(victim) for victim in victims or ())
        if victims and all(claim is None or claim.row != row for claim in claims):
            yield row, pod.priority, table.vector(pod.requests)


def leave_short_node(
    state: State,
    row: int,
    demands: Sequence[int] | None = None,
    *,
    spare: bool = False,
    promised: Vector | None = None,
) -> None:
    """Lift holds of these demands or, if None, of any, the latest one's first, until what is held fits.

    Those given to owners in flight last, and never for what is only `promised`.
    """
    there_now = [demand for demand in reversed(state.holds.on(row)) if demands is None or demand in demands]
    for given in (False, True) if promised is None else (False,):
        for demand in there_now:
            while dims := _short_dims(state, row, spare=spare, promised=promised):
                there = int(state.holds.count[demand, row]) if given else state.holds.movable(demand, row)
                count = min(there, _in_excess(state, demand, dims))
                if count <= 0:
                    break
                lift(state, demand, row, count)
                state.counters["displaced"] += count
