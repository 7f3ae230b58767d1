"""When a node writes its report: at moments of its own, so that all nodes together stay below a rate. Pure.

The moments of a node are an interval apart, and where in it they lie is drawn by lot. So in any while at most
that share of the nodes can write whose moments lie in it, whatever happens to all of them at once: an edited
policy, a restart of every agent, an outage of the API server. The interval grows with the number of nodes:
RATE writes a second are the most of all nodes together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from qos.cluster.node_report import NodeReport, settled

RATE: Final = 30.0
"""Writes a second of all nodes; half as much again is what chance may add in ten seconds."""
SHORTEST_SECONDS: Final = 2.0
"""Between two writes of one node in a small cluster."""
CALM_SECONDS: Final = 60.0
"""Between two writes when nothing changed but what always changes (usage, pressure): the nearest moment."""
HEARTBEAT_SECONDS: Final = 300.0
"""Between two writes when nothing changed at all: the last moment within it, or the next if none is."""
ASSUMED_NODES: Final = 5000
"""The number of nodes that is assumed where none is known. With 20,000 a moment comes in 11 minutes; a report
counts for 15.
"""
TOLERANCE: Final = 0.2
"""The part of the interval by which it may change unheeded: nodes come and go, and a new lot each time would
make gaps of two intervals.
"""


class Pacing:
    """One node's moments: sleep until `next`, then ask due(). `jitter`: 0 to 1, drawn at each call."""

    def __init__(self, now: float, jitter: Callable[[], float], nodes: int = ASSUMED_NODES) -> None:
        self._jitter = jitter
        self._written: NodeReport | None = None
        self._written_at = float("-inf")
        self.interval = 0.0
        self.next = now
        self.resize(nodes, now)

    def resize(self, nodes: int, now: float) -> None:
        """Take note of the number of nodes. A very different interval draws the lot again: the old was too
        narrow.
        """
        interval = max(SHORTEST_SECONDS, nodes / RATE)
        if abs(interval - self.interval) > TOLERANCE * self.interval:
            self.interval = interval
            self.next = now + interval * self._jitter()

    def due(self, report: NodeReport, now: float) -> bool:
        """A moment: True if the report is to be written. `next` is then the one after it."""
        if self.next <= now:  # moments that were slept through are lost, the others stay where they were
            self.next += self.interval * ((now - self.next) // self.interval + 1)
        since = now - self._written_at
        if self._written is None or since + self.interval > HEARTBEAT_SECONDS:
            return True
        if report == self._written:
            return False
        nearest = since + self.interval / 2 > CALM_SECONDS
        return nearest or settled(report) != settled(self._written)

    def wrote(self, report: NodeReport, now: float) -> None:
        """It is written."""
        self._written, self._written_at = report, now

    def lost(self) -> None:
        """What was written is gone: the next moment writes all again."""
        self._written = None
