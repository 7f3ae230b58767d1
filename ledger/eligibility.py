"""Which nodes a placement admits, for all nodes at once: labels and taints as columns of codes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ledger.table import Flags, Rows, Table, reshaped
from qos.cluster.objects import (
    Node,
    NodePredicate,
    NodeSelectorTerm,
    Requirement,
    Selector,
    Spread,
    Taint,
    Terms,
    Toleration,
)
from qos.cluster.selectors import admits, matches

_ABSENT = 0
_EVERYWHERE = NodePredicate()
_SOFT = "PreferNoSchedule"
_MOST_LABELS = 256
_MOST_JUDGEMENTS = 256

_Tainted: TypeAlias = tuple[tuple[Taint, ...], bool]
"""A node's taints, and whether it is cordoned."""


class _Codes:
    """One property of the nodes as numbers, [row]; 0: absent. `values` has what a code stands for."""

    def __init__(self, rows: int) -> None:
        self.column: NDArray[np.int32] = np.zeros(rows, dtype=np.int32)
        self.codes: dict[object, int] = {}
        self.values: list[object] = [None]
        self._truths: dict[Hashable, Flags] = {}

    def put(self, row: int, value: object) -> None:
        """Write a row; None: absent."""
        self.column[row] = _ABSENT if value is None else self._code(value)
        if len(self.values) > 2 * self.column.size + 1:
            self._forget_unused()

    def _forget_unused(self) -> None:
        """Nodes come and go, each with a name of its own: their values must not stay."""
        used = np.union1d(self.column, [_ABSENT])
        self.column = np.searchsorted(used, self.column).astype(np.int32)
        self.values = [self.values[code] for code in used.tolist()]
        self.codes = {value: code for code, value in enumerate(self.values) if code != _ABSENT}
        self._truths.clear()

    def _code(self, value: object) -> int:
        code = self.codes.get(value)
        if code is None:
            code = self.codes[value] = len(self.values)
            self.values.append(value)
        return code

    def where(self, holds: Callable[[object], bool]) -> Flags:
        """The rows whose value passes; asked once a value. Absent is None."""
        truth = np.fromiter(map(holds, self.values), dtype=np.bool_, count=len(self.values))
        return truth.take(self.column)

    def judged(self, by: Hashable, holds: Callable[[object], bool]) -> Flags:
        """Which values pass, [code], for a condition that is asked for often: each is judged once."""
        truth = self._truths.get(by)
        if truth is None or truth.size < len(self.values):
            if truth is None and len(self._truths) >= _MOST_JUDGEMENTS:
                self._truths.clear()
            known = truth if truth is not None else np.zeros(0, dtype=np.bool_)
            new = [holds(value) for value in self.values[known.size :]]
            truth = self._truths[by] = np.concatenate([known, np.asarray(new, dtype=np.bool_)])
        return truth

    def among(self, values: Iterable[str]) -> Flags:
        """The rows that have one of these values."""
        truth = np.zeros(len(self.values), dtype=np.bool_)
        truth[[self.codes[value] for value in values if value in self.codes]] = True
        return truth.take(self.column)


