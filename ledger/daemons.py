"""What DaemonSets have still to place: holds avoid the room that their pods are about to take."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final, TypeAlias

from ledger.table import Table
from qos.cluster.objects import DaemonSet, Pod
from qos.cluster.selectors import admits

EXPECTED_SECONDS: Final = 300.0
"""kube-controller-manager makes 20 objects a second, so 5,000 nodes have their new pods after 250 s."""
_MOST_PLACES: Final = 500
"""The most that one call looks at: a DaemonSet that is new, or that never comes, concerns every node."""

_Place: TypeAlias = tuple[str, int]
"""A DaemonSet's UID and a row."""


class Daemons:
    """DaemonSets and the nodes that still lack their pod, kept in step with the expected columns.

    A pod is expected where its DaemonSet admits the node, the node is ready, and what is free there would
    do; and for EXPECTED_SECONDS only. Time begins when the node becomes ready, the DaemonSet appears or
    changes, or its pod there goes away; it is passed to `lapse`, which also judges the nodes of a DaemonSet
    that is new, some at each call.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._now = 0.0
        self.records: dict[str, DaemonSet] = {}
        self._due: deque[_Place] = deque()
        self._covered: dict[_Place, int] = {}
        self._fresh: dict[_Place, None] = {}
        self._since: dict[_Place, float] = {}
        self._lapsed: set[_Place] = set()
        self._waiting: dict[int, set[str]] = {}
        self._expecting: set[_Place] = set()

    @property
    def expects(self) -> bool:
        """True when there is a node where a pod is expected."""
        return bool(self._expecting)

    @property
    def unjudged(self) -> bool:
        """True while there is a node of which it is not known yet whether a new DaemonSet's pod fits."""
        return bool(self._due)

    def set(self, daemon_set: DaemonSet) -> bool:
        """Take a DaemonSet as it is now; True when something changed."""
        if self.records.get(daemon_set.uid) == daemon_set:
            return False
        self.remove(daemon_set.uid)
        self.records[daemon_set.uid] = daemon_set
        self._due.extend((daemon_set.uid, row) for row in self._table.index.values())
        return True

    def remove(self, uid: str) -> bool:
        """Expect its pods no longer; True when it was there."""
        daemon_set = self.records.pop(uid, None)
        if daemon_set is None:
            return False
        rows = [row for row in self._table.index.values() if (uid, row) in self._expecting]
        self._expecting.difference_update((uid, row) for row in rows)
        self._table.expect(rows, daemon_set.requests, -1)
        for row in self._table.index.values():
            self._end(daemon_set, row)
        return True

    def judge_row(self, row: int) -> None:
        """The node has changed."""
        for daemon_set in self.records.values():
            self._judge(daemon_set, row)

    def drop_row(self, row: int) -> None:
        """The node is gone."""
        for daemon_set in self.records.values():
            self._end(daemon_set, row)

    def cover(self, pod: Pod, row: int, sign: int) -> None:
        """A pod is on the node (1), or has left it (-1): what is free there has changed."""
        if pod.controller is not None and pod.controller.kind == "DaemonSet":
            self._cover((pod.controller.uid, row), sign)
        if row in self._waiting:
            for uid in tuple(self._waiting[row]):
                self._measure(self.records[uid], row)

    def lapse(self, now: float) -> bool:
        """Take the time; True when a node may have more room, because a pod that never came is given up."""
        for _ in range(min(len(self._due), _MOST_PLACES)):
            uid, row = self._due.popleft()
            if uid in self.records:
                self._judge(self.records[uid], row)
        if now <= self._now:
            return False
        self._now = now
        if self._fresh:
            self._since |= dict.fromkeys(self._fresh, now)
            self._fresh.clear()
        if next(iter(self._since.values()), now) + EXPECTED_SECONDS > now:
            return False
        oldest = islice(self._since.items(), _MOST_PLACES)
        due = [place for place, since in oldest if since + EXPECTED_SECONDS <= now]
        grown = False
        for place in due:
            grown |= place in self._expecting
            self._end(self.records[place[0]], place[1])
            self._lapsed.add(place)
        return grown

    def _cover(self, place: _Place, sign: int) -> None:
        count = self._covered.get(place, 0) + sign
        if count > 0:
            self._covered[place] = count
        else:
            self._covered.pop(place, None)
        daemon_set = self.records.get(place[0])
        if daemon_set is not None:
            self._judge(daemon_set, place[1])

    def _judge(self, daemon_set: DaemonSet, row: int) -> None:
        node, place = self._table.nodes[row], (daemon_set.uid, row)
        if node is None or not node.ready or place in self._covered or not admits(daemon_set.where, node):
            self._end(daemon_set, row)
        elif place not in self._lapsed:
            if place not in self._since and place not in self._fresh:
                self._fresh[place] = None
                self._waiting.setdefault(row, set()).add(daemon_set.uid)
            self._measure(daemon_set, row)

    def _measure(self, daemon_set: DaemonSet, row: int) -> None:
        """Expect the pod as long as it fits beside what the node has."""
        fits = self._fits(daemon_set, row)
        if fits != ((daemon_set.uid, row) in self._expecting):
            self._expect(daemon_set, row, 1 if fits else -1)

    def _fits(self, daemon_set: DaemonSet, row: int) -> bool:
        dims, free = self._table.dims, self._table.free
        return all(
            (dim := dims.get(name)) is not None and free[dim, row] >= amount
            for name, amount in daemon_set.requests.items()
            if amount > 0
        )

    def _end(self, daemon_set: DaemonSet, row: int) -> None:
        """The pod is there, will not come, or is no longer waited for."""
        place = (daemon_set.uid, row)
        self._lapsed.discard(place)
        if place not in self._since and place not in self._fresh:
            return
        self._since.pop(place, None)
        self._fresh.pop(place, None)
        self._waiting[row].discard(daemon_set.uid)
        if not self._waiting[row]:
            del self._waiting[row]
        if place in self._expecting:
            self._expect(daemon_set, row, -1)

    def _expect(self, daemon_set: DaemonSet, row: int, sign: int) -> None:
        place = (daemon_set.uid, row)
        if sign > 0:
            self._expecting.add(place)
        else:
            self._expecting.discard(place)
        self._table.expect(row, daemon_set.requests, sign)
