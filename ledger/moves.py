"""The bounded search for moves: at most 8 holds change their node, each once, so that something fits on one
node.

With holds of one shape it is exact: holds of one shape are interchangeable, so counting tells whether the
ones that must leave fit elsewhere. With several shapes it enumerates which holds leave and where each goes,
best fit first, lets a hold that fits nowhere push another one aside, and gives up after a fixed effort, so it
is deterministic and bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ledger.board import MOST_MOVES, NEVER, Amounts, Board, Held
from ledger.demands import NO_DEMAND
from ledger.pools import NO_POOL
from ledger.spread import may_move
from ledger.table import Columns, Flags, Rows

EFFORT = 240
"""Search steps of one decision; a step costs about 20 microseconds."""
EFFORT_SMALL = 1500
"""On clusters of at most this many nodes, where holds are tightly packed and pods few, the search may take
longer.
"""
SMALL = 24
_CANDIDATES = 24


@dataclass(frozen=True, slots=True)
class Depth:
    """How far a search goes on one node.

    `pushes` holds in a row may push others aside; with `wider` one more hold may leave than must; after that
    many `steps` it turns to the next node.
    """

    pushes: int
    wider: bool
    steps: int

    def within(self, other: Depth) -> bool:
        """True when all that is tried at this depth is tried at the other one as well, given the steps."""
        return self.pushes <= other.pushes and self.wider <= other.wider


DEPTHS = (
    Depth(0, False, 60),
    Depth(1, False, 16),
    Depth(3, True, 24),
    Depth(1, True, 40),
    Depth(3, True, 1000),
)
"""Shallow plans are looked for on all nodes first."""


@dataclass(frozen=True, slots=True)
class Move:
    """One hold of a demand changes its node."""

    demand: int
    source: int
    target: int


class Search:
    """One depth-first search over a board; `effort` is shared by all the plans asked of it.

    `cut`: the last one ended for want of steps, not because there was nothing left to try.
    """

    def __init__(self, board: Board) -> None:
        self.board = board
        self._most = self.effort = EFFORT_SMALL if board.rows <= SMALL else EFFORT
        self._change: dict[int, Amounts] = {}
        self._lifted: dict[tuple[int, int], int] = {}
        self._arrived: dict[tuple[int, int], int] = {}
        self._moves: list[Move] = []
        self._guest: tuple[int, int] | None = None
        self._gone: Sequence[tuple[int, int]] = ()
        self._wider = False
        self.cut = False

    @property
    def steps(self) -> int:
        """How many it has taken so far."""
        return self._most - self.effort

    def plan(
        self,
        row: int,
        deficit: Amounts,
        change: Amounts,
        depth: Depth,
        guest: int,
        lifted: Sequence[tuple[int, int]] = (),
    ) -> list[Move] | None:
        """Moves after which the deficit of a row is covered, found no deeper than `depth`; or None.

        `change` is what the newcomer does to the row's room (negative); `guest` is the demand
        one of whose seats it takes (any other number: none); `lifted` are holds (demand, row) gone
        already.
        """
        self._change = {row: list(change)}
        self._lifted, self._arrived, self._moves = {}, {(guest, row): 1}, []
        self._guest, self._gone = (guest, row), lifted
        for demand, there in lifted:
            self._lift(demand, there, 1)
        self._wider = depth.wider
        limit = self.effort
        self.effort = min(limit, depth.steps)
        plan = self._first(row, deficit, depth)
        self.cut = self.effort <= 0
        self.effort += limit - min(limit, depth.steps)
        return plan

    def _first(self, row: int, deficit: Amounts, depth: Depth) -> list[Move] | None:
        for leaving in self._leaving(row, deficit, MOST_MOVES, None):
            if self._try(leaving, depth.pushes):
                return list(self._moves)
        return None

    def _leaving(self, row: int, deficit: Amounts, most: int, besides: int | None) -> list[Held]:
        """Which holds could leave a row to cover a deficit."""
        there = [
            (demand, count - self._lifted.get((demand, row), 0))
            for demand, count in self.board.standing(row)
            if demand != besides
        ]
        there = [(demand, count) for demand, count in there if count > 0]
        return self.board.leaving(row, there, deficit, most, self._wider)

    def _try(self, leaving: list[tuple[int, int]], pushes: int, rest: Sequence[tuple[int, int]] = ()) -> bool:
        """Lift these holds and find a place for them and the rest; undone when it fails."""
        self.effort -= 1
        if self.effort <= 0:
            return False
        for demand, row in leaving:
            self._lift(demand, row, 1)
        pending = sorted([*rest, *leaving], key=lambda hold: (self.board.choice(hold[0]), hold))
        if self._relocate(pending, pushes):
            return True
        for demand, row in leaving:
            self._lift(demand, row, -1)
        return False

    def _relocate(self, pending: Sequence[tuple[int, int]], pushes: int) -> bool:
        if not pending:
            return True
        if self.effort <= 0:
            return False
        self.effort -= 1
        (demand, source), rest = pending[0], pending[1:]
        for target in self._direct(demand, source):
            self._move(demand, source, target, 1)
            if self._relocate(rest, pushes):
                return True
            self._move(demand, source, target, -1)
        return pushes > 0 and self._push(demand, source, rest, pushes - 1)

    def _push(self, demand: int, source: int, rest: Sequence[tuple[int, int]], pushes: int) -> bool:
        """Place a hold where another one has to leave first."""
        most = MOST_MOVES - len(self._moves) - len(rest) - 1
        if most <= 0:
            return False
        for target, leavings in self._pushed(demand, source, most):
            if target == source or not self._may_go(demand, source, target):
                continue
            for leaving in leavings:
                self._move(demand, source, target, 1)
                if self._try(leaving, pushes, rest):
                    return True
                self._move(demand, source, target, -1)
        return False

    def _pushed(self, demand: int, source: int, most: int) -> Iterable[tuple[int, list[Held]]]:
        """The rows where holds could make room for one of a demand, as things stand now, and which."""
        eligible = self.board.eligible(demand)
        changed = [row for row in self._change if row != source and eligible[row]]
        if not changed:
            return self.board.pushed(demand, most, self._wider)
        return self._pushed_now(demand, dict.fromkeys([*self.board.crowded(demand), *changed]), most)

    def _pushed_now(self, demand: int, targets: Iterable[int], most: int) -> Iterator[tuple[int, list[Held]]]:
        for target in targets:
            deficit = [v - r for v, r in zip(self.board.vector(demand), self._room(target), strict=True)]
            if max(deficit) > 0:
                yield target, self._leaving(target, deficit, most, demand)

    def _direct(self, demand: int, source: int) -> list[int]:
        """Rows that can take a hold as things stand now; of rows that look alike only the first."""
        vector = self.board.vector(demand)
        seen: set[tuple[int, ...]] = set()
        found = []
        eligible = self.board.eligible(demand)
        changed = [row for row in self._change if eligible[row]]
        bounded = bool(self.board.domains(demand))
        for target in dict.fromkeys([*self.board.targets_from(demand, source), *changed]):
            if target == source or not self._may_go(demand, source, target):
                continue
            room = self._room(target)
            alike = not bounded and tuple(room) in seen
            if not alike and all(v <= r for v, r in zip(vector, room, strict=True) if v > 0):
                seen.add(tuple(room))
                found.append(target)
        return found

    def _may_go(self, demand: int, source: int, target: int) -> bool:
        """Whether a hold that is lifted may come to another row, its room aside."""
        if not self._seat(demand, target):
            return False
        domains = self.board.domains(demand)
        return not domains or may_move(domains, self._shifted(demand, source, target), source, target)

    def _shifted(self, demand: int, source: int, target: int) -> Counter[int]:
        """How many more of a demand each row has by the moves so far and this one, and with the guest; what
        is on its way still counts where it was.
        """
        changes = Counter({target: 1})
        changes[source] -= 1
        if self._guest is not None and self._guest[0] == demand:
            changes[self._guest[1]] += 1
            changes.subtract(row for other, row in self._gone if other == demand)
        for move in self._moves:
            if move.demand == demand:
                changes[move.source] -= 1
                changes[move.target] += 1
        return changes

    def _pool(self, demand: int, row: int) -> bool:
        """Whether the row's pools may have one more slot; those that left them make room for their kind."""
        for pools in self.board.holds.pools.of:
            pool = pools[row]
            if pool != NO_POOL:
                own, others = self._come(demand, pools, pool)
                if self.board.pooled(demand)[pool] <= own + max(0, others):
                    return False
        return True

    def _come(self, demand: int, pools: Rows, pool: int) -> tuple[int, int]:
        """How many more holds are in a pool by the moves so far: of the demand, and of others."""
        own = others = 0
        for changes, sign in ((self._arrived, 1), (self._lifted, -1)):
            for (other, row), count in changes.items():
                if pools[row] != pool or other == NO_DEMAND:
                    continue
                if other == demand:
                    own += sign * count
                else:
                    others += sign * count
        return own, others

    def _seat(self, demand: int, row: int) -> bool:
        if self.board.holds.pools and not self._pool(demand, row):
            return False
        seats = self.board.seats(demand)
        if seats is None:
            return True
        key = (demand, row)
        return int(seats[row]) + self._lifted.get(key, 0) - self._arrived.get(key, 0) > 0

    def _room(self, row: int) -> Amounts:
        room = self.board.room_of(row)
        change = self._change.get(row)
        return room if change is None else [r + c for r, c in zip(room, change, strict=True)]

    def _lift(self, demand: int, row: int, sign: int) -> None:
        self._lifted[demand, row] = self._lifted.get((demand, row), 0) + sign
        self._shift(demand, row, sign)

    def _move(self, demand: int, source: int, target: int, sign: int) -> None:
        self._arrived[demand, target] = self._arrived.get((demand, target), 0) + sign
        self._shift(demand, target, -sign)
        if sign > 0:
            self._moves.append(Move(demand, source, target))
        else:
            self._moves.pop()

    def _shift(self, demand: int, row: int, sign: int) -> None:
        vector = self.board.vector(demand)
        change = self._change.setdefault(row, [0] * len(vector))
        for dim, amount in enumerate(vector):
            change[dim] += sign * amount


