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
        self._unknown: set[str] | None = None
        self._standing, self._changed = standing, changed

    def waits(self, one: Account) -> bool:
        """Whether placeholders wait for what is unplaced of this policy."""
        return isinstance(one.resolved, Demand) and self._standing(one.policy) and may_roam(one.resolved)

    def follow(self, accounts: Iterable[Account]) -> None:
        """Take what all policies lack now. Of one that the ledger is still about to place nothing changes."""
        slots, unknown = dict[str, int](), set[str]()
        for one in accounts:
            key = one.policy.key
            if one.report is not None and self.waits(one):
                slots[key] = replicas(one.report.held, one.lacking, one.waiting, standing=True)
            elif one.report is None and key in self.slots:
                slots[key] = self.slots[key]
            elif one.report is None:
                unknown.add(key)
        if (slots, unknown) != (self.slots, self._unknown):
            self.slots, self._unknown = slots, unknown
            self._changed()

    def wanted(self, policy: str) -> int | None:
        """For how many slots of a policy one is to wait; None while nobody knows, as after a start."""
        known = self._unknown is not None and policy not in self._unknown
        return self.slots.get(policy, 0) if known else None
