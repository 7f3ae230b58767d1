"""Nodes whose kubelet refuses or evicts placeholders: how long none is made there, longer each time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 300.0
CALM_SECONDS: Final = 60.0
"""A node that has refused nobody for so long after its pause, or as long as that was, is as good as new."""


@dataclass(slots=True)
class _Node:
    reason: str
    pause: float
    until: float

    @property
    def good_from(self) -> float:
        """When it is as good as new."""
        return self.until + max(CALM_SECONDS, self.pause)


class Refusals:
    """What kubelet refused, by node; times are seconds on the caller's clock."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}

    def note(self, node: str, reason: str, now: float) -> bool:
        """One of our placeholders came to nothing there; True when a pause begins.

        Those that were refused during a pause were made before it: it is no longer for them.
        """
        known = self._nodes.get(node)
        if known is not None and now < known.until:
            known.reason = reason
            return False
        pause = FIRST_SECONDS
        if known is not None and now < known.good_from:
            pause = min(LONGEST_SECONDS, 2 * known.pause)
        self._nodes[node] = _Node(reason, pause, now + pause)
        return True

    def bars(self, node: str, now: float) -> bool:
        """Whether none is to be made on this node now."""
        known = self._nodes.get(node)
        return known is not None and now < known.until

    def knows(self, node: str, now: float) -> bool:
        """Whether it has refused any, and is not as good as new yet."""
        known = self._nodes.get(node)
        return known is not None and now < known.good_from

    def forget(self, now: float) -> None:
        """Leave out nodes that are as good as new."""
        for name, one in [*self._nodes.items()]:
            if now >= one.good_from:
                del self._nodes[name]

    def barred(self, now: float) -> Mapping[str, str]:
        """Nodes on which none is to be made now, and kubelet's reason."""
        self.forget(now)
        return {name: one.reason for name, one in self._nodes.items() if now < one.until}
