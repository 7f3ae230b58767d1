"""Judges a history of rescheduling by the truth alone: it asks nothing of what rescheduling believes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from rescheduling.records import Migration
from simulation.load.cluster import CPU, LAGS, MEMORY, TICK, Cluster

LOOKED_BACK: Final = 4.0 * TICK
"""A decision may rest on a report that is so old, and a load that came then is not in it."""


class BrokenError(Exception):
    """A rule of the history is broken; the message says which and where."""


@dataclass(slots=True)
class Judge:
    """`moves`: how many began since the load stays; `latest`: when the last of them did."""

    cluster: Cluster
    quiet: bool = False
    moves: int = 0
    latest: float = 0.0
    lines: Counter[str] = field(default_factory=Counter)
    _arrived: dict[str, str] = field(default_factory=dict)
    _decided: dict[str, float] = field(default_factory=dict)
    _grown: list[tuple[float, dict[str, dict[str, float]]]] = field(default_factory=list)
    _hot: set[str] = field(default_factory=set)

    def hush(self) -> None:
        """From now on no load changes and nothing fails."""
        self.quiet = True
        self._hot = {name for name in self.cluster.nodes if self._is_hot(name)}

    def begins(self, one: Migration) -> None:
        """A migration is decided. BrokenError."""
        cluster, limits = self.cluster, self.cluster.settings.limits
        line = cluster.pods[one.uid].line
        others = [each.migration for each in cluster.under_way.values()]
        for node in (one.source, one.target):
            busy = sum(node in (each.source, each.target) for each in others)
            self._must(busy < limits.node, f"{busy} migrations of {node} are under way beside {one.pod}")
            at = cluster.reports[node].at
            self._must(cluster.now - at <= cluster.settings.expiry, f"{node} is silent, and {one.pod} moves")
        own = sum(each.namespace == one.namespace for each in others)
        self._must(limits.namespace is None or own < limits.namespace, f"{own} in {one.namespace} under way")
        began = sum(cluster.now - at < 60.0 for at in cluster.begun)
        self._must(began < limits.minute, f"{began} have begun in a minute")
        running = cluster.pods[one.uid].running
        kind = running.pod.controller.kind if running.pod.controller else ""
        self._must(kind != "DaemonSet" and not running.floor, f"{one.pod} must never move")
        if self._arrived.get(line) == one.source:
            self._must(self._changed(one.source), f"{one.pod} moves again from {one.source}: nothing changed")
        self._decided[one.target] = cluster.now
        if self.quiet:
            self.moves, self.latest = self.moves + 1, cluster.now
            self.lines[line] += 1
            self._must(self.lines[line] == 1, f"{one.pod} moves twice though no load changes")

    def arrives(self, line: str, node: str) -> None:
        """A migration has ended well."""
        self._arrived[line] = node

    def look(self) -> None:
        """After each tick. BrokenError."""
        cluster = self.cluster
        self._grown.append((cluster.now, {node: dict(own) for node, own in cluster.grown.items()}))
        if self.quiet and not cluster.settings.pools[0].deviation:
            for name in cluster.nodes:
                self._must(name in self._hot or not self._is_hot(name), f"{name} became hot by migrations")

    def _changed(self, node: str) -> bool:
        """Whether since the last decision to move something here as much load came as counts as a change."""
        cluster = self.cluster
        since = self._decided[node] - LOOKED_BACK
        before: dict[str, float] = {}
        for at, grown in self._grown:
            if at > since:
                break
            before = grown.get(node, {})
        now = cluster.grown.get(node, {})
        least = cluster.settings.change - 2 * cluster.noise - 0.1
        return any(now.get(name, 0.0) - before.get(name, 0.0) >= least for name in (CPU, MEMORY))

    def _is_hot(self, node: str) -> bool:
        high = self.cluster.settings.pools[0].all.high
        return any(used > high[name] for name, used in self.cluster.percent(node).items())

    def _must(self, held: bool, why: str) -> None:
        if not held:
            raise BrokenError(f"at {self.cluster.now:.0f}: {why}")


assert LAGS * TICK <= LOOKED_BACK
