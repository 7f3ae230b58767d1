"""Nodes that have less room than the placeholders on them: pods came past the scheduler that bound these.

kubelet refuses such a pod, for it counts whom it knew before. So a placeholder stays until it has had time
to: made anew, it would come behind whoever waits. Meanwhile nobody fits there, owners neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from extender.standing import Standing
from ledger.ledger import Ledger

REFUSES_SECONDS: Final = 5.0
"""How long kubelet may take with a pod: less than an owner waits for its place."""


class Overcommitted:
    """Where placeholders stay. `kept`: whether they keep a policy. `nodes`: by policy, until they go."""

    def __init__(self, ledger: Ledger, standing: Standing, kept: Callable[[str], bool]) -> None:
        self.nodes: dict[str, frozenset[str]] = {}
        self._ledger = ledger
        self._standing = standing
        self._kept = kept
        self._latecomers = ledger.latecomers(REFUSES_SECONDS)
        self._held: dict[str, frozenset[str]] = {}
        """By policy, where holds lay when that was last looked at, and where placeholders stay. Until then,
        after a restart, they lay where placeholders stand.
        """

    def look(
        self, policy: str, held: Iterable[str], beside: Iterable[str], asking: Iterable[str] = ()
    ) -> frozenset[str]:
        """Which of the nodes `beside`, where a policy's placeholders are bound and its holds lay until they
        had to go, pods have come to that kubelet may refuse yet. held: where holds lie. asking: where others
        of its placeholders are about to be bound.
        """
        beside = frozenset(beside)
        lay = self._held.get(policy, beside)
        found = frozenset(node for node in beside & lay if self._took_room(node))
        self._held[policy] = (lay & beside.union(asking)).union(held)
        stood = self.nodes.pop(policy, frozenset()) & beside
        if found or stood:
            self.nodes[policy] = found | stood
        return found

    def _took_room(self, node: str) -> bool:
        return self._latecomers.came_to(node) and self._latecomers.took_room(node, self._there(node))

    def _there(self, node: str) -> dict[str, int]:
        """What takes room there beside pods, until now at least: placeholders, and holds of other keepers."""
        held = self._ledger.holds_on(node)
        others = {policy: slots for policy, slots in held.items() if not self._kept(policy)}
        return {**others, **self._standing.bound_on(node)}

    def forget(self, policy: str) -> None:
        """The policy is gone."""
        self._held.pop(policy, None)
        self.nodes.pop(policy, None)
