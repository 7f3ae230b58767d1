"""What the search for moves looks at: the room of each row, the holds that may move, and what follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ledger.demands import Demands
from ledger.holds import Holds
from ledger.spread import Constraint, Spreads
from ledger.table import Columns, Flags, Rows

MOST_MOVES: Final = 8
NEVER: Final = np.int64(1) << 40
_TARGETS = 16
_COVERS = 48
_ROOMIEST = 64
_MOST_KNOWN = 10_000

Amounts: TypeAlias = list[int]
"""By position in Board.dims."""
Held: TypeAlias = list[tuple[int, int]]
"""Holds: (demand, row) each."""


def slots_that_fit(room: Columns, vector: Sequence[int]) -> NDArray[np.int64]:
    """How many slots of a vector fit into each row's room, 0 where it is negative."""
    fit = np.full(room.shape[1], MOST_MOVES if not any(vector) else NEVER, dtype=np.int64)
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
    spreads: Spreads
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
        self._domains: dict[int, list[Constraint]] = {}
        self._near: dict[tuple[int, ...], list[int]] = {}
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

    def domains(self, demand: int) -> list[Constraint]:
        """Its required spread constraints, and where volumes are, as things are."""
        known = self._domains.get(demand)
        if known is None:
            known = self._domains[demand] = self.spreads.of(demand, required=True)
        return known

    def pooled(self, demand: int) -> NDArray[np.int64]:
        """How many more of its slots each pool may have by the cap."""
        pooled = self._pooled.get(demand)
        if pooled is None:
            demands = self.demands
            pooled = self._pooled[demand] = self.holds.pools.slots(
                demand, demands.order, demands.vectors, demands.dims, self.cap_percent
            )
        return pooled

    def fits(self, demand: int) -> NDArray[np.int64]:
        """How many more holds of a demand each roomy row can take; and 0 at the end: any other row."""
        fits = self._fit.get(demand)
        if fits is None:
            some = self._roomy
            there = slots_that_fit(self.room[:, some], self.vector(demand))
            seats = self.holds.seats(demand, some)
            if seats is not None:
                there = np.minimum(there, seats)
            fits = self._fit[demand] = np.zeros(some.size + 1, dtype=np.int64)
            fits[:-1] = np.where(self.eligible(demand)[some], there, 0)
        return fits

    @cached_property
    def _roomy(self) -> Rows:
        """The rows that have room for a slot of some demand: in a full cluster one or two of thousands."""
        least = self.vectors[self.demands.order].min(axis=0, initial=NEVER)
        return np.flatnonzero(((self.room >= least[:, None]) | (least <= 0)[:, None]).all(axis=0))

    @cached_property
    def _place(self) -> Rows:
        """Each row's position among the roomy ones; -1: none of them."""
        place = np.full(self.room.shape[1], -1, dtype=np.intp)
        place[self._roomy] = np.arange(self._roomy.size)
        return place

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
            choice = self._choice[demand] = int(self.fits(demand).sum())
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
        free = (n for n in self.shapes if not self.spreads.required(n))
        numbers = [n for n in free if self.demands[n].max_slots_per_node is None]
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
        return self.choice(demand) - self.fits(demand)[self._place.take(rows)]

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

    def targets_from(self, demand: int, source: int) -> list[int]:
        """The same for a hold that is on `source`; those in its spread domains come first."""
        if not self.domains(demand):
            return self.targets(demand)
        own = [int(domains.of[source]) for domains in self.domains(demand)]
        found = self._near.get((demand, *own))
        if found is None:
            same = self.fits(demand)[:-1] > 0
            for domains, domain in zip(self.domains(demand), own, strict=True):
                same &= domains.of[self._roomy] == domain
            rows = self._roomy[same]
            order = np.lexsort((self.rank[rows], self.tightness[rows]))[:_TARGETS]
            near: list[int] = rows[order].tolist()
            found = self._near[demand, *own] = list(dict.fromkeys([*near, *self.targets(demand)]))
        return found

    def targets(self, demand: int) -> list[int]:
        """The rows that can take a hold of a demand as they are, tightest first, the best few."""
        targets = self._targets.get(demand)
        if targets is None:
            rows = self._roomy[self.fits(demand)[:-1] > 0]
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
