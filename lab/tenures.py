"""How many slots policies promise whose slots are used up, or outlive their pods: from what became of pods.

Written apart from qos.cluster.remembered on purpose, and never more than it can be: of slots that are used up
it counts every owner that has ended, of those that outlive their pods no more than the status says.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from qos.cluster.policy import Policy


@dataclass(slots=True)
class _Tenure:
    """`released`: when the slots of pods that ended are let go at the earliest; `slots`: promised last."""

    owners: set[str] = field(default_factory=set)
    released: list[float] = field(default_factory=list)
    slots: int = 0


class Tenures:
    """What became of each policy's owners. Times in seconds since the epoch."""

    def __init__(self) -> None:
        self._of: dict[str, _Tenure] = {}

    def see(self, policy: Policy, owners: set[str], now: float) -> None:
        """These of its pods are bound now, by UID; its slots are used up, or outlive their pods."""
        one = self._of.setdefault(policy.key, _Tenure())
        came, left = owners - one.owners, one.owners - owners
        one.owners = set(owners)
        if policy.once:
            one.released += [now + policy.delay] * len(left)
            return
        one.released = [when for when in one.released if when > now]
        for uid in left:
            if uid in policy.remembered.fillers and len(owners) + len(one.released) < one.slots:
                one.released.append(now + policy.delay)
        del one.released[: len(came)]

    def slots(self, policy: Policy, asked: int, now: float) -> int:
        """How many slots it promises, of which it asks for so many."""
        one = self._of.get(policy.key)
        if one is None or not policy.remembers:
            self.forget(policy.key)  # an edit may have ended it
            return asked
        if policy.once:
            return max(0, asked - sum(when <= now for when in one.released))
        lasting = sum(when > now for when in one.released)
        said = len(policy.remembered.fillers) + len(policy.remembered.outliving)
        one.slots = max(asked, min(said, min(len(one.owners), one.slots) + lasting))
        return one.slots

    def moments(self) -> Iterable[float]:
        """When a slot is let go, past or to come."""
        return (when for one in self._of.values() for when in one.released)

    def forget(self, key: str) -> None:
        """The policy is gone, or its slots live no longer than their pods."""
        self._of.pop(key, None)
