"""What the nodes' agents report (NodeQoS), while it is fresh: passed on to the ledger, and summed up by
policy.

Work per change, not per verb. A report's age is how long ago we saw its heartbeat change, by our own clock,
so that clocks of different machines need not agree. While we hear nothing ourselves, no node counts as
silent: after an outage of the API server, as after a restart, we begin to count anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from adapters.kubernetes.node_qos import NodeNews
from extender.delivery import Delivery
from ledger.ledger import Ledger
from qos.cluster.needs import Enforcement
from qos.cluster.node_report import PolicyState

log = logging.getLogger(__name__)

STALE_SECONDS: Final = 900.0
"""Three heartbeats; where 10,000 nodes write every 6 minutes, two of those."""
OUTAGE_SECONDS: Final = 120.0
"""Seconds without a word from the API server, which sends a bookmark about once a minute."""
STALE: Final = Enforcement(problem="its agent is silent: its NodeQoS has not changed for 15 minutes")


class _PolicyKey(NamedTuple):
    """A policy that was made again under the same name is another one."""

    key: str
    uid: str


@dataclass(slots=True)
class _Sums:
    pods: int = 0
    applied: int = 0
    verified: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    differing: dict[str, str] = field(default_factory=dict)


class NodeReports:
    """The newest report of each node. `clock`: monotonic. `changed`: something that a status may show."""

    def __init__(self, ledger: Ledger, *, clock: Callable[[], float], changed: Callable[[], None]) -> None:
        self._ledger = ledger
        self._clock = clock
        self._changed = changed
        self._fresh: dict[str, NodeNews] = {}
        self._stale: dict[str, NodeNews] = {}
        self._heard: dict[str, float] = {}
        self._deleted: set[str] = set()
        self._contact = clock()
        self._sums: dict[_PolicyKey, _Sums] = {}

    @property
    def agents(self) -> int:
        """Nodes whose report is fresh."""
        return len(self._fresh)

    def set(self, news: NodeNews) -> None:
        """Take a node's report as it is now."""
        silent = self._stale.get(news.node)
        if silent is not None and silent.heartbeat == news.heartbeat:
            self._stale[news.node] = news
            return
        before = self._fresh.get(news.node)
        if before is not None and before.heartbeat and not news.heartbeat:
            return  # made again after a deletion: what it says comes with the agent's next write
        self._stale.pop(news.node, None)
        self._deleted.discard(news.node)
        if before is None or before.heartbeat != news.heartbeat:
            self._heard.pop(news.node, None)  # the newest last: expire() looks at the oldest only
            self._heard[news.node] = self._clock()
        self._fresh[news.node] = news
        self._count(news.node, before.policies if before else (), news.policies)
        self._ledger.set_enforcement(news.node, news.enforcement)
        if before is None or before.enforcement != news.enforcement:
            self._changed()

    def remove(self, node: str) -> None:
        """The NodeQoS is gone, which its agent notices when it writes next: until then it is silent."""
        if node in self._fresh:
            self._deleted.add(node)
        elif self._stale.pop(node, None) is not None:
            self._say(node, None)

    def node_gone(self, node: str) -> None:
        """The Node itself is gone, and what was said of it."""
        self._stale.pop(node, None)
        self._drop(node)
        self._say(node, None)

    def expire(self, contact: float) -> None:
        """Let go of reports that are too old. `contact`: when the API server last answered, by our clock."""
        if contact - self._contact > OUTAGE_SECONDS:
            log.info("nodeqoses heard again outage_seconds=%.0f", contact - self._contact)
            self._heard = dict.fromkeys(self._heard, contact)
        self._contact = contact
        while self._heard:
            node = next(iter(self._heard))
            if self._heard[node] > contact - STALE_SECONDS:
                return
            deleted, news = node in self._deleted, self._fresh[node]
            self._drop(node)
            if not deleted:
                self._stale[node] = news
            self._say(node, None if deleted else STALE)

    def delivery(self, key: str, uid: str) -> Delivery:
        """What the policy's pods have."""
        sums = self._sums.get(_PolicyKey(key, uid))
        if sums is None:
            return Delivery(self.agents)
        return Delivery(
            self.agents, sums.pods, sums.applied, sums.verified, _first(sums.refused), _first(sums.differing)
        )

    def _drop(self, node: str) -> None:
        self._heard.pop(node, None)
        self._deleted.discard(node)
        news = self._fresh.pop(node, None)
        if news is not None:
            self._count(node, news.policies, ())

    def _say(self, node: str, said: Enforcement | None) -> None:
        self._ledger.set_enforcement(node, said)
        self._changed()

    def _count(self, node: str, before: tuple[PolicyState, ...], now: tuple[PolicyState, ...]) -> None:
        if before == now:
            return
        for state in before:
            self._add(node, state, -1)
        for state in now:
            self._add(node, state, 1)
        self._changed()

    def _add(self, node: str, state: PolicyState, sign: int) -> None:
        key = _PolicyKey(state.key, state.uid)
        sums = self._sums.setdefault(key, _Sums())
        sums.pods += sign * state.pods
        sums.applied += sign * state.applied
        sums.verified += sign * state.verified
        problems = sums.refused if state.applied < state.pods else sums.differing
        if state.message and state.verified < state.pods:
            if sign > 0:
                problems[node] = state.message
            else:
                problems.pop(node, None)
        if sums == _Sums():
            del self._sums[key]


def _first(problems: dict[str, str]) -> str:
    if not problems:
        return ""
    node = min(problems)
    return f"{node}: {problems[node]}"
