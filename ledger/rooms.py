"""Who makes room for a pod that waits: kube-scheduler, which preempts, or our leader, which evicts.

Never both: each decides in one step on one loop, and says so here in the same step. Who comes first has the
pod.
"""

from __future__ import annotations

from typing import Final

from ledger.offers import EVICTION_SECONDS

LEADER_SECONDS: Final = 30.0
"""How long a leader that says nothing more of a pod has it: longer than a call to a slow API server takes."""


class Rooms:
    """By the UID of the pod that waits, and as of when."""

    def __init__(self) -> None:
        self._evicting: dict[str, float] = {}
        self._preempting: dict[str, float] = {}

    def evict(self, uid: str, now: float) -> bool:
        """The leader begins, or goes on. False: kube-scheduler preempts, and what it evicts shows within some
        seconds.
        """
        if self.preempts(uid, now) and not self.evicts(uid, now):
            return False
        self._evicting[uid] = now
        return True

    def evicts(self, uid: str, now: float) -> bool:
        """Whether the leader has the pod."""
        return now - self._evicting.get(uid, -LEADER_SECONDS) < LEADER_SECONDS

    def done(self, uid: str) -> None:
        """The leader evicts for it no longer."""
        self._evicting.pop(uid, None)

    def preempt(self, uid: str, now: float) -> None:
        """kube-scheduler was answered whom it may evict for the pod."""
        self._preempting[uid] = now

    def preempts(self, uid: str, now: float) -> bool:
        """Whether it was, so lately that not all of it need show."""
        return now - self._preempting.get(uid, -EVICTION_SECONDS) < EVICTION_SECONDS

    def forget(self, uid: str) -> None:
        """The pod waits no more."""
        self._evicting.pop(uid, None)
        self._preempting.pop(uid, None)
