"""Placeholders for slots without a place: they may go to any node, and wait until there is room on one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from heapq import heapify, heappop, heapreplace
from itertools import groupby
from typing import Final, NamedTuple

from ledger.report import Holding
from qos.cluster.objects import Demand
from qos.cluster.placeholders import Placeholder, Steps, priority_of, with_roaming
from qos.cluster.refusals import CALM_SECONDS, Refusals

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


_UNKNOWN: Final = Ask(0, None)


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
        self._seen: dict[int, float] = {}
        """When there was a policy of that priority, above ordinary pods."""
        self._ladder: Mapping[int, int] = {}
        """The priority of those that roam, by their policy's."""
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
        ordinary, now = self._ordinary(), self._clock()
        self._seen |= {one.priority: now for one in self._asks.values()}
        kept = {of: at for of, at in self._seen.items() if of > ordinary and now < at + CALM_SECONDS}
        self._seen, ladder = kept, laid_out(kept, ordinary)
        if (self._asks, ladder) == (self._asked, self._ladder):
            return False
        self._asked, self._ladder, self._shares = self._asks, ladder, shared(self._asks)
        return True

    def awaited(self, holding: Holding) -> int | None:
        """For how many slots without a place one is to wait; None while nobody knows, and in the round in
        which there are more: others may ask for more, too.
        """
        key, demand = holding.demand.key, holding.demand
        if not demand.desired:
            return 0  # nobody has to heed its priority
        if key not in self._asks:
            most = 1 if self._misplaced.knows(key, self._clock()) else holding.unplaced
            wanted = self._wanted(key)
            slots = None if wanted is None else min(wanted, holding.unplaced, most)
            self._asks[key] = Ask(priority_of(demand), slots)
        slots, before = self._asks[key].slots, self._asked.get(key, _UNKNOWN).slots
        return None if slots is None or before is None or slots > before else min(slots, self._shares[key])

    def priority(self, demand: Demand) -> int:
        """That of those which roam, by laid_out; the policy's own where ordinary pods are above it.

        Once bound they are replaced. A priority counts for a minute after its last policy is gone: whoever
        makes one and takes it away again would have all that wait made anew.
        """
        own = priority_of(demand)
        return self._ladder.get(own, own)

    def with_them(self, steps: Steps, holding: Holding, form: str, mine: list[Placeholder]) -> Steps:
        """The steps for a policy's placeholders that have a node, and those for the ones that roam.

        These are bound as soon as there is room, before others, who are lower, and on a node that an
        autoscaler has brought: so the slot's place is left to them for a while.
        """
        key, now = holding.demand.key, self._clock()
        roaming = [one for one in mine if not one.node]
        self._welcome_those_wanted(holding, mine)
        if any(one.roams and one.bound and one.uid not in self._welcome[key] for one in steps.delete):
            self._misplaced.note(key, "misplaced", now)
        awaited = self.awaited(holding)  # also in a pause: its priority counts
        if self.pauses(key):
            awaited = 0
        patient = bool(steps.create and roaming)
        if patient:
            patient = now < self._left.setdefault(key, now) + PATIENCE_SECONDS
        else:
            self._left.pop(key, None)
        return with_roaming(steps, roaming, form, awaited, patient=patient)

    def _welcome_those_wanted(self, holding: Holding, mine: list[Placeholder]) -> None:
        """Note who was bound where a hold lies: it did not go astray, whenever it goes."""
        key, own = holding.demand.key, priority_of(holding.demand)
        arrived = {one.uid: one.node for one in mine if one.roams and one.bound}
        before = self._welcome.get(key, set(arrived))  # after a restart nobody knows
        followed = {one.uid for one in mine if one.uid in before and one.priority != own}
        beyond = Counter(one.node for one in mine if one.bound and one.uid not in followed)
        beyond -= Counter(dict(holding.nodes))
        wanted = {uid for uid, node in arrived.items() if node not in beyond}
        self._welcome[key] = wanted | (before & arrived.keys())

    def pauses(self, policy: str) -> bool:
        """Whether none of the policy's roams for a while, because one went astray."""
        return policy in self._misplaced.barred(self._clock())

    def forget(self, policy: str) -> None:
        """The policy is gone."""
        self._left.pop(policy, None)
        self._welcome.pop(policy, None)


def laid_out(priorities: Collection[int], ordinary: int) -> dict[int, int]:
    """At which priority those of policies of each priority roam, as far as there is room above ordinary pods:
    at that of the lowest and just below it, in the same order.

    So kube-scheduler keeps from them what owners and placeholders of any policy are nominated for, which it
    does only from who is not above those, and tries those of higher policies first.
    """
    lowest = min(priorities, default=0)
    highest_first = enumerate(sorted(priorities, reverse=True))
    return {priority: max(ordinary + 1, lowest - below) for below, priority in highest_first}


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
