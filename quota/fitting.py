"""Whether a pod may take what it asks for: its quota's runtime, and each of its ancestors'."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, TypeAlias

from qos import quantity
from qos.cluster.objects import Pod, Resources
from qos.cluster.quota import BESIDE, is_preemptible
from quota.account import Account, origin_of
from quota.node import Node

NOTHING: Final[Resources] = {}
Moved: TypeAlias = Mapping[Node, Resources]
"""What more of a quota is to be counted as taken, or less."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """In what the account is to be read as if some things had happened already.

    `ended`: pods that are being deleted are gone. `moved`: what comes to it beside, and `before`: another
    outlook which this one goes on from.
    """

    ended: bool = False
    moved: Moved = field(default_factory=dict)
    before: Outlook | None = None

    @property
    def ends(self) -> bool:
        """Whether pods that are being deleted are gone."""
        return self.ended or (self.before is not None and self.before.ends)

    def of(self, node: Node, resource: str) -> int:
        """What more of a quota is to be counted as taken, or less."""
        beside = self.moved.get(node, NOTHING).get(resource, 0)
        if self.before is not None:
            beside += self.before.of(node, resource)
        return beside - node.ending.get(resource, 0) if self.ended else beside


AS_IT_IS: Final = Outlook()


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


def refusal(
    account: Account,
    pod: Pod,
    freed: Resources = NOTHING,
    outlook: Outlook = AS_IT_IS,
) -> Refusal | None:
    """Why a pod may not take what it asks for, or None where it may.

    The pod must be counted (Account.count) and not yet be bound: runtime follows from requests. freed: what
    a floor, of its quota, holds for it and lets go with it: so much it may take whatever the limits are.
    """
    node = account.node_of(origin_of(pod))
    if not is_preemptible(pod.labels):
        found = _beyond_min(node, pod.requests, freed)
        if found is not None:
            return found
    path = account.tree.fresh(node, pod.requests)
    for depth in range(len(path) - 1, 0, -1):
        found = _beyond_runtime(path[depth - 1], path[depth], pod.requests, freed, outlook)
        if found is not None:
            return found if path[depth] is node else replace(found, ancestor=True)
    return None


def room(account: Account, pod: Pod) -> int | None:
    """How many pods like this one may take what they ask for together; None: as many as you like."""
    node = account.node_of(origin_of(pod))
    path = account.tree.fresh(node, pod.requests)
    fit: list[int] = []
    for parent, at in pairwise(path):
        for resource, amount in pod.requests.items():
            limit = _limit(parent, at, resource)
            if limit is not None and amount:
                fit.append((limit - at.taken.get(resource, 0)) // amount)
    if not is_preemptible(pod.labels):
        for resource, least in node.quota.min.items():
            amount = pod.requests.get(resource, 0)
            if amount:
                fit.append((least - node.firm.get(resource, 0) - node.held.get(resource, 0)) // amount)
    return max(0, min(fit)) if fit else None


def outlook(
    account: Account,
    leaving: Iterable[Pod] = (),
    coming: Iterable[Pod] = (),
    *,
    ended: bool = False,
    before: Outlook | None = None,
) -> Outlook:
    """Without pods that are counted as bound and are not to be, and with those that are to come before.
    `ended`: without those that are being deleted, as well, which need not be named.
    """
    moved: dict[Node, dict[str, int]] = {}
    found = Outlook(ended, moved, before)
    for pod in leaving:
        if not (found.ends and account.ends(pod.uid)):
            move(account, moved, pod, -1)
    for pod in coming:
        move(account, moved, pod, 1)
    return found


def move(account: Account, moved: dict[Node, dict[str, int]], pod: Pod, sign: int, times: int = 1) -> None:
    """Count a pod with its quota and all above it: one that is not bound as one more (sign 1), one that is as
    one less (-1); times -1: no longer.
    """
    if account.counts(pod.uid) is not (sign < 0):
        return
    sign *= times
    at: Node | None = account.node_of(origin_of(pod))
    while at is not None:
        sums = moved.setdefault(at, {})
        for resource, amount in pod.requests.items():
            sums[resource] = sums.get(resource, 0) + sign * amount
        at = at.parent


def _limit(parent: Node, node: Node, resource: str) -> int | None:
    """What it may use now, where its shares are fresh; None: there is no limit."""
    most = node.quota.max.get(resource)
    if most is None or node.quota.name in BESIDE:
        return most
    return parent.groups[resource].shares[node.position]


def _beyond_runtime(
    parent: Node, node: Node, asked: Resources, freed: Resources, outlook: Outlook
) -> Refusal | None:
    for resource, amount in asked.items():
        let = freed.get(resource, 0)
        limit = _limit(parent, node, resource)
        if limit is None or amount <= let:
            continue
        taken = node.taken.get(resource, 0) - let + outlook.of(node, resource)
        if taken + amount > limit:
            what = "runtime" if limit < node.quota.max[resource] else "max"
            return Refusal(node.quota.key, resource, what, amount, taken, limit)
    return None


def _beyond_min(node: Node, asked: Resources, freed: Resources) -> Refusal | None:
    """What nobody may evict, and what floors hold, is within min, where min names the resource."""
    for resource, least in node.quota.min.items():
        amount, let = asked.get(resource, 0), freed.get(resource, 0)
        taken = node.firm.get(resource, 0) + node.held.get(resource, 0) - let
        if amount > let and taken + amount > least:
            return Refusal(node.quota.key, resource, "min", amount, taken, least)
    return None
