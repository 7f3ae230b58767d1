"""How many pods each node has that a spread constraint counts, as kube-scheduler counts them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ledger.table import Table, reshaped
from qos.cluster.objects import Pod, Selector, Spread
from qos.cluster.selectors import matches

Numbers: TypeAlias = NDArray[np.int64]
"""Indexed [row]."""
_Kind: TypeAlias = tuple[Selector, bool]
"""Pods that a selector matches; True: those that are being deleted, too."""


class Headcount:
    """By namespace and constraint: pods with a claim, of policies or not.

    Those that are being deleted count for an affinity or anti-affinity alone.

    Only what some demand asks for is counted. `touched`: namespaces in which a count has changed since
    somebody looked and took them out.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._columns: dict[str, dict[_Kind, Numbers]] = {}
        self._users: dict[tuple[str, _Kind], int] = {}
        self.touched: set[str] = set()

    def resize(self) -> None:
        """Follow the table's growth."""
        shape = self._table.shape[1:]
        for columns in self._columns.values():
            for kind, column in columns.items():
                columns[kind] = np.asarray(reshaped(column, shape), dtype=np.int64)

    def watch(self, namespace: str, spread: Spread, claimed: Iterable[tuple[Pod, int]]) -> None:
        """Count a constraint's pods from now on; `claimed`: the namespace's, with rows."""
        kind = _kind(spread)
        self._users[namespace, kind] = self._users.get((namespace, kind), 0) + 1
        columns = self._columns.setdefault(namespace, {})
        if kind in columns:
            return
        column = columns[kind] = np.zeros(self._table.shape[1], dtype=np.int64)
        for pod, row in claimed:
            column[row] += _counts(pod, kind)

    def forget(self, namespace: str, spread: Spread) -> None:
        """One demand less asks for it."""
        kind = _kind(spread)
        self._users[namespace, kind] -= 1
        if self._users[namespace, kind]:
            return
        del self._users[namespace, kind], self._columns[namespace][kind]
        if not self._columns[namespace]:
            del self._columns[namespace]

    def of(self, namespace: str, spread: Spread) -> Numbers:
        """How many pods each row has."""
        return self._columns[namespace][_kind(spread)]

    def count(self, pod: Pod, row: int, sign: int) -> None:
        """A pod's claim came (1) or went (-1)."""
        columns = self._columns.get(pod.namespace)
        if columns is None:
            return
        for kind, column in columns.items():
            if _counts(pod, kind):
                column[row] += sign
                self.touched.add(pod.namespace)


def _kind(spread: Spread) -> _Kind:
    return spread.selector, spread.between_pods


def _counts(pod: Pod, kind: _Kind) -> bool:
    selector, deleting = kind
    return (deleting or not pod.deleting) and matches(selector, pod.labels)
