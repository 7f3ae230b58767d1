"""Pods that came lately to nodes where slots are kept, past the scheduler that knew of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ledger.beside import slots_of
from ledger.claims import Claim
from ledger.state import State


class Latecomers:
    """The pods that came in the last `seconds`, by row; what is new is added when somebody asks."""

    def __init__(self, state: State, seconds: float) -> None:
        self._state = state
        self._seconds = seconds
        self._until = self._followed = float("-inf")
        self._newest = ""
        self._by_row: dict[int, set[str]] = {}
        self._before: dict[int, set[str]] = {}
        """UIDs of what came before the last turn of so many seconds."""

    def came_to(self, node: str) -> bool:
        """Whether any did."""
        return bool(self._late(self._state.table.index.get(node, -1)))

    def took_room(self, node: str, kept: Mapping[str, int]) -> bool:
        """Whether there is no room on a node for so many slots of each demand, by key, and would be but for
        them. Whatever is held there.
        """
        state = self._state
        row = state.table.index.get(node, -1)
        late = self._late(row)
        if not late:
            return False
        asked = slots_of(state, kept)
        free = state.table.free[:, row]
        without = free + sum((state.table.vector(one.requests) for one in late), np.zeros_like(free))
        needed = asked > 0
        return bool((needed & (asked > free)).any() and not (needed & (asked > without)).any())

    def _late(self, row: int) -> list[Claim]:
        state = self._state
        self._follow()
        uids = self._before.get(row, set()) | self._by_row.get(row, set())
        there = [claim for uid in uids if (claim := state.claims.by_uid.get(uid)) is not None]
        return [claim for claim in there if claim.row == row and claim.since > state.now - self._seconds]

    def _follow(self) -> None:
        """Claims are in the order in which they came, so the new ones are the last."""
        now, newest = self._state.now, self._newest
        if now >= self._until:
            self._by_row, self._before, self._until = {}, self._by_row, now + self._seconds
        for uid, claim in reversed(self._state.claims.by_uid.items()):
            if uid == newest or claim.since <= now - self._seconds or claim.since < self._followed:
                break
            if self._newest == newest:
                self._newest = uid
            self._by_row.setdefault(claim.row, set()).add(uid)
        self._followed = now
