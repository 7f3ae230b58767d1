"""Nodes as rows and resources as columns: int64, one contiguous run of memory per resource."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from qos.cluster.objects import Node, Resources

Columns: TypeAlias = NDArray[np.int64]
"""Indexed [resource, row]."""
Rows: TypeAlias = NDArray[np.intp]
Flags: TypeAlias = NDArray[np.bool_]
Vector: TypeAlias = NDArray[np.int64]
"""Indexed [resource]."""

_CORE = ("cpu", "memory", "pods", "ephemeral-storage")
_FIRST_ROWS = 64


def grown(array: NDArray[np.generic], shape: tuple[int, ...]) -> NDArray[np.generic]:
    """A copy of `array` in the corner of zeros of a larger shape."""
    larger = np.zeros(shape, dtype=array.dtype)
    larger[tuple(slice(0, size) for size in array.shape)] = array
    return larger


class Table:
    """The columns that do not depend on policies.

    `free` is allocatable minus claims, and may be negative; `charged` is what pods in flight may take;
    `nominated` what preemptors wait for; `expected` what DaemonSets have still to place. The last row is
    never given to a node, so that row -1 (an unknown name) fails every comparison: nothing is free there and
    it is not `present`. `touched` collects the rows whose free capacity changed since their holds were last
    measured.
    """

    def __init__(self, on_grow: Callable[[], None]) -> None:
        self._on_grow = on_grow
        self.index: dict[str, int] = {}
        self.rows: dict[str, int] = {}
        self.names: list[str] = [""] * _FIRST_ROWS
        self.nodes: list[Node | None] = [None] * _FIRST_ROWS
        self.references: list[int] = [0] * _FIRST_ROWS
        self.resources: list[str] = list(_CORE)
        self.dims: dict[str, int] = {name: i for i, name in enumerate(_CORE)}
        self._spare: list[int] = list(range(_FIRST_ROWS - 2, -1, -1))
        shape = (len(_CORE), _FIRST_ROWS)
        self.allocatable: Columns = np.zeros(shape, dtype=np.int64)
        self.free: Columns = np.zeros(shape, dtype=np.int64)
        self.charged: Columns = np.zeros(shape, dtype=np.int64)
        self.nominated: Columns = np.zeros(shape, dtype=np.int64)
        self.expected: Columns = np.zeros(shape, dtype=np.int64)
        self.present: Flags = np.zeros(_FIRST_ROWS, dtype=np.bool_)
        self.usable: Flags = np.zeros(_FIRST_ROWS, dtype=np.bool_)
        self.touched: set[int] = set()
        self._rank: Rows | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(resources, rows), spare rows included."""
        return len(self.resources), len(self.names)

    def rows_of(self, names: Sequence[str]) -> Rows:
        """The row of each name, -1 where the node is unknown."""
        return np.fromiter(map(self.index.get, names, repeat(-1)), dtype=np.intp, count=len(names))

    def rank(self) -> Rows:
        """Each row's position when nodes are sorted by name.

        The tie-breaker that forgets the order of arrival.
        """
        if self._rank is None:
            rank = np.full(len(self.names), len(self.names), dtype=np.intp)
            order = [self.rows[name] for name in sorted(self.rows)]
            rank[order] = np.arange(len(order))
            self._rank = rank
        return self._rank

    def dim(self, resource: str) -> int:
        """The column of a resource, made when it is new."""
        dim = self.dims.get(resource)
        if dim is None:
            dim = self.dims[resource] = len(self.resources)
            self.resources.append(resource)
            self._grow()
        return dim

    def vector(self, resources: Resources) -> Vector:
        """Amounts by column."""
        dims = [self.dim(name) for name in resources]
        vector = np.zeros(len(self.resources), dtype=np.int64)
        vector[dims] = list(resources.values())
        return vector

    def row(self, name: str) -> int:
        """The row of a node, made when it is new: a claim may name a node that no list has shown yet."""
        row = self.rows.get(name)
        if row is not None:
            return row
        if not self._spare:
            self._double()
        row = self.rows[name] = self._spare.pop()
        self.names[row] = name
        self._rank = None
        return row

    def set_node(self, node: Node) -> int:
        """Write a node's allocatable; returns its row."""
        row = self.row(node.name)
        amounts = self.vector(node.allocatable)
        self.touched.add(row)
        self.free[:, row] += amounts - self.allocatable[:, row]
        self.allocatable[:, row] = amounts
        self.nodes[row] = node
        self.index[node.name] = row
        self.present[row] = True
        self.usable[row] = node.ready
        return row

    def remove_node(self, name: str) -> int | None:
        """The node is gone; its row stays while claims still name it. Returns the row."""
        row = self.index.pop(name, None)
        if row is None:
            return None
        self.free[:, row] -= self.allocatable[:, row]
        self.allocatable[:, row] = 0
        self.nodes[row] = None
        self.present[row] = self.usable[row] = False
        self.recycle(row)
        return row

    def claim(self, row: int, requests: Resources, sign: int) -> None:
        """Take (sign 1) or give back (sign -1) capacity; a claimed row is not recycled."""
        self.touched.add(row)
        self.add("free", row, requests, -sign)
        self.references[row] += sign

    def nominate(self, row: int, requests: Resources, sign: int) -> None:
        """Keep (sign 1) or let go (sign -1) a hole for a preemptor."""
        self.add("nominated", row, requests, sign)
        self.references[row] += sign

    def add(self, columns: str, row: int, amounts: Resources, sign: int) -> None:
        """Add amounts to one row of the columns of that name."""
        for name, amount in amounts.items():
            dim = self.dims.get(name)
            if dim is None:
                dim = self.dim(name)
            getattr(self, columns)[dim, row] += sign * amount

    def recycle(self, row: int) -> None:
        """Give the row back when neither a node, a claim nor a nomination is left on it."""
        if self.present[row] or self.references[row] or self.names[row] == "":
            return
        del self.rows[self.names[row]]
        self.names[row] = ""
        for columns in (self.free, self.charged, self.nominated, self.expected):
            columns[:, row] = 0
        self._spare.append(row)
        self._rank = None

    def amounts(self, columns: Columns) -> Mapping[str, int]:
        """Sum of the columns over all rows, by resource name."""
        return dict(zip(self.resources, columns.sum(axis=1).tolist(), strict=True))

    def _double(self) -> None:
        size = len(self.names)
        self.names += [""] * size
        self.nodes += [None] * size
        self.references += [0] * size
        # The old last row was the one never given away; from now on it is the new last one.
        self._spare = list(range(2 * size - 2, size - 2, -1))
        self._grow()

    def _grow(self) -> None:
        shape = self.shape
        for name in ("allocatable", "free", "charged", "nominated", "expected"):
            setattr(self, name, grown(getattr(self, name), shape))
        for name in ("present", "usable"):
            setattr(self, name, grown(getattr(self, name), shape[1:]))
        self._rank = None
        self._on_grow()
