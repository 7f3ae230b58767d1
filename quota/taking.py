"""Whose pods may end so that one pod gets what it asks for: those of its own quota that matter less, and
those of quotas that owe to its own.

A quota owes to another where it, and every quota above it that is not above both, takes more than its runtime
while the other has less than is guaranteed to it. Pods are whole: the last one may be larger than what is
left of a debt, but nobody comes below what is guaranteed to it of the resource that it gives.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from qos.cluster.objects import Pod, Resources
from qos.cluster.quota import BESIDE, is_preemptible
from quota import fitting
from quota.account import Account, origin_of
from quota.node import Node


class _Stand(NamedTuple):
    """Of a quota and a resource that it shares: what is taken, guaranteed, and taken beyond runtime."""

    taken: int
    guaranteed: int
    due: int


class Taking:
    """For one pod, which must be counted and not be bound. What is known of quotas is kept meanwhile.

    leaving: pods that are counted as bound and are to end; ended: those that are being deleted count as gone,
    too. coming: pods that come before this one.
    `outlook`: all that. `owed`: the resources that the pod asks for and that are guaranteed to its quota;
    none unless all are that its quota has a min of.
    """

    def __init__(
        self,
        account: Account,
        pod: Pod,
        *,
        leaving: Iterable[Pod] = (),
        coming: Iterable[Pod] = (),
        ended: bool = False,
    ) -> None:
        self.account = account
        self.pod = pod
        self.own = account.node_of(origin_of(pod))
        self._above = set(self.own.path())
        self.outlook = fitting.outlook(account, leaving, coming, ended=ended)
        self._stands: dict[tuple[str, str], _Stand] = {}
        self.owed = self._owed()
        self._debts: dict[Node, int] = {}

    def _owed(self) -> frozenset[str]:
        found = set()
        for name, least in self.own.quota.min.items() if self.own.quota.name not in BESIDE else ():
            amount = self.pod.requests.get(name, 0)
            if not amount or least <= 0:
                continue
            stands = self.stands(self.own, name)
            if stands.taken + amount > stands.guaranteed:
                return frozenset()
            found.add(name)
        return frozenset(found)

    def stands(self, node: Node, name: str) -> _Stand:
        """How a quota stands with a resource that it shares, before anybody else ends."""
        key = node.quota.key, name
        if key not in self._stands:
            one = self.account.stands(*key)
            taken = one.used + one.held + self.outlook.of(node, name)
            due = 0 if one.runtime is None else max(0, taken - one.runtime)
            self._stands[key] = _Stand(taken, one.guaranteed, due)
        return self._stands[key]

    def beyond(self, name: str) -> Iterator[tuple[Node, int]]:
        """Of the quota's siblings, and of those of each above it, which take more than their runtime, and
        how much more.
        """
        path = self.account.tree.fresh(self.own, (name,))
        for parent, own in pairwise(path):
            group = parent.groups.get(name)
            for child in parent.children if group is not None else ():
                taken = child.taken.get(name, 0)
                if child is own or group is None or not child.shares(name):
                    continue
                if taken > group.shares[child.position]:
                    yield child, taken - group.shares[child.position]

    def refused(self, ending: Collection[Pod] = (), freed: Resources = fitting.NOTHING) -> bool:
        """Whether its quota, or one above, refuses the pod once these have ended, too."""
        after = fitting.outlook(self.account, ending, before=self.outlook) if ending else self.outlook
        return fitting.refusal(self.account, self.pod, freed, after) is not None

    def allows(self, victims: Iterable[Pod], freed: Resources) -> bool:
        """Whether all of these may end for the pod, and its quota lets it in then. freed: as fitting.refusal
        has it.
        """
        ending, reckoning = list(victims), Reckoning(self)
        inside = all(reckoning.take(one) for one in sorted(ending, key=lambda pod: (pod.priority, pod.uid)))
        return inside and not self.refused(ending, freed)

    def is_own(self, victim: Pod) -> bool:
        """Whether a pod is of the same quota."""
        return self.account.node_of(origin_of(victim)) is self.own

    def debtors(self, victim: Pod) -> list[Node]:
        """The quotas that one that ends takes from: its own, and those above it that are not the pod's; none
        of another tree.
        """
        found, at = [], self.account.node_of(origin_of(victim))
        while at not in self._above:
            found.append(at)
            if at.parent is None:
                return []
            at = at.parent
        return found

    def debt(self, victim: Pod) -> int:
        """What the victim's quota has to give back of what is owed, in the resource of which it is most; 0:
        nothing, or it may not be taken.
        """
        node = self.account.node_of(origin_of(victim))
        if node not in self._debts:
            debtors = self.debtors(victim)
            self._debts[node] = max((self._due(debtors, name) for name in self.owed), default=0)
        return self._debts[node]

    def _due(self, debtors: Iterable[Node], name: str) -> int:
        """A quota without a share of its own owes what those above it owe."""
        return min((self.stands(node, name).due for node in debtors if node.shares(name)), default=0)


class Reckoning:
    """Which pods may end for another, one after the other."""

    def __init__(self, taking: Taking) -> None:
        self._taking = taking
        self._given: dict[tuple[str, str], int] = {}

    def take(self, victim: Pod) -> bool:
        """Whether this one may end as well; it is counted if so."""
        taking = self._taking
        if not is_preemptible(victim.labels):
            return False
        if taking.is_own(victim):
            return victim.priority < taking.pod.priority
        debtors = taking.debtors(victim)
        reasons = [
            name for name in taking.owed if victim.requests.get(name, 0) and self._is_due(debtors, name)
        ]
        if not reasons or not all(self._spares(node, victim, reasons) for node in debtors):
            return False
        for node in debtors:
            for name, amount in victim.requests.items():
                key = node.quota.key, name
                self._given[key] = self._given.get(key, 0) + amount
        return True

    def _is_due(self, debtors: Iterable[Node], name: str) -> bool:
        sharing = [node for node in debtors if node.shares(name)]
        return bool(sharing) and all(
            self._taking.stands(node, name).due > self._given.get((node.quota.key, name), 0)
            for node in sharing
        )

    def _spares(self, node: Node, victim: Pod, reasons: Iterable[str]) -> bool:
        """Whether it keeps what is guaranteed to it of what it gives."""
        for name in reasons:
            if node.shares(name):
                stands = self._taking.stands(node, name)
                given = self._given.get((node.quota.key, name), 0) + victim.requests[name]
                if stands.taken - given < stands.guaranteed:
                    return False
        return True
