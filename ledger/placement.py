"""Where holds lie: those that lost their place leave, and missing ones are placed, best fit, in the demands'
order.

Holds that are still right stay where they are. What cannot be placed as things are is placed by moves; then
at risk, where pods in flight that were answered several nodes may still land: later answers leave a node with
holds out, unless all of them find a place wherever such pods land, and nothing else keeps its room; last, in
the place of strictly later demands' holds, which then look for another. What stands at risk moves when there
is a safe place, or when such a pod lands. Pods that DaemonSets have still to place count like those in
flight: whether they ever come is up to their owner.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from ledger.board import Amounts, slots_that_fit
from ledger.judge import commit, moved
from ledger.leaving import (
    forget_beneath_holds,
    forget_hopeless,
    leave_lost_nodes,
    leave_short_node,
    leave_short_nodes,
    leave_uneven,
    lift_excess,
)
from ledger.lifting import first_of, keep_cap, over_cap
from ledger.moves import SMALL, Search
from ledger.requests import Request, board, board_at, cells, room, scale, vector_of
from ledger.retries import Patience, cap_slots, in_turn, note_failure, pool_slots, slots_by_pool, take_turns
from ledger.risk import at_risk, rows_at_risk, uncertain
from ledger.state import State
from ledger.table import Columns, Rows
from ledger.vacancies import vacant
from qos.cluster.objects import Pod

_PLANS_PER_SETTLE = 64


def settle(state: State, *, thorough: bool = False, patience: Patience | None = None) -> None:
    """Make the holds right after changes; with `thorough` also search moves for slots that failed before.

    patience: of a call that settles twice, what is left of it.
    """
    state.lapse()
    if state.dirty or (thorough and (state.overdue or state.turns or state.crowded)):
        _settle(state, thorough, patience or Patience(state))
    if thorough and uncertain(state):
        _leave_risky_nodes(state)


def unfinished(state: State) -> bool:
    """Whether more is left to be done by a thorough call."""
    turns = state.turns or state.crowded or state.overdue
    return bool(state.dirty or turns or state.daemons.unjudged or state.ownership.under_way)


def unsettled(state: State) -> bool:
    """Whether a thorough call would do anything now, but for what time alone brings."""
    shared = state.flights.shared or state.demands.reservations.unreckoned
    return bool(shared) or unfinished(state) or uncertain(state)


def _settle(state: State, thorough: bool, patience: Patience) -> None:
    state.dirty = False
    leave_lost_nodes(state)
    forget_hopeless(state)
    lift_excess(state)
    keep_cap(state)
    leave_short_nodes(state)
    leave_uneven(state)
    _pass_over_content(state)
    grown = bool(state.table.grown and (state.failed or state.capped))
    due = bool(state.turns or state.crowded) if thorough else not all(state.turns.values())
    if state.grown or grown or state.holds.wanting or due or (thorough and state.overdue):
        _place(state, thorough, patience)
        forget_beneath_holds(state)
    else:
        state.table.grown.clear()
    waiting = state.table.touched or state.holds.wanting or state.uneven or not all(state.turns.values())
    left_behind = state.table.grown and (state.failed or state.capped)  # by holds that others drove away
    state.dirty = bool(waiting or left_behind or (state.holds.heavier and over_cap(state)))


def _pass_over_content(state: State) -> None:
    """Demands that miss nothing need no turn: an owner that was bound has taken the hold that left."""
    for demand in [number for number in state.holds.wanting if state.holds.missing(number) <= 0]:
        _content(state, demand)


def _content(state: State, demand: int) -> None:
    state.holds.wanting.discard(demand)
    state.failed.pop(demand, None)
    state.capped.pop(demand, None)
    state.crowded.pop(demand, None)


def _end_needless_turns(state: State, fresh: Collection[int], *, thorough: bool) -> None:
    """Demands that miss nothing need none: nearly all of them after a change that concerns all."""
    turns, holds = state.turns, state.holds
    for demand in [number for number in turns if holds.missing(number) <= 0]:
        waits = turns[demand] and not thorough
        waits_on = waits and demand not in fresh and demand not in holds.wanting
        if waits_on or state.ownership.unsettled(state.demands[demand].namespace):
            continue
        if not waits:
            del turns[demand]
        _content(state, demand)


def _place(state: State, thorough: bool, patience: Patience) -> None:
    """Each demand whose turn it is, in order; what a higher one displaces is looked after at its own turn.

    As much as one call may take; the rest keep their turns.
    """
    holds, table = state.holds, state.table
    grown, table.grown = table.grown, set()
    fresh = take_turns(state, grown, thorough=thorough)
    _end_needless_turns(state, fresh, thorough=thorough)
    risky = uncertain(state) and any(
        columns[dim].any() for columns in (table.possible, table.expected) for dim in state.demands.dims
    )
    crowded: dict[int, Rows] = {}
    for demand in in_turn(state):
        waits = state.turns[demand] and not thorough
        waits_on = waits and demand not in fresh and demand not in holds.wanting
        if waits_on or state.ownership.unsettled(state.demands[demand].namespace):
            continue
        if patience.over:
            break
        search = state.turns[demand] and thorough
        if not waits:
            del state.turns[demand]
        holds.wanting.discard(demand)
        missing = holds.missing(demand)
        if missing <= 0:
            _content(state, demand)
            continue
        search |= missing > state.failed.get(demand, 0)
        few = demand in fresh and demand in state.failed and not search
        few &= demand not in state.demands.spread  # room in one domain opens another
        rows = np.asarray(sorted(grown | table.grown), dtype=np.intp) if few else None
        patience.cap()
        want = min(missing, cap_slots(state, demand)[0])
        left = _place_missing(state, demand, want, rows, patience, search=search, risky=risky)
        if left and not state.charges_win and state.flights.by_uid:
            if thorough and search:
                state.crowded[demand] = None
            else:
                crowded[demand] = _charged(state, rows)
        if holds.missing(demand) < missing:
            keep_cap(state)
        note_failure(state, demand, missing - want)
    search = thorough and bool(state.crowded) and not any(state.turns.values())
    if crowded or search:
        with state.flights.left_out():  # bind refuses whom this leaves no room
            _place_over_flights(state, crowded, patience, search=search)


def _place_over_flights(
    state: State, crowded: Mapping[int, Rows], patience: Patience, *, search: bool
) -> None:
    """Place what found no place beside pods in flight, on rows charged for them; with `search` by moves or
    force as well, when all demands have been searched for: two searches for one would leave others none.
    """
    for demand, rows in crowded.items():
        if rows.size and not patience.over:
            _place_again(state, demand, rows, patience, search=False)
    if search:
        for demand in sorted(state.crowded, key=state.demands.position.__getitem__):
            if not patience.allows_search:
                return
            del state.crowded[demand]
            _place_again(state, demand, None, patience, search=True)


def _place_again(state: State, demand: int, rows: Rows | None, patience: Patience, *, search: bool) -> None:
    missing = state.holds.missing(demand)
    want = min(missing, cap_slots(state, demand)[0])
    if want > 0 and _place_missing(state, demand, want, rows, patience, search=search, risky=False) == want:
        state.turns.pop(demand, None)
    elif state.holds.missing(demand) < missing:
        keep_cap(state)
        note_failure(state, demand, missing - want)


def _place_missing(
    state: State, demand: int, want: int, rows: Rows | None, patience: Patience, *, search: bool, risky: bool
) -> int:
    """Place this many holds: on these rows or, if None, on any; with `search` by moves or force as well.

    Returns how many found no place.
    """
    while want > 0:
        patience.fill(rows)
        placed = _fill(state, demand, want, rows)
        if risky:
            if search and placed < want:
                placed += _place_by_force(state, demand, want - placed, patience)
            if placed < want:
                patience.fill(rows)
                placed += _fill_at_risk(state, demand, want - placed, rows)
        if search and placed < want:
            placed += _place_by_force(state, demand, want - placed, patience, displace=True, risky=risky)
        want -= placed
        patience.rounds(state.spreads)
        if not placed:
            break
        if want and patience.over:
            state.turns.setdefault(demand, False)
            break
    return want


def _charged(state: State, rows: Rows | None) -> Rows:
    """Those of these rows, or of all, that pods in flight are charged on."""
    charged, dims = state.table.charged, state.demands.dims
    if rows is None:
        return np.flatnonzero(charged[dims].any(axis=0))
    return rows[charged[cells(state, rows)].any(axis=0)]


def _fill(state: State, demand: int, want: int, rows: Rows | None) -> int:
    """Place holds where no pod in flight may land: nodes where somebody keeps the room first, then nodes that
    have holds, then the tightest, then by name.
    """
    dims, left = state.demands.weighed(demand), vacant(state, demand, rows, safe=True)
    if left is None:
        return 0
    fit = _fit(state, demand, left, rows)
    number = state.holds.number if rows is None else state.holds.number[rows]
    there = np.flatnonzero(fit * (number > 0))
    bounded = state.pools or demand in state.demands.spread or demand in state.kept
    if int(fit[there].sum()) < want or bounded:  # else nodes without holds need not be put in order
        there = np.flatnonzero(fit)
    if not there.size:
        return 0
    tight = (left[:, there] / scale(state, dims)[:, None]).sum(axis=0)
    named = there if rows is None else rows[there]
    by = [state.table.rank()[named], tight, number[there] == 0]
    if demand in state.kept:
        index = state.table.index
        kept = [index[name] for name in state.kept[demand] if name in index]
        by.append(~np.isin(named, kept))
    order = np.lexsort(by)
    return _put(state, demand, want, named[order], fit[there][order])


def _fill_at_risk(state: State, demand: int, want: int, rows: Rows | None) -> int:
    """Place holds where pods in flight may land: first where a slot lacks least if all of them come.

    One a node while there are nodes enough.
    """
    dims, left = state.demands.weighed(demand), vacant(state, demand, rows)
    if left is None:
        return 0
    fit = _fit(state, demand, left, rows)
    there = np.flatnonzero(fit)
    if not there.size:
        return 0
    safe = room(state, state.holds.all, safe=True, rows=rows, dims=dims)[:, there]
    lack = np.maximum(state.demands.vectors[demand, dims][:, None] - safe, 0)
    named = there if rows is None else rows[there]
    order = np.lexsort((state.table.rank()[named], (lack / scale(state, dims)[:, None]).sum(axis=0)))
    if demand in state.demands.spread:
        return _put(state, demand, want, named[order], fit[there][order])
    chosen = named[order][:want]
    return _put(state, demand, want, chosen, np.minimum(fit[there][order][:want], -(-want // there.size)))


def _put(state: State, demand: int, want: int, rows: Rows, fit: NDArray[np.int64]) -> int:
    """Add holds on these rows, in this order, as many as fit on each."""
    if state.pools:
        fit = state.pools.keep_within(slots_by_pool(state, demand), rows, fit)
    if demand in state.demands.spread:
        fit = state.spreads.share_out(demand, rows, fit, want)
    counts = first_of(fit, want)
    some = counts > 0
    state.holds.add_many(demand, rows[some], counts[some])
    state.version += 1
    return int(counts.sum())


def _fit(state: State, demand: int, left: Columns, rows: Rows | None = None) -> NDArray[np.int64]:
    """How many holds of a demand each row can take of what is left, [the demand's weighed columns, rows]."""
    eligible, limit = state.demands.eligible[demand], state.holds.seats(demand)
    pooled = pool_slots(state, demand)
    if pooled is not None:
        limit = pooled if limit is None else np.minimum(limit, pooled)
    if rows is not None:
        eligible, limit = eligible[rows], None if limit is None else limit[rows]
    vector: Amounts = state.demands.vectors[demand].take(state.demands.weighed(demand)).tolist()
    fit = np.where(eligible, slots_that_fit(left, vector), 0)
    return fit if limit is None else np.minimum(fit, limit)


def _leave_risky_nodes(state: State) -> None:
    """Holds that stand where pods in flight may land move to safe places; a Pinned one stays.

    As many as one call may take, those after the last ones first.
    """
    patience = Patience(state)
    rows = rows_at_risk(state)
    for row in np.roll(rows, -int(np.searchsorted(rows, state.risk_seen, side="right"))).tolist():
        if patience.over:
            return
        state.risk_seen = row
        patience.risk()
        for demand in filter(state.demands.floating, state.holds.on(row)):
            count = min(at_risk(state, demand, row), state.holds.movable(demand, row))
            if not count or patience.over:
                continue
            patience.fill(None)
            state.counters["moves"] += _fill_elsewhere(state, demand, row, count)


def _fill_elsewhere(state: State, demand: int, row: int, count: int) -> int:
    """Move holds off a row that is not safe for them, as far as there are safe places; how many moved."""
    if demand not in state.demands.spread:
        placed = _fill(state, demand, count, None)
        state.holds.add(demand, row, -placed)
        return placed
    # Where they may go depends on where they are counted: they leave first.
    state.holds.add(demand, row, -count)
    placed = _fill(state, demand, count, None)
    if placed < count:
        state.holds.add(demand, row, count - placed)
    return placed


def _place_by_force(
    state: State, demand: int, want: int, patience: Patience, *, displace: bool = False, risky: bool = False
) -> int:
    """Place holds one by one: by moves; with `displace` in the place of later demands' holds, or by both;
    with `risky` where pods in flight may land, too.
    """
    left = vacant(state, demand, beside=False)
    if left is None or not _fit(state, demand, left).any():
        return 0  # not even where every hold goes away
    placed = 0
    for number in range(min(want, _PLANS_PER_SETTLE)):
        if number and patience.over:  # each call tries once: else the same would be left out time and again
            break
        patience.search()
        found = _place_by_moves(state, demand, [], patience, risky=risky)
        if not found and not (displace and _displace(state, demand, patience)):
            return placed
        placed += 1
    if placed < want:
        state.turns[demand] = True
    return placed


def _place_by_moves(
    state: State, demand: int, aside: list[int], patience: Patience, *, risky: bool = False
) -> bool:
    """Move other holds so that one more fits.

    Those of the demands `aside` do not count, and leave where they must. With `risky` also where pods in
    flight may land; then only later demands' holds move: no other is put at risk for this one.
    """
    if aside or risky:
        held = state.holds.all - _giving_way(state, aside) if aside else state.holds.all
        others = [number for number in state.demands.order if number not in aside]
        pool = board(state, held, state.demands.later(demand) if risky else others, safe=not risky)
    else:
        pool = board_at(state, 0)
    if not pool.shapes:
        return False
    open_rows = state.demands.eligible[demand] & state.spreads.open(demand)
    for limit in (state.holds.seats(demand), pool_slots(state, demand)):
        if limit is not None:
            open_rows &= limit > 0
    rows = np.flatnonzero(open_rows)
    request = Request(Pod("", "", "", {}), demand, {}, vector_of(state, demand), ())
    search = Search(pool)
    verdict = moved(search, request, rows, pool.room[:, rows], np.zeros(rows.size, dtype=np.bool_))
    if pool.rows > SMALL:  # there it may take longer, and bind leaves no slot for later
        patience.steps(search.steps)
    if verdict is None:
        return False
    commit(state, request, verdict)
    state.holds.add(demand, verdict.row, 1)
    for row in {verdict.row, *(move.target for move in verdict.moves)} if aside else ():
        leave_short_node(state, row, aside, spare=True)
    return True


def _displace(state: State, demand: int, patience: Patience) -> bool:
    """Take the place of later demands' holds, on the row where the fewest of them stand.

    Last, by moves of the earlier ones.
    """
    later = [number for number in state.demands.later(demand) if state.holds.held_total[number]]
    if not later:
        return False
    rows, dims = np.zeros(0, dtype=np.intp), state.demands.weighed(demand)
    for safe in (True, False):
        left = room(state, state.holds.all - _giving_way(state, later), safe=safe, dims=dims)
        if not rows.size:
            rows = np.flatnonzero((_fit(state, demand, left) > 0) & state.spreads.open(demand))
    if not rows.size:
        return _place_by_moves(state, demand, later, patience)
    lack = state.demands.vectors[demand, dims][:, None] - room(state, state.holds.all, rows=rows, dims=dims)
    lacks = (np.maximum(lack, 0) / scale(state, dims)[:, None]).sum(axis=0)
    row = int(rows[np.lexsort((state.table.rank()[rows], lacks))[0]])
    state.holds.add(demand, row, 1)
    leave_short_node(state, row, later, spare=True)
    return True


def _giving_way(state: State, demands: list[int]) -> Columns:
    """What the holds of these demands amount to on each row, those given to owners in flight aside unless
    such pods are ignored.
    """
    holds = state.holds
    left_out = np.zeros(len(state.demands.records), dtype=np.bool_)
    left_out[demands] = True
    numbers, rows, counts = holds.pairs()
    if state.flights.ignored:
        counts = holds.count[numbers, rows].astype(np.int64)
    some = left_out[numbers]
    numbers, rows, counts = numbers[some], rows[some], counts[some]
    total = np.zeros_like(holds.all)
    for dim in state.demands.dims:
        np.add.at(total[dim], rows, state.demands.vectors[numbers, dim] * counts)
    return total
