"""The trees of quotas: what each asks for, has and may use. Changes touch a path, shares are made when asked.

A change of a pod goes up the path of its quota, as far as it changes anything, and marks where shares are
out of date. Whoever asks for a runtime has those on the path made anew, from the top down, and no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from qos.cluster.objects import Resources
from qos.cluster.quota import ElasticQuota
from quota.book import Place
from quota.node import Group, Node


class Tree:
    """All trees, each with a root, and the quotas in them by key.

    guarantees: what pods use is never lent, nor is any min (Koordinator's gate ElasticQuotaGuaranteeUsage).
    """

    def __init__(self, *, guarantees: bool = False) -> None:
        self.nodes: dict[str, Node] = {}
        self.roots: dict[str, Node] = {}
        self.totals: Mapping[str, Resources] = {}
        self._guarantees = guarantees
        self._unordered: set[Node] = set()

    def set_totals(self, totals: Mapping[str, Resources]) -> None:
        """What each tree has, by its id; of a tree, or of a resource, that is not named: nothing."""
        for tree, root in self.roots.items():
            before, now = self.totals.get(tree, {}), totals.get(tree, {})
            root.stale.update(name for name in {*before, *now} if before.get(name) != now.get(name))
        self.totals = totals

    def arrange(self, quotas: Iterable[ElasticQuota], places: Mapping[str, Place]) -> None:
        """Put each of these quotas in its place, or change its rules where it is there already."""
        moved = []
        for one in quotas:
            node = self.nodes.get(one.key)
            if node is None:
                node = self.nodes[one.key] = Node(one, guarantees=self._guarantees)
                moved.append(node)
            elif node.parent is not self._above(places[one.key]) or node.quota.name != one.name:
                self._detach(node)
                node.quota = one
                moved.append(node)
            elif node.quota is not one and node.quota != one:
                self._amend(node, one)
        for node in moved:
            above = self._above(places[node.quota.key])
            assert above is not None
            self._attach(node, above)
        self._order()

    def _above(self, place: Place) -> Node | None:
        if place.parent:
            return self.nodes.get(place.parent)
        root = self.roots.get(place.tree)
        if root is None:
            root = Node(ElasticQuota("", "", tree=place.tree), guarantees=self._guarantees)
            root.stale.update(self.totals.get(place.tree, {}))
            self.roots[place.tree] = root
        return root

    def drop(self, key: str) -> None:
        """Take a quota away, that no pod and no floor is counted for any more, and that has no children."""
        node = self.nodes.pop(key)
        assert not node.children, f"{key} has children"
        self._detach(node)
        self._order()

    def _attach(self, node: Node, parent: Node) -> None:
        node.parent = parent
        parent.children.append(node)
        self._regroup(parent)
        for resource in node.resources():
            self._lift(node, resource)
            self._pass_on(node, resource, node.taken.get(resource, 0))
            parent.stale.add(resource)
        _climb_all(parent, node, 1)

    def _detach(self, node: Node) -> None:
        parent = node.parent
        assert parent is not None
        for resource in node.resources():
            self._pass_on(node, resource, -node.taken.get(resource, 0))
            _add(parent.request, resource, -node.lifted.pop(resource, 0))
            _add(parent.kept, resource, -node.lifted_kept.pop(resource, 0))
            parent.stale.add(resource)
            self._lift(parent, resource)
        _climb_all(parent, node, -1)
        parent.children.remove(node)
        self._regroup(parent)
        node.parent = None

    def _regroup(self, parent: Node) -> None:
        """Its children have changed: what is kept by their positions is made anew, its own column, too."""
        self._unordered.add(parent)
        for node in (parent, parent.parent):
            if node is not None:
                node.stale.update(node.groups)
                node.groups.clear()

    def _order(self) -> None:
        """Children by name, where they have changed."""
        for parent in self._unordered:
            parent.children.sort(key=lambda child: child.quota.order)
            for position, child in enumerate(parent.children):
                child.position = position
        self._unordered.clear()

    def _amend(self, node: Node, quota: ElasticQuota) -> None:
        """New rules for a quota that stays where it is."""
        parent = node.parent
        assert parent is not None
        named = set(node.quota.max)
        for resource in named ^ set(quota.max):
            self._pass_on(node, resource, -node.taken.get(resource, 0))
        changed = named ^ set(quota.max)
        node.quota = quota
        for resource in changed:
            self._pass_on(node, resource, node.taken.get(resource, 0))
        parent.groups.clear()
        for resource in node.resources() | named:
            self._lift(node, resource)
            parent.stale.add(resource)
        parent.stale.update(name for child in parent.children for name in child.quota.max)

    def add(
        self, key: str, request: Resources, taken: Resources, firm: Resources, ending: Resources, sign: int
    ) -> None:
        """Count (sign 1) or no longer (-1) what pods of a quota ask for, take, take for good, and let go."""
        node = self.nodes[key]
        for resource, amount in taken.items():
            self._take(node, resource, sign * amount)
            if self._guarantees:
                _add(node.kept, resource, sign * amount)
                self._lift(node, resource)
        for resource, amount in firm.items():
            _climb(node, "firm", resource, sign * amount)
        for resource, amount in ending.items():
            _climb(node, "ending", resource, sign * amount)
        for resource, amount in request.items():
            _add(node.request, resource, sign * amount)
            self._lift(node, resource)

    def hold(self, key: str, amounts: Resources, sign: int) -> None:
        """Count (sign 1) or no longer (-1) what floors hold in a quota: asked for, taken, and never lent."""
        node = self.nodes[key]
        for resource, amount in amounts.items():
            self._take(node, resource, sign * amount)
            _climb(node, "held", resource, sign * amount)
            _add(node.request, resource, sign * amount)
            _add(node.kept, resource, sign * amount)
            self._lift(node, resource)

    def _take(self, node: Node, resource: str, amount: int) -> None:
        _add(node.taken, resource, amount)
        _add(node.aside, resource, amount)
        if node.children:
            node.stale.add(resource)
        self._pass_on(node, resource, amount)

    def _pass_on(self, node: Node, resource: str, amount: int) -> None:
        """Add to what its ancestors have taken; aside, where it is not by a share."""
        child, at = node, node.parent
        while amount and at is not None:
            _add(at.taken, resource, amount)
            if not child.shares(resource):
                _add(at.aside, resource, amount)
                at.stale.add(resource)
            child, at = at, at.parent

    def _lift(self, node: Node, resource: str) -> None:
        """Tell its ancestors what it asks for and keeps, as far up as that changes anything."""
        parent = node.parent
        while parent is not None:
            want, kept = node.want(resource), node.keeps(resource)
            more = want - node.lifted.get(resource, 0)
            more_kept = kept - node.lifted_kept.get(resource, 0)
            if not more and not more_kept:
                return
            node.lifted[resource], node.lifted_kept[resource] = want, kept
            _add(parent.request, resource, more)
            _add(parent.kept, resource, more_kept)
            group = parent.groups.get(resource)
            if group is not None and node.shares(resource):
                group.wants[node.position], group.kept[node.position] = want, kept
            parent.stale.add(resource)
            node, parent = parent, parent.parent

    def fresh(self, node: Node, resources: Iterable[str]) -> list[Node]:
        """Make the shares of these resources on its path; the path, from the root of its tree to itself."""
        path = node.path()
        for at in path[:-1]:
            if at.stale:
                for resource in resources:
                    if resource in at.stale:
                        self._share(at, resource)
        return path

    def group(self, node: Node, resource: str) -> Group | None:
        """How its parent's share of a resource is dealt out, up to date; None where it has no share."""
        if not node.shares(resource):
            return None
        return self.fresh(node, (resource,))[-2].groups[resource]

    def runtime(self, node: Node, resource: str) -> int | None:
        """What it may use of a resource now; None: there is no limit."""
        group = self.group(node, resource)
        return node.quota.max.get(resource) if group is None else group.shares[node.position]

    def refresh(self) -> None:
        """Make every share that is out of date."""
        for root in self.roots.values():
            for node in _inner(root):
                for resource in tuple(node.stale):
                    self._share(node, resource)

    def _share(self, node: Node, resource: str) -> None:
        group = node.groups.get(resource)
        if group is None:
            group = node.groups[resource] = Group(node.children, resource)
        for position in group.make(self._room(node, resource)):
            node.children[position].stale.add(resource)
        node.stale.discard(resource)

    def _room(self, node: Node, resource: str) -> int | None:
        """What there is for its children's shares; None: no limit of its own."""
        if node.parent is None:
            total = self.totals.get(node.quota.tree, {}).get(resource, 0)
        elif node.shares(resource):
            total = node.parent.groups[resource].shares[node.position]
        else:
            return None
        return max(0, total - node.aside.get(resource, 0))


def _inner(root: Node) -> Iterator[Node]:
    """It and all beneath it that have children, parents first."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(child for child in node.children if child.children)


def _add(amounts: dict[str, int], resource: str, amount: int) -> None:
    amounts[resource] = amounts.get(resource, 0) + amount


def _climb_all(parent: Node, child: Node, sign: int) -> None:
    """What a child takes is its parent's as well, or is so no longer."""
    for what in ("firm", "ending", "held"):
        for resource, amount in getattr(child, what).items():
            _climb(parent, what, resource, sign * amount)


def _climb(node: Node | None, what: str, resource: str, amount: int) -> None:
    """Add to an amount of a quota and of all its ancestors."""
    while node is not None:
        _add(getattr(node, what), resource, amount)
        node = node.parent
