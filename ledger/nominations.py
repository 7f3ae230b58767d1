"""Holes: what nodes keep for pods that are nominated there, or are going to be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from ledger.offers import EVICTION_SECONDS
from ledger.table import Columns, Rows, Table, reshaped
from qos.cluster.objects import Pod


class Nominations:
    """Pods nominated to a node: the hole their victims leave is theirs (trap T14).

    `by_priority`: what those of each priority wait for, in columns; without those that are charged there as
    pods in flight: `charged` says which. `refused`: those that filter refused in the warm-up, which are
    woken after it, or bind while victims were there; by UID, when the one ends or the other was:
    their victims must not have ended in vain.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self.by_uid: dict[str, tuple[int, Pod]] = {}
        self.charged: Callable[[Pod, int], bool] = lambda _pod, _row: False
        self._covered: set[str] = set()
        self._foreseen: dict[str, float] = {}
        self.refused: dict[str, float] = {}
        self.by_priority: dict[int, Columns] = {}
        self._counts: Counter[int] = Counter()

    def resize(self) -> None:
        """Follow the table's growth."""
        for priority, columns in self.by_priority.items():
            self.by_priority[priority] = np.asarray(reshaped(columns, self._table.shape), dtype=np.int64)

    def put(self, pod: Pod, node: str) -> bool:
        """Keep a hole for a pod; True when it is a new one, or was only foreseen."""
        there = self.by_uid.get(pod.uid)
        if there is not None:
            row, before = there
            same = before.requests == pod.requests and before.priority == pod.priority
            shown = before.nominated_node_name == pod.nominated_node_name
            if self._table.names[row] == node and same and shown:
                self.by_uid[pod.uid] = (row, pod)
                return False
            self.drop(pod.uid)
        row = self._table.row(node)
        self._count(row, pod, 1)
        self.by_uid[pod.uid] = (row, pod)
        self.follow(pod.uid)
        return True

    def drop(self, uid: str) -> bool:
        """Let the hole go; True when there was one."""
        there = self.by_uid.pop(uid, None)
        if there is None:
            return False
        row, pod = there
        self.refused.pop(uid, None)
        if uid in self._covered:
            self._covered.discard(uid)
        else:
            self._count(row, pod, -1)
        self._table.recycle(row)
        return True

    def follow(self, uid: str) -> None:
        """What the pod is charged has changed, or whether it waits."""
        there = self.by_uid.get(uid)
        covered = there is not None and self.charged(there[1], there[0])
        if there is None or covered == (uid in self._covered):
            return
        self._count(*there, -1 if covered else 1)
        (self._covered.add if covered else self._covered.discard)(uid)

    def follow_all(self) -> None:
        """Likewise, of all that wait."""
        for uid in self.by_uid:
            self.follow(uid)

    def foresee(self, pod: Pod, node: str, now: float) -> bool:
        """Keep a hole for a pod that will be nominated there, most likely; True when it is a new one."""
        self._foreseen[pod.uid] = now
        return self.put(pod, node)

    def foresee_again(self, pod: Pod, now: float) -> None:
        """Its nomination was taken back, and will be made again: go on keeping the hole, if there is one."""
        if pod.uid in self.by_uid:
            self.foresee(pod, self._table.names[self.by_uid[pod.uid][0]], now)

    def is_foreseen(self, uid: str) -> bool:
        """Whether the hole is kept for a nomination that has not shown yet."""
        there = self.by_uid.get(uid)
        return there is not None and uid in self._foreseen and not there[1].nominated_node_name

    def refuse(self, uid: str, since: float) -> bool:
        """It is refused for a while: kube-scheduler will take its nomination back. False: it has none."""
        if uid in self.by_uid:
            self.refused[uid] = since
        return uid in self.by_uid

    def keep(self, pod: Pod) -> None:
        """The nomination of such a pod was taken back: keep its hole, as one that is foreseen since then, or
        since a victim of it was last seen to end.
        """
        since = max(self.refused[pod.uid], self._foreseen.get(pod.uid, 0.0))
        self.foresee(pod, self._table.names[self.by_uid[pod.uid][0]], since)
        self.refused[pod.uid] = since

    def lapse(self, now: float, victims_end: Callable[[str], bool]) -> bool:
        """Let go the holes of nominations that did not come; True when there were any. victims_end: whether a
        pod's victims are being deleted, by its UID.
        """
        if not self._foreseen:
            return False
        for uid in self._foreseen.keys() & self.refused.keys():
            if victims_end(uid):
                self._foreseen[uid] = max(now, self._foreseen[uid])
        late = [uid for uid, since in self._foreseen.items() if now - since > EVICTION_SECONDS]
        vain = [uid for uid in late if uid in self.by_uid and not self.by_uid[uid][1].nominated_node_name]
        for uid in late:
            del self._foreseen[uid]
        for uid in vain:
            self.drop(uid)
        return bool(vain)

    def fill(self, resources: AbstractSet[str]) -> None:
        """Keep the holes in columns that are new."""
        self._table.changes += 1
        dims = self._table.dims
        for columns in self.by_priority.values():
            columns[[dims[name] for name in resources]] = 0
        for row, pod in (one for uid, one in self.by_uid.items() if uid not in self._covered):
            for name in pod.requests.keys() & resources:
                self._table.nominated[dims[name], row] += pod.requests[name]
                self.by_priority[pod.priority][dims[name], row] += pod.requests[name]

    def _count(self, row: int, pod: Pod, sign: int) -> None:
        self._table.nominate(row, pod.requests, sign)
        columns = self.by_priority.get(pod.priority)
        if columns is None:
            columns = self.by_priority[pod.priority] = np.zeros(self._table.shape, dtype=np.int64)
        for name, amount in pod.requests.items():
            dim = self._table.dims.get(name)
            if dim is not None:
                columns[dim, row] += sign * amount
        self._counts[pod.priority] += sign
        if not self._counts[pod.priority]:
            del self.by_priority[pod.priority], self._counts[pod.priority]

    def above(self, uid: str, priority: int, dims: Sequence[int], rows: Rows) -> Columns | None:
        """What other pods of at least this priority wait for, [dims, rows]; None: nothing anywhere."""
        if not self.by_priority:
            return None
        pick = np.ix_(np.asarray(dims, dtype=np.intp), rows)
        total: Columns | None = None
        for level, columns in self.by_priority.items():
            if level >= priority:
                total = columns[pick] if total is None else total + columns[pick]
        own = self.by_uid.get(uid)
        counted = own is not None and uid not in self._covered
        if total is not None and own is not None and counted and own[1].priority >= priority:
            names = [self._table.resources[dim] for dim in dims]
            mine = np.asarray([own[1].requests.get(name, 0) for name in names], dtype=np.int64)
            total[:, rows == own[0]] -= mine[:, None]
        return total
