"""Pods that came lately to nodes where slots are kept, past the scheduler that knew of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ledger.claims import Claim
from ledger.state import State


class Latecomers:
    """The pods that came in the last `seconds`, by row; what is new is added when somebody asks."""

    def __init__(self, state: State, seconds: float) -> None:
        self._state = state
        self._seconds = seconds
        self._until = self._followed = float("-inf")
        self._newest: Claim | None = None
        self._by_row: dict[int, dict[str, Claim]] = {}
        self._before: dict[int, dict[str, Claim]] = {}
        """What came before the last turn of so many seconds."""

    def took_room(self, node: str, kept: Mapping[str, int]) -> bool:
        """Whether there is no room on a node for so many slots of each demand, by key, and would be but for
        them. Whatever is held there.
        """
        state = self._state
        self._follow()
        row = state.table.index.get(node, -1)
        there = self._before.get(row, {}) | self._by_row.get(row, {})
        late = [one for one in there.values() if self._is_late(one, row)]
        if not late:
            return False
        numbers, asked = state.demands.numbers, np.zeros_like(state.holds.total)
        for number, count in [(numbers[key], count) for key, count in kept.items() if key in numbers]:
            asked += state.demands.vectors[number] * count
        free = state.table.free[:, row]
        without = free + sum((state.table.vector(one.requests) for one in late), np.zeros_like(free))
        needed = asked > 0
        return bool((needed & (asked > free)).any() and not (needed & (asked > without)).any())

    def _is_late(self, one: Claim, row: int) -> bool:
        there = self._state.claims.by_uid.get(one.pod.uid) is one
        return there and one.row == row and one.since > self._state.now - self._seconds

    def _follow(self) -> None:
        """Claims are in the order in which they came, so the new ones are the last."""
        now, newest = self._state.now, self._newest
        if now >= self._until:
            self._by_row, self._before, self._until = {}, self._by_row, now + self._seconds
        for one in reversed(self._state.claims.by_uid.values()):
            if one is newest or one.since <= now - self._seconds or one.since < self._followed:
                break
            if self._newest is newest:
                self._newest = one
            self._by_row.setdefault(one.row, {})[one.pod.uid] = one
        self._followed = now
