"""What DaemonSets have still to place: a new node takes no hold where their pods are about to come."""

from __future__ import annotations

from ledger.table import Table
from qos.cluster.objects import DaemonSet, Pod
from qos.cluster.selectors import admits


class Daemons:
    """DaemonSets and the nodes that still lack their pod, kept in step with the expected columns."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.records: dict[str, DaemonSet] = {}
        self._covered: dict[tuple[str, int], int] = {}
        self._expecting: set[tuple[str, int]] = set()

    def set(self, daemon_set: DaemonSet) -> bool:
        """Take a DaemonSet as it is now; True when something changed."""
        if self.records.get(daemon_set.uid) == daemon_set:
            return False
        self.remove(daemon_set.uid)
        self.records[daemon_set.uid] = daemon_set
        for row in self._table.index.values():
            self._judge(daemon_set, row)
        return True

    def remove(self, uid: str) -> bool:
        """Expect its pods no longer; True when it was there."""
        daemon_set = self.records.pop(uid, None)
        if daemon_set is None:
            return False
        for key in [key for key in self._expecting if key[0] == uid]:
            self._expect(daemon_set, key[1], -1)
        return True

    def judge_row(self, row: int) -> None:
        """The node has changed."""
        for daemon_set in self.records.values():
            self._judge(daemon_set, row)

    def drop_row(self, row: int) -> None:
        """The node is gone."""
        for daemon_set in self.records.values():
            if (daemon_set.uid, row) in self._expecting:
                self._expect(daemon_set, row, -1)

    def cover(self, pod: Pod, row: int, sign: int) -> None:
        """A pod is on the node (1), or has left it (-1)."""
        if pod.controller is None or pod.controller.kind != "DaemonSet":
            return
        key = (pod.controller.uid, row)
        count = self._covered.get(key, 0) + sign
        if count > 0:
            self._covered[key] = count
        else:
            self._covered.pop(key, None)
        daemon_set = self.records.get(pod.controller.uid)
        if daemon_set is not None:
            self._judge(daemon_set, row)

    def _judge(self, daemon_set: DaemonSet, row: int) -> None:
        node = self._table.nodes[row]
        key = (daemon_set.uid, row)
        wanted = node is not None and key not in self._covered and admits(daemon_set.where, node)
        if wanted != (key in self._expecting):
            self._expect(daemon_set, row, 1 if wanted else -1)

    def _expect(self, daemon_set: DaemonSet, row: int, sign: int) -> None:
        key = (daemon_set.uid, row)
        if sign > 0:
            self._expecting.add(key)
        else:
            self._expecting.discard(key)
        self._table.add("expected", row, daemon_set.requests, sign)
