"""Nodes that have not been ready for a while: what runs there counts as gone, until they are back."""

from __future__ import annotations

from itertools import takewhile
from typing import Final

NOT_READY_SECONDS: Final = 60.0
"""A node that starts again is back by then; pods are evicted from one that is not after 300 s by default
(tolerationSeconds), and what takes their place then must find room."""


class LostNodes:
    """Rows by how long their nodes have not been ready; `rows`: those that count as lost.

    Nodes carry no time that can be compared with ours: it begins with the first `lapse` after the change.
    """

    def __init__(self, after: float) -> None:
        self._after = after
        self._now = 0.0
        self._fresh: dict[int, None] = {}
        self._since: dict[int, float] = {}
        self.rows: set[int] = set()

    def hear(self, row: int, ready: bool) -> None:
        """The node has changed, or is gone: then nothing is waited for."""
        if ready:
            self._fresh.pop(row, None)
            self._since.pop(row, None)
            self.rows.discard(row)
        elif row not in self._since and row not in self.rows:
            self._fresh[row] = None

    def lapse(self, now: float) -> list[int]:
        """Take the time; the rows that are lost since."""
        if now <= self._now:
            return []
        self._now = now
        if not (self._fresh or self._since):
            return []
        self._since |= dict.fromkeys(self._fresh, now)
        self._fresh.clear()
        in_time = takewhile(lambda entry: entry[1] + self._after <= now, self._since.items())
        lost = [row for row, _ in in_time]
        for row in lost:
            del self._since[row]
        self.rows.update(lost)
        return lost
