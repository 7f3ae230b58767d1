"""Nodes as rows and resources as columns: int64, one contiguous run of memory per resource."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from itertools import repeat
from typing import Final, TypeAlias

import numpy as np
import numpy.ma
from numpy.typing import NDArray

from qos.cluster.objects import Node, Resources
from qos.quantity import MAXIMUM

Columns: TypeAlias = NDArray[np.int64]
"""Indexed [resource, row]."""
Rows: TypeAlias = NDArray[np.intp]
Flags: TypeAlias = NDArray[np.bool_]
Vector: TypeAlias = NDArray[np.int64]
"""Indexed [resource]."""

_CORE = ("cpu", "memory", "pods", "ephemeral-storage")
NOWHERE: Final = len(_CORE)
"""The column of every resource that no node offers: nothing is free there, so what needs one fits nowhere."""
_COLUMNS = ("allocatable", "free", "charged", "_summed", "nominated", "expected")
_FIRST_ROWS = 64
_MORE_COLUMNS = 4
_MOST_UNSUMMED: Final = 16
"""Pods, whose sum delays whoever reads it first: one that may go to 5,000 nodes takes 0.3 ms."""


def offered(node: Node) -> list[tuple[str, int]]:
    """The resources of which a node has any."""
    return [(name, amount) for name, amount in node.allocatable.items() if amount > 0]


def reshaped(
    array: NDArray[np.generic], shape: tuple[int, ...], used: int | None = None
) -> NDArray[np.generic]:
    """A copy of `array`, or of its first `used` entries, in the corner of zeros; what is beyond the shape is
    left out.
    """
    copy = np.zeros(shape, dtype=array.dtype)
    there = array[:used]
    corner = tuple(slice(0, min(sizes)) for sizes in zip(there.shape, shape, strict=True))
    copy[corner] = there[corner]
    return copy


def counts(amount: int) -> bool:
    """Whether a pod that runs takes what it says: kubelet reads what no node has modulo 2^64, or as 0."""
    return amount < MAXIMUM


class Table:
    """The columns that do not depend on policies.

    `free` is allocatable minus claims, and may be negative; `charged` is what pods in flight take that were
    answered this node alone; `possible` what those may take that were answered several; `nominated` what
    preemptors wait for; `expected` what DaemonSets have still to place. The last row is never given to a
    node, so that row -1 (an unknown name) fails every comparison: nothing is free there and it is not
    `present`. `touched` collects the rows whose free capacity changed since their holds were last measured;
    `grown` those where more may be held than when missing holds were last placed.

    A resource has a column while some node offers it: what pods and policies name is a tenant's word, and a
    thousand names cost the verbs nothing. Claims of other resources are kept aside, by resource and row.
    `changes` counts those of any column; who writes to one directly counts it. What pods may take is added up
    when somebody reads it: most are bound before anyone does.
    `on_shape` is called when the shape changed, `on_columns` with the names of resources that have got a
    column, or that have none any more: all that one node brings, or takes away, together.
    """

    def __init__(self, on_shape: Callable[[], None], on_columns: Callable[[AbstractSet[str]], None]) -> None:
        self._on_shape = on_shape
        self._on_columns = on_columns
        self.index: dict[str, int] = {}
        self.rows: dict[str, int] = {}
        self.names: list[str] = [""] * _FIRST_ROWS
        self.nodes: list[Node | None] = [None] * _FIRST_ROWS
        self.references: list[int] = [0] * _FIRST_ROWS
        self.resources: list[str] = [*_CORE, ""]
        self.dims: dict[str, int] = {name: i for i, name in enumerate(_CORE)}
        self._offering: dict[str, int] = {}
        self._spare_columns: list[int] = []
        self._aside: dict[str, dict[int, int]] = {}
        self._spare: list[int] = list(range(_FIRST_ROWS - 2, -1, -1))
        shape = (len(self.resources), _FIRST_ROWS)
        self.allocatable: Columns = np.zeros(shape, dtype=np.int64)
        self.free: Columns = np.zeros(shape, dtype=np.int64)
        self.charged: Columns = np.zeros(shape, dtype=np.int64)
        self._summed: Columns = np.zeros(shape, dtype=np.int64)
        self._unsummed: dict[str, list[tuple[Rows, Resources]]] = {}
        self.nominated: Columns = np.zeros(shape, dtype=np.int64)
        self.expected: Columns = np.zeros(shape, dtype=np.int64)
        self.present: Flags = np.zeros(_FIRST_ROWS, dtype=np.bool_)
        self.usable: Flags = np.zeros(_FIRST_ROWS, dtype=np.bool_)
        self.touched: set[int] = set()
        self.grown: set[int] = set()
        self.changes = 0
        self._rank: Rows | None = None
        self._largest: Vector | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(columns, rows), spare ones included."""
        return len(self.resources), len(self.names)

    @property
    def largest(self) -> Vector:
        """The most that a node offers, by column."""
        if self._largest is None:
            self._largest = self.allocatable.max(axis=1)
        return self._largest

    @property
    def possible(self) -> Columns:
        """What pods in flight may take, as above."""
        if self._unsummed:
            self._sum_all()
        return self._summed

    def may_take(self, uid: str, parts: list[tuple[Rows, Resources]], sign: int) -> None:
        """A pod in flight may take this of each of these rows (sign 1), or no longer (-1)."""
        self.changes += 1
        if sign > 0:
            self._unsummed[uid] = parts
            if len(self._unsummed) > _MOST_UNSUMMED:
                self._sum_all()
        elif self._unsummed.pop(uid, None) is None:
            self._sum(parts, -1)

    def _sum_all(self) -> None:
        for parts in self._unsummed.values():
            self._sum(parts, 1)
        self._unsummed.clear()

    def _sum(self, parts: list[tuple[Rows, Resources]], sign: int) -> None:
        for rows, amounts in parts:
            for name, amount in amounts.items():
                dim = self.dims.get(name)
                if dim is not None and amount:
                    column = self._summed[dim]  # indexed by rows alone: half the time
                    column[rows] += sign * amount

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

    def vector(self, resources: Resources) -> Vector:
        """Amounts by column; 1 in NOWHERE when there is a resource that no node offers."""
        vector = np.zeros(len(self.resources), dtype=np.int64)
        for name, amount in resources.items():
            dim = self.dims.get(name)
            if dim is not None:
                vector[dim] = amount
            elif amount > 0:
                vector[NOWHERE] = 1
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
        self.changes += 1
        return row

    def set_node(self, node: Node) -> int:
        """Write a node's allocatable; returns its row."""
        row = self.row(node.name)
        before, self.nodes[row] = self.nodes[row], node
        self._offer(node)
        self._allocate(row, self.vector(node.allocatable))
        self._withdraw(before)
        self.index[node.name] = row
        self.present[row] = True
        self.usable[row] = node.ready
        return row

    def remove_node(self, name: str) -> int | None:
        """The node is gone; its row stays while claims still name it. Returns the row."""
        row = self.index.pop(name, None)
        if row is None:
            return None
        before, self.nodes[row] = self.nodes[row], None
        self._allocate(row, self.vector({}))
        self._withdraw(before)
        self.present[row] = self.usable[row] = False
        self.recycle(row)
        return row

    def _allocate(self, row: int, amounts: Vector) -> None:
        self.touched.add(row)
        self.grown.add(row)
        self.changes += 1
        self.free[:, row] += amounts - self.allocatable[:, row]
        self.allocatable[:, row] = amounts
        self._largest = None

    def _offer(self, node: Node) -> None:
        fresh = []
        for name, _ in offered(node):
            self._offering[name] = self._offering.get(name, 0) + 1
            if name not in self.dims:
                fresh.append(name)
        if fresh:
            self._sum_all()  # what is new in it is charged by whoever hears of the columns
            self._make_columns(len(fresh))
            for name in fresh:
                self._open(name)
            self._on_columns(frozenset(fresh))

    def _withdraw(self, node: Node | None) -> None:
        gone = []
        for name, _ in offered(node) if node is not None else ():
            self._offering[name] -= 1
            if not self._offering[name]:
                del self._offering[name]
                if self.dims[name] > NOWHERE:
                    gone.append(name)
        if gone:
            for name in gone:
                self._close(name)
            self._on_columns(frozenset(gone))
            self._drop_columns()

    def _make_columns(self, count: int) -> None:
        """See that there are so many spare ones."""
        size = len(self.resources)
        if count <= len(self._spare_columns):
            return
        more = max(_MORE_COLUMNS, count - len(self._spare_columns))
        self.resources += [""] * more
        self._spare_columns = [*range(size + more - 1, size - 1, -1), *self._spare_columns]
        self._reshape()

    def _drop_columns(self) -> None:
        """Give the last columns back when most are spare: a node may have named resources by the hundred."""
        needed = max(self.dims.values()) + 1 + _MORE_COLUMNS
        if 2 * needed < len(self.resources):
            del self.resources[needed:]
            self._spare_columns = [dim for dim in self._spare_columns if dim < needed]
            self._reshape()

    def _open(self, resource: str) -> None:
        """Give a resource a spare column, and take in the claims that were kept aside."""
        self.changes += 1
        dim = self.dims[resource] = self._spare_columns.pop()
        self.resources[dim] = resource
        for row, amount in self._aside.pop(resource, {}).items():
            self.free[dim, row] -= amount

    def _close(self, resource: str) -> None:
        """Take back the column of a resource that nobody offers any more; the next new resource gets it."""
        self.changes += 1
        dim = self.dims.pop(resource)
        claimed = np.flatnonzero(self.free[dim])
        if claimed.size:
            amounts = (-self.free[dim, claimed]).tolist()
            self._aside[resource] = dict(zip(claimed.tolist(), amounts, strict=True))
        for columns in _COLUMNS:
            getattr(self, columns)[dim] = 0
        self._largest = None
        self.resources[dim] = ""
        self._spare_columns.append(dim)
        self._spare_columns.sort(reverse=True)  # the lowest are taken first, so that the last may go

    def claim(self, row: int, requests: Resources, sign: int) -> None:
        """Take (sign 1) or give back (sign -1) capacity; a claimed row is not recycled."""
        self.changes += 1
        self.touched.add(row)
        if sign < 0:
            self.grown.add(row)
        for name, amount in requests.items():
            if not counts(amount):
                continue
            dim = self.dims.get(name)
            if dim is None:
                self._set_aside(name, row, sign * amount)
            else:
                self.free[dim, row] -= sign * amount
        self.references[row] += sign

    def _set_aside(self, resource: str, row: int, amount: int) -> None:
        rows = self._aside.setdefault(resource, {})
        rows[row] = rows.get(row, 0) + amount
        if not rows[row]:
            del rows[row]
        if not rows:
            del self._aside[resource]

    def nominate(self, row: int, requests: Resources, sign: int) -> None:
        """Keep (sign 1) or let go (sign -1) a hole for a preemptor."""
        if sign < 0:
            self.grown.add(row)
        self.add("nominated", row, requests, sign)
        self.references[row] += sign

    def expect(self, rows: int | Sequence[int], requests: Resources, sign: int) -> None:
        """Leave room (sign 1) for a DaemonSet's pod on a row or on each of several, or no longer (-1)."""
        if sign < 0:
            self.grown.update((rows,) if isinstance(rows, int) else rows)
        self.add("expected", rows, requests, sign)

    def add(self, columns: str, rows: int | Sequence[int] | Rows, amounts: Resources, sign: int) -> None:
        """Add amounts to one row, or to each of several, of the columns of that name, as far as the resources
        have columns.
        """
        self.changes += 1
        for name, amount in amounts.items():
            dim = self.dims.get(name)
            if dim is not None:
                getattr(self, columns)[dim, rows] += sign * amount

    def recycle(self, row: int) -> None:
        """Give the row back when neither a node, a claim nor a nomination is left on it."""
        if self.present[row] or self.references[row] or self.names[row] == "":
            return
        self.changes += 1
        del self.rows[self.names[row]]
        self.names[row] = ""
        for columns in (self.free, self.charged, self.possible, self.nominated, self.expected):
            columns[:, row] = 0
        self._spare.append(row)
        self._rank = None

    def _double(self) -> None:
        size = len(self.names)
        self.names += [""] * size
        self.nodes += [None] * size
        self.references += [0] * size
        # The old last row was the one never given away; from now on it is the new last one.
        self._spare = list(range(2 * size - 2, size - 2, -1))
        self._reshape()

    def _reshape(self) -> None:
        shape = self.shape
        for name in _COLUMNS:
            setattr(self, name, reshaped(getattr(self, name), shape))
        for name in ("present", "usable"):
            setattr(self, name, reshaped(getattr(self, name), shape[1:]))
        self._rank = self._largest = None
        self._on_shape()
