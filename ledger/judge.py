"""The decision behind filter, preempt, bind and waking: whether a pod may have one of some nodes, and by what
means.

The four steps of the design. Nothing is changed here; `commit` carries a verdict out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ledger.beside_owners import beside_owners
from ledger.board import Amounts, Board
from ledger.demands import NO_DEMAND
from ledger.moves import DEPTHS, Depth, Move, Search, screen
from ledger.requests import (
    Request,
    avail,
    board_at,
    fits_free,
    offers_owed,
    own_holds,
    scale,
    vector_of,
)
from ledger.retries import pool_slots
from ledger.risk import beside_risk
from ledger.spread import may_move
from ledger.state import State
from ledger.table import Flags, Rows

_EXCHANGES = 4


@dataclass(slots=True)
class Verdict:
    """What passes: either `passing`, flags over the rows asked, or one `row`.

    `own`: the pod takes a hold of its policy on that row; `moves` come first, and a hold of its policy is
    brought there from the row `brought_from` when that is not negative. `narrowed`: more rows pass, and were
    left out for what pods in flight may take: what one takes of the last is no more certain than it was.
    """

    passing: NDArray[np.bool_] | None = None
    row: int = -1
    own: bool = False
    moves: list[Move] = field(default_factory=list)
    brought_from: int = -1
    narrowed: bool = False


def judge(
    state: State, request: Request, rows: Rows, *, decided: bool = False, narrows: bool = True
) -> Verdict | None:
    """The verdict over rows (-1: unknown); None when nothing passes.

    `decided`: the scheduler has chosen the row, so the warm-up keeps the pod from nothing. `narrows`:
    others come before owners' nodes that pods in flight may fill; else all that pass are told.
    """
    if request.owner != NO_DEMAND:
        rows = state.demands.strict.reach(request.owner, rows)
        verdict = _own(state, request, rows)
        if verdict is not None:
            return verdict
    if request.reserved_only:
        return None
    passing = state.holds.clear_for(request.priority).take(rows)
    fit = fits_free(state, request, rows)
    if fit is not None:
        passing &= fit
    if passing.any():
        if request.owed and (keeping := passing & offers_owed(state, request, rows)).any():
            passing = keeping
        few = beside_owners(state, request, rows, passing) if narrows and not decided else passing
        return Verdict(passing=few, narrowed=few is not passing)
    if not decided and state.is_cold_to(request.owner):
        return None
    return _among_holds(state, request, rows)


def _own(state: State, request: Request, rows: Rows) -> Verdict | None:
    """An owner takes a hold of its policy that none needs more, where it has fewest slots filled or given."""
    mine = rows[own_holds(state, request, rows)]
    if not mine.size:
        return None
    fit = _enough(request, avail(state, request, mine, own=True))
    mine = mine[fit]
    if not mine.size:
        return None
    taken = state.holds.filled[request.owner].take(mine).tolist()
    rank = state.table.rank().take(mine).tolist()
    given = state.holds.given[request.owner].take(mine).tolist()
    slots = [t + g for t, g in zip(taken, given, strict=True)]
    tried = [row == request.avoid for row in mine.tolist()]
    suiting = state.spreads.suiting(request.owner, request.pod.name, mine)
    others = [False] * mine.size if suiting is None else (~suiting).tolist()
    best = min(zip(others, tried, slots, rank, mine.tolist(), strict=True))
    return Verdict(row=best[4], own=True)


def _enough(request: Request, left: NDArray[np.int64]) -> NDArray[np.bool_]:
    """The places where what is left covers the need; dimensions that are not asked for do not count."""
    fit = np.ones(left.shape[1], dtype=np.bool_)
    for position, amount in enumerate(request.need):
        if amount > 0:
            fit &= left[position] >= amount
    return fit


def _among_holds(state: State, request: Request, rows: Rows) -> Verdict | None:
    """Steps 2 and 3: nodes with holds; last, beside holds that are at risk anyway."""
    there = np.zeros(state.table.shape[1], dtype=np.bool_)
    there[rows] = True
    held = np.flatnonzero(there & state.table.present & ~state.holds.clear_for(request.priority))
    if not held.size:
        return None
    left = avail(state, request, held, own=request.owner != NO_DEMAND)
    fit = _enough(request, left)
    if fit.any():
        return Verdict(row=_tightest(state, request, held[fit], left[:, fit]))
    return _by_moves(state, request, held, left) or _beside_risk(state, request, held)


def _beside_risk(state: State, request: Request, rows: Rows) -> Verdict | None:
    """The row where most is left over: pods in flight that land there push holds away last."""
    rows, left = beside_risk(state, request, rows)
    if not rows.size:
        return None
    over = _left_over(state, request, left)
    return Verdict(
        row=int(rows[np.lexsort((state.table.rank().take(rows), -over, rows == request.avoid))[0]])
    )


def _left_over(state: State, request: Request, left: NDArray[np.int64]) -> NDArray[np.float64]:
    over = (left - np.asarray(request.need, dtype=np.int64)[:, None]) / scale(state)[:, None]
    return np.asarray(over.sum(axis=0))


def _tightest(state: State, request: Request, rows: Rows, left: NDArray[np.int64]) -> int:
    """The row where least is left over: ordinary pods fill gaps first."""
    over = _left_over(state, request, left)
    return int(rows[np.lexsort((state.table.rank().take(rows), over, rows == request.avoid))[0]])


def board_for(state: State, request: Request) -> Board:
    """What the search may move for a pod: the holds it sees."""
    return board_at(state, state.demands.level(request.priority))


def _by_moves(state: State, request: Request, rows: Rows, left: NDArray[np.int64]) -> Verdict | None:
    special = request.pod.uid in state.nominations.by_uid or request.pod.uid in state.claims.by_uid
    kind = (request.priority, request.owner, tuple(request.need), request.pod.uid if special else "")
    failed = state.given_up().setdefault(kind, np.zeros(state.table.shape[1], dtype=np.bool_))
    fresh = ~failed.take(rows)
    if not fresh.any():
        return None
    verdict = _searched(state, request, rows[fresh], left[:, fresh])
    if verdict is None:
        failed[rows] = True
    return verdict


def _searched(state: State, request: Request, rows: Rows, left: NDArray[np.int64]) -> Verdict | None:
    pool = board_for(state, request)
    if not pool.shapes:
        return None
    search = Search(pool)
    own = own_flags(state, request, rows)
    verdict = moved(search, request, rows, left, own)
    if verdict is not None or request.owner == NO_DEMAND or not state.demands.floating(request.owner):
        return verdict
    return _exchanged(state, search, request, rows[~own], left[:, ~own])


def own_flags(state: State, request: Request, rows: Rows) -> Flags:
    """Where the pod, if it is an owner, takes a hold of its policy."""
    if request.owner == NO_DEMAND:
        return np.zeros(rows.size, dtype=np.bool_)
    return own_holds(state, request, rows)


def moved(
    search: Search, request: Request, rows: Rows, left: NDArray[np.int64], own: Flags
) -> Verdict | None:
    """One row and the moves that make room there; see `plans`."""
    return next((verdict for _, verdict in plans(search, request, rows, left, own)), None)


def plans(
    search: Search, request: Request, rows: Rows, left: NDArray[np.int64], own: Flags
) -> Iterator[tuple[int, Verdict]]:
    """Positions in `rows` where moves make room, each alone, as long as the search has effort left.

    `left` is what the pod may use of each row as it is. The newcomer takes a seat of the demand that owns it.
    Where `own` says so it takes a hold of that demand: `left` contains it, so it is not there to be moved as
    well.
    """
    change = [-n for n in request.need]
    pending: list[int] = screen(search.board, rows, request.need, left, request.owner, own).tolist()
    tried: dict[int, list[Depth]] = {}
    for depth in DEPTHS:
        without = []
        for position in pending:
            if any(depth.within(other) for other in tried.get(position, ())):
                without.append(position)
                continue
            row, takes = int(rows[position]), bool(own[position])
            taken = [(request.owner, row)] if takes and request.owner in search.board else []
            deficit = _deficit(request.need, left[:, position].tolist())
            plan = search.plan(row, deficit, change, depth, request.owner, taken)
            if plan is not None:
                yield position, Verdict(row=row, own=takes, moves=plan)
            elif search.effort <= 0:
                return
            else:
                without.append(position)
                if not search.cut:
                    tried.setdefault(position, []).append(depth)
        pending = without


def _deficit(need: Amounts, left: Amounts) -> Amounts:
    """What a row lacks, in the dimensions that are needed."""
    return [n - there if n > 0 else 0 for n, there in zip(need, left, strict=True)]


def _exchanged(
    state: State, search: Search, request: Request, rows: Rows, left: NDArray[np.int64]
) -> Verdict | None:
    """A hold of the owner's policy is brought from elsewhere.

    What it leaves takes those that give way here.
    """
    pool = search.board
    if request.owner not in pool:
        return None
    open_rows = pool.eligible(request.owner).take(rows) & offers_owed(state, request, rows)
    for seats in (pool.seats(request.owner), pool_slots(state, request.owner)):
        if seats is not None:
            open_rows &= seats.take(rows) > 0
    need = [max(n, v) for n, v in zip(request.need, vector_of(state, request.owner), strict=True)]
    sources: list[int] = np.flatnonzero(pool.movable(request.owner))[:_EXCHANGES].tolist()
    for position in np.flatnonzero(open_rows)[:_EXCHANGES].tolist():
        deficit = _deficit(need, left[:, position].tolist())
        for source in sources:
            row = int(rows[position])
            if not may_move(pool.domains(request.owner), {source: -1, row: 1}, source, row):
                continue
            plan = search.plan(
                row,
                deficit,
                [-n for n in need],
                DEPTHS[1],
                request.owner,
                [(request.owner, source)],
            )
            if plan is not None:
                return Verdict(row=row, own=True, moves=plan, brought_from=source)
    return None


def commit(state: State, request: Request, verdict: Verdict) -> None:
    """Carry a verdict's moves out."""
    holds = state.holds
    for move in verdict.moves:
        holds.add(move.demand, move.source, -1)
        holds.add(move.demand, move.target, 1)
    if verdict.brought_from >= 0:
        holds.add(request.owner, verdict.brought_from, -1)
        holds.add(request.owner, verdict.row, 1)
    count = len(verdict.moves) + (verdict.brought_from >= 0)
    if count:
        state.counters["moves"] += count
        state.version += 1
        # The search counts only the holds that the pod sees: others may stand where these went.
        state.table.touched.update((verdict.row, *(move.target for move in verdict.moves)))
        state.dirty = True
