"""How many nodes filter answers: kube-scheduler decodes and scores each of them for every pod."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ledger.table import Flags, Rows


class Portions:
    """Each pod gets as many of its nodes as `most`, the next pod those that follow; 0: all of them.

    kube-scheduler names nodes of the zones by turns, so neighbours in its list are spread over them: it takes
    its own samples likewise.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._next = 0

    def cut(self, passing: Flags, rows: Rows, uneven: Callable[[Rows], bool]) -> None:
        """Leave so many of the flags; all where these rows are `uneven`: good and less good nodes."""
        if not self._most or passing.size <= self._most:
            return
        there = np.flatnonzero(passing)
        if there.size <= self._most or uneven(rows[there]):
            return
        first = self._next % there.size
        self._next = first + self._most
        passing[there] = False
        passing[there.take(np.arange(first, first + self._most), mode="wrap")] = True
