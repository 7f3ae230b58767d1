"""For how many unplaced slots of each policy a placeholder waits, to be bound wherever there is room again.

kube-scheduler binds it before pods that are lower, and an autoscaler sees a pod that fits nowhere. Were there
none, pods that wait on a full cluster would take each place before a placeholder could be made for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from extender.buffering import Account, replicas
from qos.cluster.objects import Demand
from qos.cluster.placeholders import may_roam
from qos.cluster.policy import Policy


class Awaiting:
    """`standing`: whether placeholders keep a policy. `changed` is called when `slots`, by policy, do."""

    def __init__(self, *, standing: Callable[[Policy], bool], changed: Callable[[], None]) -> None:
        self.slots: Mapping[str, int] = {}
        self._standing, self._changed = standing, changed

    def waits(self, one: Account) -> bool:
        """Whether placeholders wait for what is unplaced of this policy."""
        return isinstance(one.resolved, Demand) and self._standing(one.policy) and may_roam(one.resolved)

    def follow(self, accounts: Iterable[Account]) -> None:
        """Take what all policies lack now. Of one that the ledger is still about to place nothing changes."""
        slots = {one.policy.key: self._of(one) for one in accounts if self.waits(one)}
        if slots != self.slots:
            self.slots = slots
            self._changed()

    def _of(self, one: Account) -> int:
        if one.report is None:
            return self.slots.get(one.policy.key, 0)
        return replicas(one.report, one.waiting, standing=True)
