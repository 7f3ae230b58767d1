"""Placeholders for slots without a place: they may go to any node, and wait until there is room on one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heapreplace
from itertools import groupby
from typing import Final, NamedTuple

from ledger.report import Holding
from qos.cluster.objects import Demand
from qos.cluster.placeholders import Placeholder, Steps, priority_of, with_roaming
from qos.cluster.refusals import Refusals

MOST: Final = 100
"""Of all policies. kube-scheduler tries them again when a pod goes, anywhere: with 100 of them at 1,000 nodes
2 to 3 ms of its CPU each time.
"""
BY_PRIORITY: Final = MOST // 2
"""So many go to the highest policies that ask. The others are shared by all, whatever their priority: slots
that no node will ever do for must not keep others' from being asked for.
"""
PATIENCE_SECONDS: Final = 1.0
"""How long a slot that has got its place leaves it to one that roams."""


class Ask(NamedTuple):
    """For how many slots of a policy one is to wait; None: nobody knows."""

    priority: int
    slots: int | None


class Roaming:
    """How many are to roam, at which priority, and what becomes of them. `wanted`: for how many slots of a
    policy one is to wait, None while nobody knows. `ordinary`: the priority of pods that name no
    PriorityClass. `clock`: seconds, monotonic.
    """

    def __init__(
        self, wanted: Callable[[str], int | None], ordinary: Callable[[], int], clock: Callable[[], float]
    ) -> None:
        self._wanted = wanted
        self._ordinary = ordinary
        self._clock = clock
        self._asks: dict[str, Ask] = {}
        """Of this round, by policy."""
        self._asked: Mapping[str, Ask] = {}
        """Of the round before."""
        self._shares: Mapping[str, int] = {}
        self._lowest: int | None = None
        self._left: dict[str, float] = {}
        self._welcome: dict[str, set[str]] = {}
        """By policy, UIDs of those that were bound while roaming, and wanted there."""
        self._misplaced = Refusals()
        """By policy: kube-scheduler bound one where the ledger does not want it. It may do so again, so one
        at a time is tried for a while.
        """

    def begin(self) -> None:
        """A round begins: policies are asked about in their order."""
        self._asks = {}

    def end(self) -> bool:
        """A round ends; True when something is to be done in the next one, by what all asked for in this."""
        if self._asks == self._asked:
            return False
        self._asked, ordinary = self._asks, self._ordinary()
        self._shares = shared(self._asked)
        self._lowest = min(
            (one.priority for one in self._asked.values() if one.priority > ordinary), default=None
        )
        return True

    def awaited(self, holding: Holding) -> int | None:
        """For how many slots without a place one is to wait; None while nobody knows, and in the round in
        which that changes: others may ask for more or less, too.
        """
        key = holding.demand.key
        if key not in self._asks:
            most = 1 if self._misplaced.knows(key, self._clock()) else holding.unplaced
            wanted = self._wanted(key)
            slots = None if wanted is None else min(wanted, holding.unplaced, most)
            self._asks[key] = Ask(priority_of(holding.demand), slots)
        return self._shares.get(key) if self._asks[key] == self._asked.get(key) else None

    def priority(self, demand: Demand) -> int:
        """That of the lowest policy above ordinary pods: so that kube-scheduler keeps from those that roam
        what owners and placeholders of any policy are nominated for. Once bound they are replaced.
        """
        own = priority_of(demand)
        return own if self._lowest is None or own <= self._ordinary() else min(own, self._lowest)

    def with_them(self, steps: Steps, holding: Holding, form: str, mine: list[Placeholder]) -> Steps:
        """The steps for a policy's placeholders that have a node, and those for the ones that roam.

        These are bound as soon as there is room, before others, who are lower, and on a node that an
        autoscaler has brought: so the slot's place is left to them for a while.
        """
        key, now = holding.demand.key, self._clock()
        roaming = [one for one in mine if not one.node]
        if self._any_astray(steps, holding, mine):
            self._misplaced.note(key, "misplaced", now)
        awaited = self.awaited(holding)  # also in a pause: its priority counts
        awaited = 0 if self.pauses(key) else awaited
        if not (steps.create and roaming):
            self._left.pop(key, None)
            return with_roaming(steps, roaming, form, awaited, patient=False)
        since = self._left.setdefault(key, now)
        return with_roaming(steps, roaming, form, awaited, patient=now < since + PATIENCE_SECONDS)

    def _any_astray(self, steps: Steps, holding: Holding, mine: list[Placeholder]) -> bool:
        """Whether one goes that was never wanted where it was bound. Others go when slots move, or end."""
        arrived = {one.uid: one.node for one in mine if one.roams and one.bound}
        bound = Counter(one.node for one in mine if one.bound)
        beyond = bound - Counter(dict(holding.nodes))
        welcome = {uid for uid, node in arrived.items() if node not in beyond}
        before = self._welcome.get(holding.demand.key, set(arrived))  # after a restart nobody knows
        self._welcome[holding.demand.key] = welcome = welcome | (before & arrived.keys())
        return any(one.uid in arrived and one.uid not in welcome for one in steps.delete)

    def pauses(self, policy: str) -> bool:
        """Whether none of the policy's roams for a while, because one went astray."""
        return policy in self._misplaced.barred(self._clock())

    def forget(self, policy: str) -> None:
        """The policy is gone."""
        self._left.pop(policy, None)
        self._welcome.pop(policy, None)


def shared(asked: Mapping[str, Ask]) -> dict[str, int]:
    """How many of MOST each policy has of which that is known. asked: by policy, in order."""
    wanted = {key: one.slots for key, one in asked.items() if one.slots is not None}
    given = dict.fromkeys(wanted, 0)
    highest_first = sorted(wanted, key=lambda key: -asked[key].priority)
    for _, alike in groupby(highest_first, key=lambda key: asked[key].priority):
        _give(given, wanted, alike, BY_PRIORITY - sum(given.values()))
    _give(given, wanted, wanted, MOST - sum(given.values()))
    return given


def _give(given: dict[str, int], wanted: Mapping[str, int], keys: Iterable[str], most: int) -> None:
    """So many more at most, each time to who has least and wants more."""
    line = [(given[key], place, key) for place, key in enumerate(keys) if given[key] < wanted[key]]
    heapify(line)
    for _ in range(most):
        if not line:
            return
        _, place, key = line[0]
        given[key] += 1
        if given[key] < wanted[key]:
            heapreplace(line, (given[key], place, key))
        else:
            heappop(line)
