"""Placeholders for slots without a place: they may go to any node, and wait until there is room on one."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from ledger.report import Holding
from qos.cluster.placeholders import Placeholder, Steps, with_roaming
from qos.cluster.refusals import Refusals

MOST: Final = 100
"""Of all policies. kube-scheduler tries them again when a pod goes, anywhere: with 100 of them at 1,000 nodes
2 to 3 ms of its CPU each time.
"""
PATIENCE_SECONDS: Final = 1.0
"""How long a slot that has got its place leaves it to one that roams."""


class Roaming:
    """How many are to roam, and what becomes of them. `wanted`: for how many slots of a policy one
    is to wait. `clock`: seconds, monotonic.
    """

    def __init__(self, wanted: Callable[[str], int], clock: Callable[[], float]) -> None:
        self._wanted = wanted
        self._clock = clock
        self._awaited: dict[str, int] = {}
        self._asked: dict[str, int] = {}
        self._most = self._share = MOST
        self._left: dict[str, float] = {}
        self._misplaced = Refusals()
        """By policy: kube-scheduler bound one where the ledger does not want it. It may do so again, so one
        at a time is tried for a while.
        """

    def begin(self) -> None:
        """A round begins: policies are asked about in their order.

        None has more than its share by what all asked for in the round before: slots that no node will ever
        do for must not keep others' from being asked for.
        """
        self._share = _share(self._asked.values())
        self._awaited.clear()
        self._asked.clear()
        self._most = MOST

    def awaited(self, holding: Holding) -> int:
        """For how many slots without a place one is to wait."""
        key = holding.demand.key
        if key not in self._awaited:
            most = 1 if self._misplaced.knows(key, self._clock()) else holding.unplaced
            self._asked[key] = min(self._wanted(key), holding.unplaced, most)
            self._awaited[key] = min(self._asked[key], self._share, self._most)
            self._most -= self._awaited[key]
        return self._awaited[key]

    def with_them(self, steps: Steps, holding: Holding, form: str, mine: list[Placeholder]) -> Steps:
        """The steps for a policy's placeholders that have a node, and those for the ones that roam.

        These are bound as soon as there is room, before others, who are lower, and on a node that an
        autoscaler has brought: so the slot's place is left to them for a while.
        """
        key, now = holding.demand.key, self._clock()
        roaming = [one for one in mine if not one.node]
        if any(one.roams and one.bound for one in steps.delete):
            self._misplaced.note(key, "misplaced", now)
        if not (steps.create and roaming):
            self._left.pop(key, None)
            return with_roaming(steps, roaming, form, self._now(holding), patient=False)
        since = self._left.setdefault(key, now)
        return with_roaming(steps, roaming, form, self._now(holding), patient=now < since + PATIENCE_SECONDS)

    def _now(self, holding: Holding) -> int:
        return 0 if self.pauses(holding.demand.key) else self.awaited(holding)

    def pauses(self, policy: str) -> bool:
        """Whether none of the policy's roams for a while, because one went astray."""
        return policy in self._misplaced.barred(self._clock())

    def forget(self, policy: str) -> None:
        """The policy is gone."""
        self._left.pop(policy, None)


def _share(asked: Collection[int]) -> int:
    """The most that each may have for all to have no more than MOST; 1 at the least."""
    left, share = MOST, MOST
    for done, one in enumerate(sorted(asked)):
        share = max(1, left // (len(asked) - done))
        if one > share:
            return share
        left -= one
    return MOST
