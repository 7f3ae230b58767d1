"""Whether a pod may take what it asks for: its quota's runtime, and each of its ancestors'."""

from __future__ import annotations

from dataclasses import dataclass, replace

from qos import quantity
from qos.cluster.objects import Pod, Resources
from qos.cluster.quota import BESIDE, is_preemptible
from quota.account import Account, origin_of
from quota.node import Node

NOTHING: Resources = {}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pod does not fit, in canonical units: `asked` beside what is `taken` is more than `limit`.

    `what` the limit is: `max`; `runtime`, which is less than max now; or `min`, which bounds pods that
    nobody may evict. `quota`: the key of the one that says no. `ancestor`: it is not the pod's own.
    """

    quota: str
    resource: str
    what: str
    asked: int
    taken: int
    limit: int
    ancestor: bool = False

    @property
    def text(self) -> str:
        """For people: `quota shop/web: cpu: 2 asked, 9 of 10 taken, 1 left: 10 is its max`."""
        why = {
            "max": "is its max",
            "runtime": "is what it may use now, the rest is its siblings'",
            "min": "is its min, and what nobody may evict must stay within",
        }[self.what]
        kind = "parent quota" if self.ancestor else "quota"
        asked, taken, limit = map(self._amount, (self.asked, self.taken, self.limit))
        left = self._amount(max(0, self.limit - self.taken))
        return (
            f"{kind} {self.quota}: {self.resource}: {asked} asked, {taken} of {limit} taken, {left} left: "
            f"{limit} {why}"
        )

    def _amount(self, amount: int) -> str:
        return quantity.render(self.resource, amount)


def refusal(account: Account, pod: Pod, freed: Resources = NOTHING) -> Refusal | None:
    """Why a pod may not take what it asks for, or None where it may.

    The pod must be counted (Account.count) and not yet be bound: runtime follows from requests. freed: what
    a floor holds for it and lets go with it.
    """
    node = account.node_of(origin_of(pod))
    if not is_preemptible(pod.labels):
        found = _beyond_min(node, pod.requests, freed)
        if found is not None:
            return found
    path = account.tree.fresh(node, pod.requests)
    for depth in range(len(path) - 1, 0, -1):
        found = _beyond_runtime(path[depth - 1], path[depth], pod.requests, freed)
        if found is not None:
            return found if path[depth] is node else replace(found, ancestor=True)
    return None


def _beyond_runtime(parent: Node, node: Node, asked: Resources, freed: Resources) -> Refusal | None:
    beside = node.quota.name in BESIDE
    for resource, amount in asked.items():
        most = node.quota.max.get(resource)
        if most is None or not amount:
            continue
        taken = node.taken.get(resource, 0) - freed.get(resource, 0)
        limit = most if beside else parent.groups[resource].shares[node.position]
        if taken + amount > limit:
            what = "runtime" if limit < most else "max"
            return Refusal(node.quota.key, resource, what, amount, taken, limit)
    return None


def _beyond_min(node: Node, asked: Resources, freed: Resources) -> Refusal | None:
    """What nobody may evict, and what floors hold, is within min, where min names the resource."""
    for resource, least in node.quota.min.items():
        amount = asked.get(resource, 0)
        held = node.held.get(resource, 0) - freed.get(resource, 0)
        taken = node.firm.get(resource, 0) + held
        if amount and taken + amount > least:
            return Refusal(node.quota.key, resource, "min", amount, taken, least)
    return None
