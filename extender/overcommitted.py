"""Nodes that have less room than the placeholders on them: pods came past the scheduler that bound these.

kubelet refuses such a pod, for it counts whom it knew before. So a placeholder stays until it has had time
to: made anew, it would come behind whoever waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from extender.standing import Standing
from ledger.ledger import Ledger

REFUSES_SECONDS: Final = 10.0
"""How long kubelet may take; a node on which it refuses nobody has shrunk, or has no kubelet."""


class Overcommitted:
    """Since when nodes are. A round asks about each of them that matters, or it is forgotten."""

    def __init__(self, ledger: Ledger, standing: Standing) -> None:
        self._ledger = ledger
        self._standing = standing
        self._bound: dict[str, Counter[str]] | None = None
        self._since: dict[str, float] = {}
        self._asked: dict[str, float] = {}
        self._held: dict[str, frozenset[str]] = {}
        """By policy, where holds lay when that was last looked at, and where placeholders stay."""

    def begin(self) -> None:
        """A round begins."""
        self._bound = None
        self._since, self._asked = self._asked, {}

    def lately(self, policy: str, held: Iterable[str], beside: Iterable[str], now: float) -> set[str]:
        """Which of the nodes `beside`, where a policy's placeholders are bound and no holds any more, are it,
        but not for longer than kubelet may take. held: where holds lie now. now: seconds, monotonic.
        """
        found, before = set[str](), self._held.get(policy, frozenset())
        for node in before.intersection(beside):
            if self._bound is None:
                self._bound = self._standing.bound()
            if self._ledger.has_room_for(node, self._bound.get(node, {})):
                continue
            since = self._asked[node] = self._since.get(node, now)
            if now - since < REFUSES_SECONDS:
                found.add(node)
        self._held[policy] = frozenset(held) | found
        return found

    def forget(self, policy: str) -> None:
        """The policy is gone."""
        self._held.pop(policy, None)
