"""Pools of nodes, by the values of configured labels: the cap holds in each of them, too.

Without it all the CPU of a small pool (of GPU nodes, say) could be held, while the whole stays below the cap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ledger.table import Columns, Flags, Rows, Table, reshaped
from qos.cluster.objects import Node

NO_POOL: Final = 0
_NEVER: Final = np.int64(1) << 40
_FIRST_POOLS: Final = 8
MOST_POOLS: Final = 64
"""Of all labels together. A label with a value of its own on each of 5,000 nodes made 11 s of a start, and
placing held the verbs up for 600 ms; with so many pools it is as without any.
"""

Slots = NDArray[np.int64]
"""How many, by pool or by row."""


class Pools:
    """Which pool each row is in, by label, and how many holds of each demand are in each pool.

    A node without a label is in no pool of it; nodes with the values beyond the first MOST_POOLS are in one
    pool of that label together. `of` is indexed [label, row]; `count` [demand, pool].
    """

    def __init__(self, labels: Sequence[str], table: Table) -> None:
        self.labels = tuple(labels)
        self._table = table
        self._numbers: dict[tuple[str, str | None], int] = {}
        self._members: list[int] = [0]
        self._spare: list[int] = []
        self._capacity: Columns | None = None
        self.of: NDArray[np.intp] = np.zeros((len(self.labels), table.shape[1]), dtype=np.intp)
        self.count: NDArray[np.int64] = np.zeros((0, _FIRST_POOLS), dtype=np.int64)

    def __bool__(self) -> bool:
        return bool(self.labels)

    def resize(self, demands: int) -> None:
        """Follow the table's growth, the number of demands and that of pools."""
        pools = max(_FIRST_POOLS, 1 << (len(self._members) - 1).bit_length())
        self.of = np.asarray(reshaped(self.of, (len(self.labels), self._table.shape[1])), dtype=np.intp)
        self.count = np.asarray(
            reshaped(self.count, (demands, max(pools, self.count.shape[1]))), dtype=np.int64
        )

    def put(self, row: int, node: Node | None, held: Sequence[tuple[int, int]]) -> None:
        """A node came, changed or (None) went, with these holds on it: (demand, count)."""
        self._capacity = None
        for label, key in enumerate(self.labels):
            value = node.labels.get(key) if node is not None else None
            before = int(self.of[label, row])
            after = NO_POOL if value is None else self._number(key, value)
            if after == before:
                continue
            self.of[label, row] = after
            for demand, count in held:
                self.count[demand, before] -= count
                self.count[demand, after] += count
            self._members[after] += 1
            self._members[before] -= 1
            if before != NO_POOL and not self._members[before]:
                self._numbers = {name: n for name, n in self._numbers.items() if n != before}
                self._spare.append(before)

    @property
    def lumped(self) -> int:
        """How many nodes are in a pool of values beyond the first MOST_POOLS; twice if by two labels."""
        return sum(self._members[number] for (_, value), number in self._numbers.items() if value is None)

    def _number(self, key: str, value: str | None) -> int:
        number = self._numbers.get((key, value))
        if number is None:
            if value is not None and len(self._numbers) >= MOST_POOLS:
                return self._number(key, None)
            number = self._spare.pop() if self._spare else len(self._members)
            self._numbers[key, value] = number
            if number == len(self._members):
                self._members.append(0)
                self.resize(len(self.count))
        return number

    def add(self, demand: int, rows: Rows | int, counts: NDArray[np.int64] | int) -> None:
        """Holds come (positive) or go."""
        for of in self.of:
            np.add.at(self.count[demand], of[rows], counts)

    def forget(self, demand: int) -> None:
        """A demand is going away."""
        if self.labels:
            self.count[demand] = 0

    def over(self, vectors: Columns, dims: Sequence[int], percent: int) -> tuple[int, int, int] | None:
        """A pool where more is held than the cap allows: (pool, dimension, how much more), or None."""
        excess = self._used(vectors, dims) - self._limits(dims, percent)
        excess[:, NO_POOL] = 0
        if not excess.size or excess.max() <= 0:
            return None
        place, pool = np.unravel_index(int(excess.argmax()), excess.shape)
        return int(pool), dims[int(place)], int(excess[place, pool])

    def members(self, pool: int) -> Flags:
        """Its rows."""
        flags: Flags = (self.of == pool).any(axis=0)
        return flags

    def slots(
        self, demand: int, others: Sequence[int], vectors: Columns, dims: Sequence[int], percent: int
    ) -> Slots:
        """How many more slots of a demand each pool may have, beside the holds of these demands."""
        left = self._limits(dims, percent) - vectors[np.ix_(others, dims)].T @ self.count[others]
        vector = vectors[demand, list(dims)]
        asked = vector > 0
        slots = np.maximum((left[asked] // vector[asked, None]).min(axis=0), 0)
        slots[NO_POOL] = _NEVER
        return np.asarray(slots, dtype=np.int64)

    def by_row(self, slots: Slots) -> Slots:
        """The same by row: of all the pools that a row is in, the fewest."""
        return np.asarray(slots[self.of].min(axis=0), dtype=np.int64)

    def keep_within(self, slots: Slots, rows: Rows, counts: Slots) -> Slots:
        """Of the counts for these rows, in this order, those that their pools still take."""
        for of in self.of:
            pools = of[rows]
            order = np.argsort(pools, kind="stable")
            ordered, sorted_pools = counts[order], pools[order]
            before = np.cumsum(ordered) - ordered
            first = np.searchsorted(sorted_pools, sorted_pools, side="left")
            before -= before[first]
            counts = counts.copy()
            counts[order] = np.clip(slots[sorted_pools] - before, 0, ordered)
        return counts

    def _used(self, vectors: Columns, dims: Sequence[int]) -> Columns:
        used: Columns = vectors[:, list(dims)].T @ self.count
        return used

    def _limits(self, dims: Sequence[int], percent: int) -> Columns:
        """What may be held, [these dimensions, pool]: a share of what the pool's ready nodes offer."""
        table = self._table
        if self._capacity is None or self._capacity.shape != (table.shape[0], self.count.shape[1]):
            self._capacity = np.zeros((table.shape[0], self.count.shape[1]), dtype=np.int64)
            for of in self.of:
                rows = np.flatnonzero(table.usable & (of != NO_POOL))
                np.add.at(self._capacity.T, of[rows], table.allocatable[:, rows].T)
        whole, rest = np.divmod(self._capacity[list(dims)], 100)
        limits: Columns = whole * percent + rest * percent // 100  # the product itself might not fit an int64
        return limits
