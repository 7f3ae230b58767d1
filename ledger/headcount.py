"""How many pods each node has that a topology spread constraint counts, as kube-scheduler counts them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ledger.table import Table, reshaped
from qos.cluster.objects import Pod, Selector
from qos.cluster.selectors import matches

Numbers: TypeAlias = NDArray[np.int64]
"""Indexed [row]."""


class Headcount:
    """By namespace and selector: pods with a claim that are not being deleted, of policies or not.

    Only what some demand asks for is counted. `touched`: namespaces in which a count has changed since
    somebody looked and took them out.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._columns: dict[str, dict[Selector, Numbers]] = {}
        self._users: dict[tuple[str, Selector], int] = {}
        self.touched: set[str] = set()

    def resize(self) -> None:
        """Follow the table's growth."""
        shape = self._table.shape[1:]
        for columns in self._columns.values():
            for selector, column in columns.items():
                columns[selector] = np.asarray(reshaped(column, shape), dtype=np.int64)

    def watch(self, namespace: str, selector: Selector, claimed: Iterable[tuple[Pod, int]]) -> None:
        """Count the pods that a selector matches from now on; `claimed`: the namespace's, with rows."""
        self._users[namespace, selector] = self._users.get((namespace, selector), 0) + 1
        columns = self._columns.setdefault(namespace, {})
        if selector in columns:
            return
        column = columns[selector] = np.zeros(self._table.shape[1], dtype=np.int64)
        for pod, row in claimed:
            if not pod.deleting and matches(selector, pod.labels):
                column[row] += 1

    def forget(self, namespace: str, selector: Selector) -> None:
        """One demand less asks for it."""
        self._users[namespace, selector] -= 1
        if self._users[namespace, selector]:
            return
        del self._users[namespace, selector], self._columns[namespace][selector]
        if not self._columns[namespace]:
            del self._columns[namespace]

    def of(self, namespace: str, selector: Selector) -> Numbers:
        """How many pods each row has."""
        return self._columns[namespace][selector]

    def count(self, pod: Pod, row: int, sign: int) -> None:
        """A pod's claim came (1) or went (-1)."""
        columns = self._columns.get(pod.namespace)
        if columns is None or pod.deleting:
            return
        for selector, column in columns.items():
            if matches(selector, pod.labels):
                column[row] += sign
                self.touched.add(pod.namespace)