def screen(board: Board, rows: Rows, need: Amounts, avail: Columns, guest: int, own: Flags) -> Rows:
    """Positions in `rows` worth a search, the cheapest first; `avail` is what the newcomer may use on each
    row.

    Where `own` says so the newcomer takes a hold of its demand `guest`, which therefore cannot move. With one
    movable shape exactly those where a plan exists.
    """
    deficit = np.maximum(np.asarray(need, dtype=np.int64)[:, None] - avail, 0)
    pairs = board.pairs(rows)
    fewest = _fewest(board, rows, pairs, deficit, guest, own)
    worth = fewest < NEVER
    if len(board.shapes) > 1:
        worth |= (deficit <= board.leavable(pairs, rows.size)).all(axis=0)
        elsewhere = board.total[:, None] - np.maximum(board.room[:, rows], 0)
        worth &= (deficit <= elsewhere).all(axis=0)
    found = np.flatnonzero(worth)
    lacks = (deficit[:, found] / board.scale[:, None]).sum(axis=0)
    order = np.lexsort((board.rank[rows[found]], lacks, fewest[found]))
    return found[order[:_CANDIDATES]]


def _fewest(
    board: Board,
    rows: Rows,
    pairs: tuple[Rows, Rows, NDArray[np.int64]],
    deficit: Columns,
    guest: int,
    own: Flags,
) -> NDArray[np.int64]:
    """How many holds must leave each row where those of one demand are enough; NEVER where they are not."""
    demands, positions, counts = pairs
    fewest = np.where(deficit.any(axis=0), NEVER, 0)
    leave = _must_leave(board.vectors[demands].T, deficit[:, positions])
    there = counts - ((demands == guest) & own[positions])
    possible = leave <= np.minimum(there, MOST_MOVES)
    sure = possible & board.ample[demands]
    np.minimum.at(fewest, positions[sure], leave[sure])
    possible &= ~(board.ample | board.beyond)[demands]
    for demand in np.flatnonzero(np.bincount(demands[possible])).tolist():
        mine = np.flatnonzero(possible & (demands == demand))
        enough = leave[mine] <= board.places_besides(demand, rows[positions[mine]])
        np.minimum.at(fewest, positions[mine[enough]], leave[mine[enough]])
    return fewest


def _must_leave(vectors: Columns, deficit: Columns) -> NDArray[np.int64]:
    """How many holds of these vectors, [dims, holds], must leave to cover the deficits beside them."""
    leave = np.zeros(deficit.shape[1], dtype=np.int64)
    for amount, lack in zip(vectors, deficit, strict=True):
        short = np.where(amount > 0, -(-lack // np.maximum(amount, 1)), np.where(lack > 0, NEVER, 0))
        np.maximum(leave, short, out=leave)
    return leave
