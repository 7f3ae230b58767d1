"""Where the holds lie: counts per demand and node, and the columns that pods of each priority see."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ledger.demands import Demands
from ledger.pools import Pools
from ledger.table import Columns, Flags, Rows, Table, Vector, reshaped

Counts: TypeAlias = NDArray[np.int32]
"""Indexed [demand, row]."""
Numbers: TypeAlias = NDArray[np.int32]
"""Indexed [row]."""


class Holds:
    """Holds and filled slots.

    `visible[i]` sums the holds whose priority is at least `levels[i]`, and those of lower ones that were
    given to owners in flight: what a pod of a priority up to that level must leave alone; `clear[i]` flags
    the nodes without any of the first. `given` counts holds given to owners in flight, `lent` sums them;
    `standing` has the demands with holds on a row; `wanting` those that may miss holds that they did not
    miss when holds were last placed, `stamps` differ when a demand's holds changed, `fuller` has those that
    may have too many by now, and on which rows. `total`: what all holds amount to, by column; `heavier`: it
    may have grown since the cap was last kept; `unplaced`: slots of all demands that are neither filled nor
    held; `changes` counts those of any of it;
    `reheld`: demands whose holds, without those given to owners in flight, came to another number since
    somebody cleared it, `given_total`: how many of each were given. All of it follows each change: nothing
    is summed anew.
    """

    def __init__(self, table: Table, demands: Demands, pools: Pools | None = None) -> None:
        self._table = table
        self.pools = Pools((), table) if pools is None else pools
        self._demands = demands
        dims, rows = table.shape
        count = len(demands.records)
        self.count: Counts = np.zeros((count, rows), dtype=np.int32)
        self.filled: Counts = np.zeros((count, rows), dtype=np.int32)
        self.given: Counts = np.zeros((count, rows), dtype=np.int32)
        self.standing: dict[int, set[int]] = {}
        self._pairs: tuple[Rows, Rows, NDArray[np.int64]] | None = None
        self.wanting: set[int] = set()
        self.fuller: dict[int, set[int]] = {}
        self.held_total: list[int] = [0] * count
        self.filled_total: list[int] = [0] * count
        self.given_total: list[int] = [0] * count
        self.reheld: set[int] = set()
        self.stamps: list[int] = [0] * count
        self.changes = 0
        self.total: Vector = np.zeros(dims, dtype=np.int64)
        self.heavier = False
        self.unplaced = 0
        self._unplaced: list[int] = [0] * count
        self.levels: list[int] = []
        self.visible: list[Columns] = []
        self.clear: list[Flags] = []
        self._numbers: list[Numbers] = []
        self._owners: list[Numbers] = []
        self.lent: Columns = np.zeros((dims, rows), dtype=np.int64)
        self._lent_total = 0
        self._no_number: Numbers = np.zeros(rows, dtype=np.int32)
        self.pools.resize(count)

    @property
    def all(self) -> Columns:
        """What all holds of each row amount to."""
        return self.visible[0] if self.visible else self.lent

    @property
    def number(self) -> Numbers:
        """How many holds each row has."""
        return self._numbers[0] if self._numbers else self._no_number

    def resize(self) -> None:
        """Follow the table's growth, and the number of demands."""
        shape = self._table.shape
        count = len(self._demands.records)
        if self.count.shape != (count, shape[1]):
            for name in ("count", "filled", "given"):
                setattr(self, name, reshaped(getattr(self, name), (count, shape[1]), self._demands.used))
        self.pools.resize(count)
        extra = count - len(self.held_total)
        self.held_total += [0] * extra
        self.filled_total += [0] * extra
        self.given_total += [0] * extra
        self.stamps += [0] * extra
        self._unplaced += [0] * extra
        if self.lent.shape == shape:
            return
        self.lent = np.asarray(reshaped(self.lent, shape), dtype=np.int64)
        self.total = np.asarray(reshaped(self.total, shape[:1]), dtype=np.int64)
        self._no_number = np.zeros(shape[1], dtype=np.int32)
        self.visible = [np.asarray(reshaped(one, shape), dtype=np.int64) for one in self.visible]
        self.clear = [np.asarray(reshaped(one, shape[1:]), dtype=np.bool_) for one in self.clear]
        self._numbers = [np.asarray(reshaped(one, shape[1:]), dtype=np.int32) for one in self._numbers]
        self._owners = [np.asarray(reshaped(one, shape[1:]), dtype=np.int32) for one in self._owners]

    def follow_levels(self) -> None:
        """Follow the demands' levels; no hold and no owner is of a level that comes or goes."""
        wanted = self._demands.levels
        for place in range(len(self.levels) - 1, -1, -1):
            if self.levels[place] not in wanted:
                for columns in (self.levels, self.visible, self.clear, self._numbers, self._owners):
                    del columns[place]
        for place, level in enumerate(wanted):
            if place < len(self.levels) and self.levels[place] == level:
                continue
            above = place < len(self.levels)  # the next higher level sums the very same holds
            self.visible.insert(place, (self.visible[place] if above else self.lent).copy())
            self._numbers.insert(place, (self._numbers[place] if above else self._no_number).copy())
            self._owners.insert(place, (self._owners[place] if above else self._no_number).copy())
            self.clear.insert(place, self._table.present & (self._numbers[place] == 0))
            self.levels.insert(place, level)

    def touch(self, row: int) -> None:
        """Take note that the node came or went: only a known node is clear."""
        for numbers, clear in zip(self._numbers, self.clear, strict=True):
            clear[row] = numbers[row] == 0 and self._table.present[row]

    def add(self, demand: int, row: int, count: int) -> None:
        """Place (positive) or lift (negative) holds of a demand on a node."""
        self.count[demand, row] += count
        self.held_total[demand] += count
        self._stamp(demand)
        self._pairs = None
        self._stand(demand, row)
        if self.pools:
            self.pools.add(demand, row, count)
        self.follow(demand)
        if count < 0:
            self.wanting.add(demand)
            self._table.grown.add(row)
        else:
            self.fuller.setdefault(demand, set()).add(row)
            self.heavier = True
        priority = self._demands[demand].priority
        amounts = self._demands.vectors[demand] * count
        self.total += amounts
        for place, level in enumerate(self.levels):
            if level > priority:
                break
            self.visible[place][:, row] += amounts
            self._numbers[place][row] += count
            self.clear[place][row] = self._numbers[place][row] == 0 and self._table.present[row]

    def add_many(self, demand: int, rows: Rows, counts: NDArray[np.int64]) -> None:
        """Place or lift holds on many nodes at once, each named once: a policy may have slots by the ten
        thousand.
        """
        self.count[demand, rows] += counts.astype(np.int32)
        self.held_total[demand] += int(counts.sum())
        self._stamp(demand)
        self._pairs = None
        for row in rows.tolist():
            self._stand(demand, row)
        placed = rows[counts > 0].tolist()
        if placed:
            self.fuller.setdefault(demand, set()).update(placed)
            self.heavier = True
        if self.pools:
            self.pools.add(demand, rows, counts)
        lifted = rows[counts < 0].tolist()
        if lifted:
            self.wanting.add(demand)
            self._table.grown.update(lifted)
        self.follow(demand)
        self._weigh(demand, rows, counts)

    def _stand(self, demand: int, row: int) -> None:
        if self.count[demand, row] > 0:
            self.standing.setdefault(row, set()).add(demand)
            return
        there = self.standing.get(row)
        if there is not None:
            there.discard(demand)
            if not there:
                del self.standing[row]

    def weigh(self, demand: int, sign: int) -> None:
        """Count all holds and owners of a demand in (1) or out (-1), before and after its vector or priority
        changes.
        """
        self.changes += 1
        self.reheld.add(demand)
        self.heavier |= sign > 0
        if self.filled_total[demand]:
            for owners in self._owners_of(demand):
                owners += self.filled[demand] * sign
        if self.held_total[demand]:
            rows = np.flatnonzero(self.count[demand])
            self._weigh(demand, rows, self.count[demand, rows].astype(np.int64) * sign)
            for row in np.flatnonzero(self.given[demand]).tolist():
                self._lend(demand, row, int(self.given[demand, row]) * sign)

    def _weigh(self, demand: int, rows: Rows, counts: NDArray[np.int64]) -> None:
        amounts = self._demands.vectors[demand][:, None] * counts
        self.total += amounts.sum(axis=1)
        priority = self._demands[demand].priority
        for place, level in enumerate(self.levels):
            if level > priority:
                break
            self.visible[place][:, rows] += amounts
            self._numbers[place][rows] += counts.astype(np.int32)
            self.clear[place][rows] = (self._numbers[place][rows] == 0) & self._table.present[rows]

    def fill(self, demand: int, row: int, count: int) -> None:
        """Count an owner in (1) or out (-1)."""
        self.changes += 1
        self.filled[demand, row] += count
        for owners in self._owners_of(demand):
            owners[row] += count
        self.filled_total[demand] += count
        self.follow(demand)
        if count < 0:
            self.wanting.add(demand)
        else:
            self.fuller.setdefault(demand, set()).add(row)

    def _owners_of(self, demand: int) -> list[Numbers]:
        """How many slots are filled on each row, by level, of those who see the holds of this demand."""
        return self._owners[: bisect_right(self.levels, self._demands[demand].priority)]

    def missing(self, demand: int) -> int:
        """Slots neither filled nor held; negative when too many are held."""
        return self._demands[demand].desired - self.filled_total[demand] - self.held_total[demand]

    def movable(self, demand: int, row: int) -> int:
        """Holds there that no owner in flight was given."""
        return max(0, int(self.count[demand, row]) - int(self.given[demand, row]))

    def give(self, demand: int, row: int, count: int) -> None:
        """Give (1) a hold to an owner in flight, or take it back (-1)."""
        self.changes += 1
        self._pairs = None
        self.given[demand, row] += count
        self.given_total[demand] += count
        self.reheld.add(demand)
        self._lent_total += count
        self._lend(demand, row, count)

    def _lend(self, demand: int, row: int, count: int) -> None:
        """The owner will be there, whether or not others see the holds of its policy."""
        amounts = self._demands.vectors[demand] * count
        self.lent[:, row] += amounts
        for place in range(bisect_right(self.levels, self._demands[demand].priority), len(self.levels)):
            self.visible[place][:, row] += amounts

    def seats(self, demand: int, rows: Rows | None = None) -> NDArray[np.int64] | None:
        """How many more holds of a demand each row, or each of these, may carry by maxSlotsPerNode; None
        without a limit.
        """
        limit = self._demands[demand].max_slots_per_node
        if limit is None:
            return None
        there = slice(None) if rows is None else rows
        taken = self.count[demand][there].astype(np.int64) + self.filled[demand][there]
        return np.asarray(np.maximum(limit - taken, 0), dtype=np.int64)

    def on(self, row: int) -> list[int]:
        """Numbers of the demands with holds on a node, in demand order."""
        return sorted(self.standing.get(row, ()), key=self._demands.position.__getitem__)

    def pairs(self) -> tuple[Rows, Rows, NDArray[np.int64]]:
        """All holds that no owner in flight was given: demands, rows, counts."""
        if self._pairs is None:
            numbers = [number for there in self.standing.values() for number in there]
            sizes = np.fromiter(map(len, self.standing.values()), dtype=np.intp, count=len(self.standing))
            rows = np.repeat(np.fromiter(self.standing, dtype=np.intp, count=len(self.standing)), sizes)
            demands = np.asarray(numbers, dtype=np.intp)
            counts = self.count[demands, rows] - self.given[demands, rows]
            self._pairs = demands, rows, np.maximum(counts, 0).astype(np.int64)
        return self._pairs

    def of(self, demand: int) -> Iterator[tuple[int, int]]:
        """(row, holds) of a demand, where there are any."""
        counts = self.count[demand]
        for row in np.flatnonzero(counts).tolist():
            yield row, int(counts[row])

    def _stamp(self, demand: int) -> None:
        """One count for all: a demand may be made again under another's number."""
        self.changes += 1
        self.stamps[demand] = self.changes
        self.reheld.add(demand)

    def follow(self, demand: int) -> None:
        """Count a demand's missing slots anew: what it desires, fills or holds has changed."""
        missing = max(0, self.missing(demand))
        self.unplaced += missing - self._unplaced[demand]
        self._unplaced[demand] = missing

    def forget(self, demand: int) -> None:
        """Lift all holds of a demand that is going away."""
        self.weigh(demand, -1)
        rows = np.flatnonzero(self.count[demand]).tolist()
        self.count[demand] = 0
        self.held_total[demand] = 0
        self._stamp(demand)
        self._pairs = None
        self.filled[demand] = 0
        self.filled_total[demand] = 0
        self.unplaced -= self._unplaced[demand]
        self._unplaced[demand] = 0
        self._lent_total -= self.given_total[demand]
        self.given[demand] = 0
        self.given_total[demand] = 0
        self.pools.forget(demand)
        self.wanting.discard(demand)
        self.fuller.pop(demand, None)
        for row in rows:
            self._stand(demand, row)

    def visible_to(self, priority: int) -> Columns | None:
        """What a pod of this priority must leave alone; None when there is nothing."""
        level = self._demands.level(priority)
        if level < len(self.visible):
            return self.visible[level]
        return self.lent if self._lent_total else None

    def owners_seen(self, priority: int) -> Numbers:
        """How many owners on each row fill slots whose holds a pod of this priority would see."""
        level = self._demands.level(priority)
        return self._owners[level] if level < len(self._owners) else self._no_number

    def clear_for(self, priority: int) -> Flags:
        """The known nodes where a pod of this priority sees no holds."""
        level = self._demands.level(priority)
        return self.clear[level] if level < len(self.clear) else self._table.present