class Eligibility:
    """The nodes' labels that placements ask for, and their taints, kept in step with the table.

    The column of a label is made when a placement names its key.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._labels: dict[str, _Codes] = {}
        self._taints = _Codes(table.shape[1])

    def resize(self) -> None:
        """Follow the table's growth."""
        for codes in (self._taints, *self._labels.values()):
            codes.column = np.asarray(reshaped(codes.column, self._table.shape[1:]), dtype=np.int32)

    def set_node(self, row: int, node: Node | None) -> None:
        """Take a node as it is now; None: it is gone."""
        self._taints.put(row, (node.taints, node.unschedulable) if node is not None else None)
        for key, codes in self._labels.items():
            codes.put(row, node.labels.get(key) if node is not None else None)

    def admitted(self, where: NodePredicate) -> Flags:
        """The ready nodes that admit pods so constrained, [row]."""
        return (
            self._table.usable
            & self.tolerated(where.tolerations)
            & self._selected(where)
            & self.meeting(where.volumes)
        )

    def meeting(self, volumes: Iterable[Terms]) -> Flags:
        """The nodes, ready or not, that meet each of these, [row]."""
        flags = np.ones(self._table.shape[1], dtype=np.bool_)
        for terms in volumes:
            flags &= self._any_of(terms)
        return flags

    def _any_of(self, terms: Terms) -> Flags:
        flags = np.zeros(self._table.shape[1], dtype=np.bool_)
        for term in terms:
            flags |= self._term(term)
        return flags

    def _selected(self, where: NodePredicate) -> Flags:
        """By node selector and required affinity."""
        flags = np.ones(self._table.shape[1], dtype=np.bool_)
        for key, value in where.node_selector:
            flags &= self._label(key).among((value,))
        if where.affinity is not None:
            flags &= self._any_of(where.affinity)
        return flags

    def domains(self, where: NodePredicate, spread: Spread, keys: Iterable[str]) -> tuple[Rows, int]:
        """Each row's spread domain, -1 for none, and how many there are.

        Of nodes, ready or not, that have all of the keys, and that the placement admits as far as the
        constraint honours it.
        """
        counts = self._table.present.copy()
        for key in keys:
            counts &= self._label(key).column != _ABSENT
        if spread.honor_affinity:
            counts &= self._selected(where)
        if spread.honor_taints:
            counts &= self.tolerated(where.tolerations)
        codes = self._label(spread.key)
        used = np.bincount(codes.column[counts], minlength=len(codes.values)) > 0
        number = np.cumsum(used) - 1
        of = np.where(counts, number[codes.column], -1)
        return of, int(used.sum())

    def tolerated(self, tolerations: tuple[Toleration, ...], rows: Rows | None = None) -> Flags:
        """Whether these tolerate the hard taints and the cordon of each of these nodes, of all if None."""

        def holds(value: object) -> bool:
            if value is None:
                return False
            taints, cordoned = _tainted(value)
            return admits(
                NodePredicate(tolerations=tolerations),
                Node("", "", {}, taints=taints, unschedulable=cordoned),
            )

        column = self._taints.column
        return self._taints.judged(tolerations, holds).take(column if rows is None else column.take(rows))

    def discouraged(self, rows: Rows) -> bool:
        """Whether one of these nodes has a soft taint, whoever tolerates it."""

        def holds(value: object) -> bool:
            return value is not None and any(taint.effect == _SOFT for taint in _tainted(value)[0])

        return bool(self._taints.judged(_SOFT, holds).take(self._taints.column.take(rows)).any())

    def _label(self, key: str) -> _Codes:
        codes = self._labels.get(key)
        if codes is None:
            if len(self._labels) >= _MOST_LABELS:
                self._labels.clear()  # a key is a tenant's word, and its column can be made again
            codes = self._labels[key] = _Codes(self._table.shape[1])
            for row in self._table.index.values():
                node = self._table.nodes[row]
                codes.put(row, node.labels.get(key) if node is not None else None)
        return codes

    def _term(self, term: NodeSelectorTerm) -> Flags:
        if not term.labels and not term.fields:
            return np.zeros(self._table.shape[1], dtype=np.bool_)
        flags = np.ones(self._table.shape[1], dtype=np.bool_)
        for requirement in term.labels:
            flags &= self._required(requirement)
        for requirement in term.fields:
            flags &= self._named(requirement)
        return flags

    def _required(self, requirement: Requirement) -> Flags:
        codes = self._label(requirement.key)
        match requirement.operator:
            case "In":
                return codes.among(requirement.values)
            case "NotIn":
                return ~codes.among(requirement.values)
            case _:
                alone = Selector((requirement,))
                return codes.where(lambda value: matches(alone, _labelled(requirement.key, value)))

    def _named(self, requirement: Requirement) -> Flags:
        """matchFields: the only field is metadata.name."""
        flags = np.zeros(self._table.shape[1], dtype=np.bool_)
        if requirement.operator == "In" and requirement.key == "metadata.name":
            rows = [self._table.index.get(name, -1) for name in requirement.values]
            flags[[row for row in rows if row >= 0]] = True
            return flags
        alone = Selector((requirement,))
        for name, row in self._table.index.items():
            flags[row] = matches(alone, {"metadata.name": name})
        return flags


def _tainted(value: object) -> _Tainted:
    assert isinstance(value, tuple)
    taints, cordoned = value
    return taints, cordoned


def _labelled(key: str, value: object) -> Mapping[str, str]:
    return {} if value is None else {key: str(value)}


def admits_node(where: NodePredicate, node: Node) -> bool:
    """Whether one node is eligible."""
    if where == _EVERYWHERE and not node.taints and not node.unschedulable:
        return True
    return admits(where, node)
