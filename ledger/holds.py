"""Where the holds lie: counts per demand and node, and the columns that pods of each priority see."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ledger.demands import Demands
from ledger.table import Columns, Flags, Table, grown

Counts = NDArray[np.int32]
"""Indexed [demand, row]."""


class Holds:
    """Holds and filled slots.

    `visible[i]` sums the holds whose priority is at least `levels[i]`: what a pod of a priority up to that
    level must leave alone; `clear[i]` flags the nodes without any. `soft` counts holds given to owners in
    flight.
    """

    def __init__(self, table: Table, demands: Demands) -> None:
        self._table = table
        self._demands = demands
        dims, rows = table.shape
        count = len(demands.records)
        self.count: Counts = np.zeros((count, rows), dtype=np.int32)
        self.filled: Counts = np.zeros((count, rows), dtype=np.int32)
        self.soft: dict[tuple[int, int], int] = {}
        self.held_total: list[int] = [0] * count
        self.filled_total: list[int] = [0] * count
        self.visible: list[Columns] = []
        self.clear: list[Flags] = []
        self._numbers: list[NDArray[np.int32]] = []
        self.all: Columns = np.zeros((dims, rows), dtype=np.int64)
        self.number: NDArray[np.int32] = np.zeros(rows, dtype=np.int32)
        self.stale = False

    def resize(self) -> None:
        """Follow the table's growth, and the number of demands."""
        rows = self._table.shape[1]
        count = len(self._demands.records)
        self.count = np.asarray(grown(self.count, (count, rows)), dtype=np.int32)
        self.filled = np.asarray(grown(self.filled, (count, rows)), dtype=np.int32)
        extra = count - len(self.held_total)
        self.held_total += [0] * extra
        self.filled_total += [0] * extra
        self.stale = True

    def refresh(self) -> None:
        """Sum the columns anew, after demands, nodes or dimensions changed."""
        if not self.stale:
            return
        demands = self._demands
        self.visible, self.clear, self._numbers = [], [], []
        for level in demands.levels:
            seen = [n for n in demands.order if demands[n].priority >= level]
            counts = self.count[seen]
            self.visible.append(demands.vectors[seen].T @ counts.astype(np.int64))
            self._numbers.append(counts.sum(axis=0, dtype=np.int32))
            self.clear.append(self._table.present & (self._numbers[-1] == 0))
        shape = self._table.shape
        self.all = self.visible[0] if self.visible else np.zeros(shape, dtype=np.int64)
        self.number = self._numbers[0] if self._numbers else np.zeros(shape[1], dtype=np.int32)
        self.stale = False

    def touch(self, row: int) -> None:
        """The node came or went: only a known node is clear."""
        if self.stale:
            return
        for numbers, clear in zip(self._numbers, self.clear, strict=True):
            clear[row] = numbers[row] == 0 and self._table.present[row]

    def add(self, demand: int, row: int, count: int) -> None:
        """Place (positive) or lift (negative) holds of a demand on a node."""
        self.count[demand, row] += count
        self.held_total[demand] += count
        if self.stale:
            return
        record = self._demands.records[demand]
        assert record is not None
        amounts = self._demands.vectors[demand] * count
        for level, priority in enumerate(self._demands.levels):
            if priority > record.priority:
                break
            self.visible[level][:, row] += amounts
            self._numbers[level][row] += count
            self.clear[level][row] = self._numbers[level][row] == 0 and self._table.present[row]

    def fill(self, demand: int, row: int, count: int) -> None:
        """Count an owner in (1) or out (-1)."""
        self.filled[demand, row] += count
        self.filled_total[demand] += count

    def missing(self, demand: int) -> int:
        """Slots neither filled nor held; negative when too many are held."""
        return self._demands[demand].desired - self.filled_total[demand] - self.held_total[demand]

    def movable(self, demand: int, row: int) -> int:
        """Holds there that no owner in flight was given."""
        return max(0, int(self.count[demand, row]) - self.soft.get((demand, row), 0))

    def give(self, demand: int, row: int, count: int) -> None:
        """Give (1) a hold to an owner in flight, or take it back (-1)."""
        given = self.soft.get((demand, row), 0) + count
        if given > 0:
            self.soft[demand, row] = given
        else:
            self.soft.pop((demand, row), None)

    def on(self, row: int) -> list[int]:
        """Numbers of the demands with holds on a node, in demand order."""
        column = self.count[:, row]
        return [number for number in self._demands.order if column[number] > 0]

    def of(self, demand: int) -> Iterator[tuple[int, int]]:
        """(row, holds) of a demand, where there are any."""
        counts = self.count[demand]
        for row in np.flatnonzero(counts).tolist():
            yield row, int(counts[row])

    def forget(self, demand: int) -> None:
        """Lift all holds of a demand that is going away."""
        self.count[demand] = 0
        self.held_total[demand] = 0
        self.filled[demand] = 0
        self.filled_total[demand] = 0
        for key in [key for key in self.soft if key[0] == demand]:
            del self.soft[key]
        self.stale = True

    def visible_to(self, priority: int) -> Columns | None:
        """What a pod of this priority must leave alone; None when it sees no holds."""
        level = self._demands.level(priority)
        return self.visible[level] if level < len(self.visible) else None

    def clear_for(self, priority: int) -> Flags:
        """The known nodes where a pod of this priority sees no holds."""
        level = self._demands.level(priority)
        return self.clear[level] if level < len(self.clear) else self._table.present
