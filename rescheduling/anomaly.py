"""When a high node counts as abnormal: after so many reports in a row, so that a peak moves nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Detector:
    """One node. `seen`: the report that was marked last; the same report counts once."""

    seen: float = 0.0
    abnormal: bool = False
    _high: int = 0
    _normal: int = 0

    def mark(self, at: float, *, high: bool, abnormal: int, normal: int) -> None:
        """A report, by its time; how many in a row must be exceeded to become abnormal, and normal again."""
        if at <= self.seen:
            return
        self.seen = at
        self._high = self._high + 1 if high else 0
        self._normal = 0 if high else self._normal + 1
        if self._high > abnormal or (high and abnormal == 1):
            self.abnormal = True
        elif self._normal > normal:
            self.abnormal = False

    def reset(self) -> None:
        """It counts from the beginning: the node was low, or pods of it were moved."""
        self.abnormal = False
        self._high = self._normal = 0
