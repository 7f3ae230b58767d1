"""The bounded search for moves: at most 8 holds change their node, each once, so that something fits on one
node.

With holds of one shape it is exact: holds of one shape are interchangeable, so counting tells whether the
ones that must leave fit elsewhere. With several shapes it enumerates which holds leave and where each goes,
best fit first, lets a hold that fits nowhere push another one aside, and gives up after a fixed effort, so it
is deterministic and bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ledger.demands import NO_DEMAND, Demands
from ledger.holds import Holds
from ledger.pools import NO_POOL
from ledger.table import Columns, Flags, Rows

MOST_MOVES = 8
EFFORT = 240
"""Search steps of one decision; a step costs about 20 microseconds."""
EFFORT_SMALL = 1500
"""On clusters of at most this many nodes, where holds are tightly packed and pods few, the search may take
longer.
"""
SMALL = 24
_CANDIDATES = 24
_TARGETS = 16
_COVERS = 48
_ROOMIEST = 64
_MOST_KNOWN = 10_000
_NEVER = np.int64(1) << 40

Amounts: TypeAlias = list[int]
"""By position in Board.dims."""
Held: TypeAlias = list[tuple[int, int]]
"""Holds: (demand, row) each."""


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


def slots_that_fit(room: Columns, vector: Sequence[int]) -> NDArray[np.int64]:
    """How many slots of a vector fit into each row's room, 0 where it is negative."""
    fit = np.full(room.shape[1], MOST_MOVES if not any(vector) else _NEVER, dtype=np.int64)
    for dim, amount in enumerate(vector):
        if amount > 0:
            np.minimum(fit, room[dim] // amount, out=fit)
    return np.maximum(fit, 0)


@dataclass
class Board:
    """What the search looks at, and changes none of; good, and shared by many, until the ledger changes.

    `room` [the demands' dimensions, rows] is what a hold may use; `shapes` are the demands whose holds may
    move, in order.
    """

    room: Columns
    scale: NDArray[np.float64]
    rank: Rows
    shapes: Sequence[int]
    holds: Holds
    demands: Demands
    cap_percent: int = 100

    def __post_init__(self) -> None:
        self._movable: dict[int, NDArray[np.int64]] = {}
        self._fit: dict[int, NDArray[np.int64]] = {}
        self._seats: dict[int, NDArray[np.int64] | None] = {}
        self._vectors: dict[int, Amounts] = {}
        self._targets: dict[int, list[int]] = {}
        self._crowded: dict[int, list[int]] = {}
        self._rooms: dict[int, Amounts] = {}
        self._choice: dict[int, int] = {}
        self._shapes = frozenset(self.shapes)
        self._pooled: dict[int, NDArray[np.int64]] = {}
        self._leaving: dict[object, list[Held]] = {}
        self._pushed: dict[tuple[int, int, bool], list[tuple[int, list[Held]]]] = {}

    def __contains__(self, demand: int) -> bool:
        return demand in self._shapes

    def vector(self, demand: int) -> Amounts:
        """One slot of a demand."""
        vector = self._vectors.get(demand)
        if vector is None:
            vector = self._vectors[demand] = self.demands.vectors[demand].take(self.demands.dims).tolist()
        return vector

    def movable(self, demand: int) -> NDArray[np.int64]:
        """A demand's holds that may move, by row: not those given to owners in flight."""
        movable = self._movable.get(demand)
        if movable is None:
            there = np.maximum(self.holds.count[demand] - self.holds.given[demand], 0)
            movable = self._movable[demand] = there.astype(np.int64)
        return movable

    def standing(self, row: int) -> list[tuple[int, int]]:
        """The holds on a row that may move: (demand, count), in order."""
        there = [(demand, self.holds.movable(demand, row)) for demand in self.holds.on(row)]
        return [(demand, count) for demand, count in there if count > 0 and demand in self._shapes]

    def eligible(self, demand: int) -> Flags:
        """Where its holds may lie."""
        flags: Flags = self.demands.eligible[demand]
        return flags

    def seats(self, demand: int) -> NDArray[np.int64] | None:
        """How many more of its slots each row may carry; None: no limit."""
        if demand not in self._seats:
            self._seats[demand] = self.holds.seats(demand)
        return self._seats[demand]

    def pooled(self, demand: int) -> NDArray[np.int64]:
        """How many more of its slots each pool may have by the cap."""
        pooled = self._pooled.get(demand)
        if pooled is None:
            demands = self.demands
            pooled = self._pooled[demand] = self.holds.pools.slots(
                demand, demands.order, demands.vectors, demands.dims, self.cap_percent
            )
        return pooled

    def fit(self, demand: int) -> NDArray[np.int64]:
        """How many more holds of a demand each row can take."""
        fit = self._fit.get(demand)
        if fit is None:
            fit = np.where(self.eligible(demand), slots_that_fit(self.room, self.vector(demand)), 0)
            seats = self.seats(demand)
            if seats is not None:
                fit = np.minimum(fit, seats)
            self._fit[demand] = fit
        return fit

    def room_of(self, row: int) -> Amounts:
        """One row's room."""
        room = self._rooms.get(row)
        if room is None:
            room = self._rooms[row] = self.room[:, row].tolist()
        return room

    def choice(self, demand: int) -> int:
        """How many places there are for holds of a demand: those with least choice are placed first."""
        choice = self._choice.get(demand)
        if choice is None:
            choice = self._choice[demand] = int(self.fit(demand).sum())
        return choice

    @cached_property
    def vectors(self) -> Columns:
        """Slots, [demand, the demands' dimensions]."""
        vectors: Columns = self.demands.vectors[:, self.demands.dims]
        return vectors

    @cached_property
    def ample(self) -> Flags:
        """Demands, by number, that find more places than moves are made among the rows with most room."""
        size = self.room.shape[1]
        some = np.argpartition(self.tightness, max(0, size - _ROOMIEST))[-_ROOMIEST:]
        numbers = [n for n in self.shapes if self.demands[n].max_slots_per_node is None]
        fits = (self.vectors[numbers][:, :, None] <= self.room[:, some]).all(axis=1)
        fits &= self.demands.eligible[np.asarray(numbers, dtype=np.intp)[:, None], some]
        ample = np.zeros(len(self.demands.records), dtype=np.bool_)
        ample[numbers] = fits.sum(axis=1) > MOST_MOVES
        return ample

    @cached_property
    def roof(self) -> NDArray[np.int64]:
        """The most that any row has left, by dimension."""
        return np.asarray(self.room.max(axis=1, initial=0))

    @cached_property
    def beyond(self) -> Flags:
        """Demands, by number, of which no row has room for another hold."""
        return np.asarray((self.vectors > self.roof).any(axis=1))

    def places_besides(self, demand: int, rows: Rows) -> NDArray[np.int64]:
        """How many holds of a demand the other rows can take, seen from each of these."""
        return self.choice(demand) - self.fit(demand).take(rows)

    @cached_property
    def anywhere(self) -> Flags:
        """The rows that some movable hold may lie on."""
        return np.asarray(np.bitwise_or.reduce(self.demands.eligible[list(self.shapes)], axis=0))

    @cached_property
    def rows(self) -> int:
        """How many rows these are."""
        return int(self.anywhere.sum())

    @cached_property
    def total(self) -> NDArray[np.int64]:
        """The room of these rows together."""
        return np.asarray(np.maximum(self.room[:, self.anywhere], 0).sum(axis=1))

    @cached_property
    def tightness(self) -> NDArray[np.float64]:
        """How much is left in each row, all dimensions together: small is tight."""
        return np.asarray((self.room / self.scale[:, None]).sum(axis=0))

    def targets(self, demand: int) -> list[int]:
        """The rows that can take a hold of a demand as they are, tightest first, the best few."""
        targets = self._targets.get(demand)
        if targets is None:
            rows = np.flatnonzero(self.fit(demand) > 0)
            order = np.lexsort((self.rank[rows], self.tightness[rows]))[:_TARGETS]
            targets = self._targets[demand] = rows[order].tolist()
        return targets

    def pairs(self, rows: Rows) -> tuple[Rows, Rows, NDArray[np.int64]]:
        """Each demand with movable holds on one of the rows: demands, positions in `rows`, counts."""
        if rows.size > 1:
            position = np.full(self.room.shape[1], -1, dtype=np.intp)
            position[rows] = np.arange(rows.size)
            demands, there, counts = self._pairs
            some = position[there] >= 0
            return demands[some], position[there[some]], counts[some]
        found = [(demand, count) for row in rows.tolist() for demand, count in self.standing(row)]
        demands, counts = np.asarray(found, dtype=np.int64).reshape(-1, 2).T
        return demands, np.zeros(len(found), dtype=np.intp), counts

    @cached_property
    def _pairs(self) -> tuple[Rows, Rows, NDArray[np.int64]]:
        demands, rows, counts = self.holds.pairs()
        movable = np.zeros(len(self.demands.records), dtype=np.bool_)
        movable[list(self.shapes)] = True
        some = movable[demands] & (counts > 0)
        return demands[some], rows[some], counts[some]

    def leavable(self, pairs: tuple[Rows, Rows, NDArray[np.int64]], size: int) -> Columns:
        """What the movable holds of each of `size` positions amount to."""
        demands, positions, counts = pairs
        total = np.zeros((self.room.shape[0], size), dtype=np.int64)
        for dim, amounts in enumerate(self.vectors[demands].T):
            np.add.at(total[dim], positions, amounts * counts)
        return total

    @cached_property
    def _leavable(self) -> Columns:
        rows = np.arange(self.room.shape[1])
        return self.leavable(self.pairs(rows), rows.size)

    def crowded(self, demand: int) -> list[int]:
        """The rows that could take a hold of a demand if others left, those that lack least first, a few."""
        known = self._crowded.get(demand)
        if known is not None:
            return known
        vector = np.asarray(self.vector(demand), dtype=np.int64)[:, None]
        lack = np.maximum(vector - self.room, 0)
        rows = np.flatnonzero(self.eligible(demand) & (lack <= self._leavable).all(axis=0))
        lacks = (lack[:, rows] / self.scale[:, None]).sum(axis=0)
        found: list[int] = rows[np.lexsort((self.rank[rows], lacks))[:_TARGETS]].tolist()
        self._crowded[demand] = found
        return found

    def pushed(self, demand: int, most: int, wider: bool) -> list[tuple[int, list[Held]]]:
        """The crowded rows where a hold of the demand fits once some others left, at most `most`; and which.

        As things are: rows where holds have moved already must be looked at anew.
        """
        key = (demand, most, wider)
        found = self._pushed.get(key)
        if found is None:
            vector, found = self.vector(demand), []
            for row in self.crowded(demand):
                deficit = [v - r for v, r in zip(vector, self.room_of(row), strict=True)]
                there = [held for held in self.standing(row) if held[0] != demand]
                if max(deficit) > 0 and (leaving := self.leaving(row, there, deficit, most, wider)):
                    found.append((row, leaving))
            self._pushed[key] = found
        return found

    def leaving(
        self, row: int, there: Sequence[tuple[int, int]], deficit: Amounts, most: int, wider: bool
    ) -> list[Held]:
        """Which of the holds there, (demand, count), could leave a row to cover a deficit."""
        key = (row, tuple(there), tuple(deficit), most, wider)
        found = self._leaving.get(key)
        if found is None:
            if len(self._leaving) >= _MOST_KNOWN:
                self._leaving.clear()
            choices = [(count, self.vector(demand)) for demand, count in there]
            found = self._leaving[key] = [
                [(demand, row) for (demand, _), n in zip(there, counts, strict=False) for _ in range(n)]
                for counts in covers(deficit, choices, most, wider)
            ]
        return found


def covers(
    deficit: Amounts, choices: Sequence[tuple[int, Amounts]], most: int, wider: bool
) -> list[tuple[int, ...]]:
    """How many of each choice (count there, vector) to take so that together they cover the deficit.

    Fewest first, at most `most` together; a bounded number of them. With `wider` also one more than needed.
    """
    found: list[tuple[int, ...]] = []
    _cover(deficit, choices, most, (), found)
    found = [taken + (0,) * (len(choices) - len(taken)) for taken in found]
    if not wider:
        return sorted(found, key=sum)
    more = [
        (*taken[:i], taken[i] + 1, *taken[i + 1 :])
        for taken in found
        if sum(taken) < most
        for i, (count, _) in enumerate(choices)
        if taken[i] < count
    ]
    return list(dict.fromkeys(sorted(found, key=sum) + sorted(more, key=sum)))


def _cover(
    deficit: Amounts,
    choices: Sequence[tuple[int, Amounts]],
    most: int,
    taken: tuple[int, ...],
    found: list[tuple[int, ...]],
) -> None:
    if all(lack <= 0 for lack in deficit):
        found.append(taken)
        return
    if len(taken) == len(choices) or len(found) >= _COVERS or most <= 0:
        return
    count, vector = choices[len(taken)]
    useful = max(
        (-(-lack // v) for lack, v in zip(deficit, vector, strict=True) if lack > 0 and v > 0), default=0
    )
    for number in range(min(count, most, useful), -1, -1):
        left = [lack - number * v for lack, v in zip(deficit, vector, strict=True)]
        _cover(left, choices, most - number, (*taken, number), found)


class Search:
    """One depth-first search over a board; `effort` is shared by all the plans asked of it.

    `cut`: the last one ended for want of steps, not because there was nothing left to try.
    """

    def __init__(self, board: Board) -> None:
        self.board = board
        self.effort = EFFORT_SMALL if board.rows <= SMALL else EFFORT
        self._change: dict[int, Amounts] = {}
        self._lifted: dict[tuple[int, int], int] = {}
        self._arrived: dict[tuple[int, int], int] = {}
        self._moves: list[Move] = []
        self._wider = False
        self.cut = False

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
            if target == source or not self._seat(demand, target):
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
        for target in dict.fromkeys([*self.board.targets(demand), *changed]):
            if target == source or not self._seat(demand, target):
                continue
            room = self._room(target)
            if tuple(room) not in seen and all(v <= r for v, r in zip(vector, room, strict=True) if v > 0):
                seen.add(tuple(room))
                found.append(target)
        return found

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
    worth = fewest < _NEVER
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
    """How many holds must leave each row where those of one demand are enough; _NEVER where they are not."""
    demands, positions, counts = pairs
    fewest = np.where(deficit.any(axis=0), _NEVER, 0)
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
        short = np.where(amount > 0, -(-lack // np.maximum(amount, 1)), np.where(lack > 0, _NEVER, 0))
        np.maximum(leave, short, out=leave)
    return leave
