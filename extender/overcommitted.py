"""Nodes that have less room than the placeholders on them: pods came past the scheduler that bound these.

kubelet refuses such a pod, for it counts whom it knew before. So a placeholder stays until it has had time
to: made anew, it would come behind whoever waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from extender.standing import Standing
from ledger.ledger import Ledger

REFUSES_SECONDS: Final = 10.0
"""How long kubelet may take with a pod; one that is there for longer has been admitted."""


class Overcommitted:
    """Where placeholders stay. Each round begins with `begin`, and asks about a policy once."""

    def __init__(self, ledger: Ledger, standing: Standing) -> None:
        self._ledger = ledger
        self._standing = standing
        self._since = 0.0
        self._now: frozenset[str] | None = None
        self._held: dict[str, frozenset[str]] = {}
        """By policy, where holds lay when that was last looked at, and where placeholders stay. Until then,
        after a restart, they lay where placeholders stand.
        """

    def begin(self, now: float) -> None:
        """A round begins. now: seconds, monotonic."""
        self._since = now - REFUSES_SECONDS
        self._now = None

    def lately(self, policy: str, held: Iterable[str], beside: Iterable[str]) -> frozenset[str]:
        """Which of the nodes `beside`, where a policy's placeholders are bound and its holds lay until now,
        pods have come to that kubelet may refuse yet. held: where holds lie.
        """
        found = frozenset(beside)
        if policy in self._held:
            found &= self._held[policy]
        if found:
            if self._now is None:
                self._now = self._ledger.overcommitted(self._standing.bound(), self._since)
            found &= self._now
        self._held[policy] = found.union(held)
        return found

    def forget(self, policy: str) -> None:
        """The policy is gone."""
        self._held.pop(policy, None)
