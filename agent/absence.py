"""Containers that do not run: since when, so that what they share with others waits for them no longer."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from agent.state import ContainerKey

ABSENT_SECONDS: Final = 60.0
"""After which a container that no status has named as running does not run: kubelet is a second or two late.
"""


class Absences:
    """Remembers them from look to look. A container that crashes again and again is absent throughout: it has
    come back only when it ran for as long; of many such ones some have always just ended.
    """

    def __init__(self) -> None:
        self._since: dict[ContainerKey, float] = {}
        self._back: dict[ContainerKey, float] = {}
        """Since when those run that were absent."""

    def see(self, absent: Collection[ContainerKey], now: float) -> None:
        """Those that do not run now."""
        for key in list(self._since):
            if key in absent:
                self._back.pop(key, None)
            elif now - self._back.setdefault(key, now) >= ABSENT_SECONDS:
                del self._since[key], self._back[key]
        for key in absent:
            self._since.setdefault(key, now)

    def is_over(self, key: ContainerKey, now: float) -> bool:
        """Whether the time in which this one is waited for is over."""
        since = self._since.get(key)
        return since is not None and now - since >= ABSENT_SECONDS

    def left(self, now: float) -> float | None:
        """Seconds until one more of those that do not run is waited for no more; None: none is."""
        waits = [since + ABSENT_SECONDS - now for key, since in self._since.items() if key not in self._back]
        return min([one for one in waits if one > 0], default=None)
