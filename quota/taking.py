"""Whose pods may end so that one pod gets what it asks for: those of its own quota that matter less, and
those of quotas that owe to its own.

A quota owes to another where it, and every quota above it that is not above both, takes more than its runtime
while the other has less than is guaranteed to it. Pods are whole: the last one may be larger than what is
left of a debt, but nobody comes below what is guaranteed to it of the resource that it gives.
"""

from __future__ import annotations

from collections.abc import Iterable

from qos.cluster.objects import Pod, Resources
from qos.cluster.quota import BESIDE, is_preemptible
from quota import fitting
from quota.account import Account, Standing, origin_of
from quota.node import Node


def owed(account: Account, pod: Pod) -> frozenset[str]:
    """The resources that a pod asks for and that are guaranteed to its quota; none unless all are that its
    quota has a min of.
    """
    node = account.node_of(origin_of(pod))
    if node.quota.name in BESIDE:
        return frozenset()
    found = set()
    for name, least in node.quota.min.items():
        amount = pod.requests.get(name, 0)
        if not amount or least <= 0:
            continue
        stands = account.stands(node.quota.key, name)
        if stands.used + stands.held + amount > stands.guaranteed:
            return frozenset()
        found.add(name)
    return frozenset(found)


class Taking:
    """For one pod, which must be counted and not be bound. What is known of quotas is kept meanwhile."""

    def __init__(self, account: Account, pod: Pod) -> None:
        self._account = account
        self._pod = pod
        self._own = account.node_of(origin_of(pod))
        self._above = set(self._own.path())
        self.owed = owed(account, pod)
        self._stands: dict[tuple[str, str], Standing] = {}

    def reckon(self) -> Reckoning:
        """Begin with what is due now."""
        return Reckoning(self)

    def allows(self, victims: Iterable[Pod], freed: Resources, coming: Iterable[Pod]) -> bool:
        """Whether all of these may end for the pod, and its quota lets it in then. freed, coming: as
        fitting.refusal has it.
        """
        ending, reckoning = list(victims), self.reckon()
        if not all(reckoning.take(one) for one in sorted(ending, key=lambda pod: (pod.priority, pod.uid))):
            return False
        return fitting.refusal(self._account, self._pod, freed, leaving=ending, coming=coming) is None

    def standing(self, node: Node, name: str) -> Standing:
        """How a quota stands with a resource, before anybody ends."""
        key = node.quota.key, name
        if key not in self._stands:
            self._stands[key] = self._account.stands(*key)
        return self._stands[key]

    def debtors(self, victim: Pod) -> list[Node]:
        """The quotas that one that ends takes from: its own, and those above it that are not the pod's."""
        found, at = [], self._account.node_of(origin_of(victim))
        while at not in self._above:
            found.append(at)
            assert at.parent is not None, "the root of a tree is above all in it"
            at = at.parent
            if at.parent is None and at not in self._above:
                return []  # another tree: its capacity is not the pod's
        return found

    @property
    def pod(self) -> Pod:
        """Who it is for."""
        return self._pod

    @property
    def own(self) -> Node:
        """Its quota."""
        return self._own

    def is_own(self, victim: Pod) -> bool:
        """Whether a pod is of the same quota."""
        return self._account.node_of(origin_of(victim)) is self._own


class Reckoning:
    """Which pods may end, one after the other. `given`: what each quota has given by then."""

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
        """A quota without a share of its own owes what those above it owe."""
        sharing = [node for node in debtors if node.shares(name)]
        return bool(sharing) and all(self._left(node, name) > 0 for node in sharing)

    def _left(self, node: Node, name: str) -> int:
        """What is due of it yet."""
        return self._taking.standing(node, name).due - self._given.get((node.quota.key, name), 0)

    def _spares(self, node: Node, victim: Pod, reasons: Iterable[str]) -> bool:
        """Whether it keeps what is guaranteed to it of what it gives."""
        for name in reasons:
            if node.shares(name):
                stands = self._taking.standing(node, name)
                given = self._given.get((node.quota.key, name), 0) + victim.requests[name]
                if stands.used + stands.held - given < stands.guaranteed:
                    return False
        return True
