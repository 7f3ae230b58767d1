"""Which missing slots are worth another try, and when: where room has grown, or under the cap, since they
failed; as many at a time as the verbs can wait for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heappop, heappush

import numpy as np

from ledger.pools import Slots
from ledger.requests import cells, room, vector_of
from ledger.spread import Spreads
from ledger.state import State
from ledger.table import Columns, Rows

_ROWS_VISITED = 75_000
"""What one settle may take, some milliseconds: so many rows looked at once."""
_FILL, _SEARCH, _LEAST, _RISK = 2, 16, 1_000, 500
_STEP = 500
"""Of a search: 20 microseconds, however few rows there are."""
_ROUND, _ANCHOR = 2_500, 250
_USUAL_DIMS = 8
"""Rows cost the more, the more resources are held beyond as many."""


class Patience:
    """What one settle has left; it always tries one demand.

    Counted in rows looked at, not in seconds, so that the same events always end the same.
    """

    def __init__(self, state: State) -> None:
        self._rows = len(state.table.names)
        self._weight = 1 + len(state.demands.dims) // _USUAL_DIMS
        self._left = _ROWS_VISITED

    @property
    def over(self) -> bool:
        """Nothing is left."""
        return self._left <= 0

    @property
    def allows_search(self) -> bool:
        """A look at all rows leaves something for a search."""
        return self._left == _ROWS_VISITED or self._left > _FILL * self._rows

    def cap(self) -> None:
        """A look at what the cap leaves to a demand, before the first hold and after the last one."""
        self._left -= _LEAST

    def fill(self, rows: Rows | None) -> None:
        """A look for room on these rows, or on all."""
        self._left -= _FILL * (self._rows if rows is None else rows.size)

    def risk(self) -> None:
        """A look at what is at risk on one row."""
        self._left -= _RISK

    def rounds(self, spreads: Spreads) -> None:
        """What slots with several spread constraints took, or with anchors."""
        self._left -= _ROUND * spreads.rounds + _ANCHOR * spreads.anchors.effort
        spreads.rounds = spreads.anchors.effort = 0

    def search(self) -> None:
        """What a search for moves looks at."""
        self._left -= _SEARCH * self._rows * self._weight + _LEAST

    def steps(self, count: int) -> None:
        """The steps that a search took."""
        self._left -= _STEP * count


def take_turns(state: State, grown: set[int], *, thorough: bool) -> set[int]:
    """Give demands a turn in `state.turns`; returns those that need only look at the rows that have `grown`.

    All demands after a change that may concern any; with `thorough` all of them with a search, round by
    round: what changes meanwhile is for the next one, so that every demand has its turn. Else those that miss
    what they did not miss before, or that found no place and could have one now.
    """
    turns = state.turns
    state.overdue |= state.grown or bool(grown and (state.failed or state.capped))
    fresh: set[int] = set()
    if state.grown:
        turns.update((demand, False) for demand in state.demands.order if demand not in turns)
    else:
        fresh = {demand for demand in due_again(state, grown) if turns.get(demand, True)}
    for demand in fresh | state.holds.wanting:
        turns.setdefault(demand, False)
    state.grown = False
    if thorough and state.overdue and not (any(turns.values()) or state.crowded):
        turns.update(dict.fromkeys(state.demands.order, True))
        state.overdue = False
    return fresh


def in_turn(state: State) -> Iterator[int]:
    """The demands that have a turn, in order; also those that one of them displaces, which come after it."""
    position, displaced = state.demands.position, state.counters["displaced"]
    coming = sorted(position[demand] for demand in state.turns)
    while coming:
        yield state.demands.order[heappop(coming)]
        if state.counters["displaced"] == displaced:
            continue
        displaced = state.counters["displaced"]
        for demand in state.holds.wanting - state.turns.keys():
            state.turns[demand] = False
            heappush(coming, position[demand])


def cap_slots(state: State, demand: int) -> tuple[int, int]:
    """How many more slots the installation-wide cap lets a demand hold, later demands aside.

    And the column that says so.
    """
    used = _used(state)[state.demands.position[demand]].take(state.demands.dims).tolist()
    best = (1 << 40, -1)
    for dim, amount, there in zip(state.demands.dims, vector_of(state, demand), used, strict=True):
        if amount > 0:
            best = min(best, (max(0, (state.limits[dim] - there) // amount), dim))
    return best


def within_cap(state: State, asked: Mapping[str, int]) -> dict[str, int]:
    """How many of the slots that each demand lacks, by key, the cap lets all of them hold together.

    Those that come first in the order have it, and later holds give way, as where there is room. Those that
    no node there is will ever do for take nothing from others.
    """
    if state.cap_percent >= 100:  # a cap of all there is says no more than that the nodes lack it
        return dict(asked)
    demands, used = state.demands, _used(state)
    left, found = np.asarray(state.limits, dtype=np.int64), dict.fromkeys(asked, 0)
    for number in demands.order:
        key = demands[number].key
        if count := asked.get(key, 0):
            vector = demands.vectors[number]
            fit = (left - used[demands.position[number]])[vector > 0] // vector[vector > 0]
            found[key] = max(0, min(count, int(fit.min(initial=count))))
            if demands.eligible[number].any() and not demands.nowhere(number):
                left -= found[key] * vector
    return found


def pool_slots(state: State, demand: int, *, beside_all: bool = False) -> Slots | None:
    """How many more slots each row's pools let a demand hold, by row; None without pools.

    Later demands aside, which give way; unless they are to be left `beside_all`.
    """
    if not state.pools:
        return None
    return state.pools.by_row(slots_by_pool(state, demand, beside_all=beside_all))


def slots_by_pool(state: State, demand: int, *, beside_all: bool = False) -> Slots:
    """The same by pool."""
    demands = state.demands
    others = demands.order if beside_all else demands.order[: demands.position[demand] + 1]
    return state.pools.slots(demand, others, demands.vectors, demands.dims, state.cap_percent)


def due_again(state: State, grown: set[int]) -> set[int]:
    """The demands without a place that could have one now: on rows where room has grown, or under the cap."""
    due: set[int] = set()
    if state.failed and grown:
        failed = np.fromiter(state.failed, dtype=np.intp, count=len(state.failed))
        rows = np.asarray(sorted(grown), dtype=np.intp)
        left = room(state, state.holds.all, rows=rows)
        if not state.charges_win:
            left += state.table.charged[cells(state, rows)]
        fits = (state.demands.vectors[failed[:, None], state.demands.axis.T] <= left.max(axis=1)).all(axis=1)
        due.update(failed[fits].tolist())
    moment = state.holds.changes, state.demands.changes
    if state.capped and state.capped_at != moment:
        state.capped_at = moment
        capped = np.fromiter(state.capped, dtype=np.intp, count=len(state.capped))
        used = _used(state)[[state.demands.position[number] for number in state.capped]]
        due.update(capped[(used < np.asarray([*state.capped.values()])).any(axis=1)].tolist())
    return due


def _used(state: State) -> Columns:
    """What the holds of each demand and of those before it amount to, [place in the order, resource]."""
    moment = state.holds.changes, state.demands.changes
    if state.used is None or state.used[0] != moment:
        order = np.asarray(state.demands.order, dtype=np.intp)
        held = np.asarray(state.holds.held_total, dtype=np.int64)[order]
        state.used = moment, np.cumsum(state.demands.vectors[order] * held[:, None], axis=0)
    return state.used[1]


def note_failure(state: State, demand: int, capped: int) -> None:
    """Remember why slots are missing: `capped` of them by the cap, any others for want of room."""
    missing = state.holds.missing(demand)
    if capped > 0:
        state.capped[demand] = _used(state)[state.demands.position[demand]]
    else:
        state.capped.pop(demand, None)
    if missing > max(0, capped):
        state.failed[demand] = missing
    else:
        state.failed.pop(demand, None)
