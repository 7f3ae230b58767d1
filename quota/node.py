"""A quota in its tree, and how one resource of it is dealt out to its children."""

from __future__ import annotations

from collections.abc import Iterable

from qos.cluster.quota import BESIDE, ElasticQuota
from quota.sharing import least, share


class Group:
    """One resource of a parent, a column for each thing that share() reads, its children by position.

    `inner`: positions of children that have children themselves.
    """

    __slots__ = ("inner", "kept", "leasts", "lends", "mins", "shares", "wants", "weights")

    def __init__(self, children: Iterable[Node], resource: str) -> None:
        self.wants: list[int] = []
        self.mins: list[int] = []
        self.kept: list[int] = []
        self.weights: list[int] = []
        self.lends: list[bool] = []
        self.inner: list[int] = []
        for child in children:
            named = child.shares(resource)
            self.wants.append(child.lifted.get(resource, 0) if named else 0)
            self.kept.append(child.lifted_kept.get(resource, 0) if named else 0)
            self.mins.append(child.least(resource) if named else 0)
            self.weights.append(child.quota.weight.get(resource, 0) if named else 0)
            self.lends.append(child.lends)
            if child.children:
                self.inner.append(child.position)
        self.leasts = [0] * len(self.wants)
        self.shares = [-1] * len(
            self.wants
        )  # none yet, so that make() says of all inner children that they changed

    def make(self, total: int | None) -> list[int]:
        """Share the total anew, None: there is no limit; the positions of inner children that it changes."""
        before = self.shares
        self.leasts = least(_sum(self.mins, self.kept) if total is None else total, self.mins, self.kept)
        room = _sum(self.wants, self.leasts) if total is None else total
        self.shares = share(room, self.wants, self.leasts, self.weights, self.lends)
        return [position for position in self.inner if self.shares[position] != before[position]]


def _sum(some: Iterable[int], others: Iterable[int]) -> int:
    return sum(some) + sum(others)


class Node:
    """A quota in its tree; a root stands for all that its tree has. Amounts by resource.

    `request`: what its pods ask for, what floors hold, and what its children ask for within their max.
    `taken`: what pods that have a node and floors take, all beneath. `firm`: of that, pods that nobody may
    evict. `ending`: of that, pods that are being deleted. `held`: of that, floors. `kept`: what is never
    lent. `aside`: what is taken of it and not through a share of a child. `lifted`, `lifted_kept`: what of
    request and kept is in its parent's. `stale`: resources that its children's shares are out of date of.
    """

    __slots__ = (
        "aside",
        "children",
        "ending",
        "firm",
        "groups",
        "guarantees",
        "held",
        "kept",
        "lifted",
        "lifted_kept",
        "parent",
        "position",
        "quota",
        "request",
        "stale",
        "taken",
    )

    def __init__(self, quota: ElasticQuota, *, guarantees: bool) -> None:
        self.quota = quota
        self.guarantees = guarantees
        self.parent: Node | None = None
        self.position = 0
        self.children: list[Node] = []
        self.groups: dict[str, Group] = {}
        self.stale: set[str] = set()
        self.request: dict[str, int] = {}
        self.taken: dict[str, int] = {}
        self.firm: dict[str, int] = {}
        self.ending: dict[str, int] = {}
        self.held: dict[str, int] = {}
        self.kept: dict[str, int] = {}
        self.aside: dict[str, int] = {}
        self.lifted: dict[str, int] = {}
        self.lifted_kept: dict[str, int] = {}

    @property
    def lends(self) -> bool:
        """Whether others may use what it leaves of its min."""
        return self.quota.lends and not self.guarantees

    def shares(self, resource: str) -> bool:
        """Whether it has a share of a resource, and no more: its max names it."""
        return resource in self.quota.max and self.quota.name not in BESIDE

    def least(self, resource: str) -> int:
        """Its min of a resource that it shares, within its max."""
        return max(0, min(self.quota.min.get(resource, 0), self.quota.max[resource]))

    def want(self, resource: str) -> int:
        """What it asks its parent for."""
        asked = self.request.get(resource, 0)
        if not self.shares(resource):
            return asked
        if not self.lends:
            asked = max(asked, self.least(resource))
        return max(0, min(asked, self.quota.max[resource]))

    def keeps(self, resource: str) -> int:
        """What its parent may not lend to others."""
        kept = self.kept.get(resource, 0)
        if not self.shares(resource):
            return kept
        if self.guarantees:
            kept = max(kept, self.least(resource))
        return max(0, min(kept, self.quota.max[resource]))

    def path(self) -> list[Node]:
        """From the root of its tree to itself."""
        path, at = [self], self.parent
        while at is not None:
            path.append(at)
            at = at.parent
        path.reverse()
        return path

    def resources(self) -> set[str]:
        """All that it names or has of."""
        return {*self.quota.max, *self.request, *self.taken, *self.kept, *self.lifted}
