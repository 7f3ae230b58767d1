"""A policy's error budget: of the seconds in which floors were wanted, one in a thousand may be missed.

Counted over rolling windows in buckets of time, so that what is old falls out and little is kept. `now` is a
clock of seconds that never goes back and goes on over restarts (agent/deficit/budget_file.py). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

ONE_IN: Final = 1000
"""The objective: of this many wanted seconds at most one is missed, so 99.9 % are received."""


class Window(NamedTuple):
    """A rolling window of `seconds`, in buckets of `bucket` seconds; the oldest leaves as a whole."""

    seconds: int
    bucket: int


WINDOWS: Final[Mapping[str, Window]] = {
    "1h": Window(3600, 60),
    "24h": Window(24 * 3600, 15 * 60),
    "28d": Window(28 * 24 * 3600, 6 * 3600),
}
MOST_POLICIES: Final = 200
"""The most policies with a budget; beyond that, those unused for the longest time are forgotten."""


class Spent(NamedTuple):
    """Seconds in a window. `remaining`: of the budget, 1 untouched, 0 used up, below 0 overspent."""

    wanted: float
    deficit: float

    @property
    def remaining(self) -> float:
        """Where nothing was wanted, nothing is spent."""
        return 1.0 - ONE_IN * self.deficit / self.wanted if self.wanted > 0 else 1.0


Bucket = tuple[int, float, float]
"""Its number (time divided by the bucket's seconds), wanted and deficit seconds."""


@dataclass(slots=True)
class Budget:
    """One policy's. `buckets`: by window, the newest last."""

    buckets: dict[str, list[Bucket]] = field(default_factory=lambda: {name: [] for name in WINDOWS})

    def add(self, now: float, wanted: float, deficit: float) -> None:
        """Add seconds that ended now."""
        for name, window in WINDOWS.items():
            kept, number = self.buckets[name], int(now // window.bucket)
            if kept and kept[-1][0] >= number:
                last = kept[-1]
                kept[-1] = (last[0], last[1] + wanted, last[2] + deficit)
            else:
                kept.append((number, wanted, deficit))
                self.buckets[name] = _within(kept, now, window)

    def spent(self, now: float) -> dict[str, Spent]:
        """By window, up to now."""
        found = {}
        for name, window in WINDOWS.items():
            kept = _within(self.buckets[name], now, window)
            found[name] = Spent(sum(one[1] for one in kept), sum(one[2] for one in kept))
        return found

    def last(self) -> float:
        """When something was added last, within one bucket's length; larger is younger."""
        return max(
            (kept[-1][0] * WINDOWS[name].bucket for name, kept in self.buckets.items() if kept), default=0
        )

    def empty(self, now: float) -> bool:
        """Whether no window holds anything any more."""
        return not any(_within(self.buckets[name], now, window) for name, window in WINDOWS.items())


class Budgets:
    """All policies', by namespace/name."""

    def __init__(self, policies: Mapping[str, Budget] | None = None) -> None:
        self.policies: dict[str, Budget] = dict(policies or {})

    def add(self, policy: str, now: float, wanted: float, deficit: float) -> None:
        """Seconds of one of its pods that ended now."""
        if wanted <= 0:
            return
        if policy not in self.policies:
            self._make_room(now)
            self.policies[policy] = Budget()
        self.policies[policy].add(now, wanted, deficit)

    def spent(self, now: float) -> dict[str, dict[str, Spent]]:
        """By policy and window; without policies of which nothing is left to count."""
        return {key: one.spent(now) for key, one in self.policies.items() if not one.empty(now)}

    def _make_room(self, now: float) -> None:
        for key in [key for key, one in self.policies.items() if one.empty(now)]:
            del self.policies[key]
        if len(self.policies) >= MOST_POLICIES:
            del self.policies[min(self.policies, key=lambda key: self.policies[key].last())]


def _within(buckets: Iterable[Bucket], now: float, window: Window) -> list[Bucket]:
    """The buckets that are still within the window, none of them from after now."""
    current = int(now // window.bucket)
    oldest = current - window.seconds // window.bucket
    return [one for one in buckets if oldest < one[0] <= current]
