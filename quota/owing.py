"""Who owes what to whom: what quotas have to give back so that others have what is guaranteed to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from quota.account import Account, Standing
from quota.node import Node


@dataclass(frozen=True, slots=True)
class Debt:
    """So much of a resource, canonical units, has one quota to give back for another; both by key.

    A debtor has no children, or it is its own pods that have taken too much.
    """

    resource: str
    creditor: str
    debtor: str
    amount: int


def debts(account: Account, resource: str) -> list[Debt]:
    """What is owed of a resource and not free, and who has it beyond its runtime.

    Those who have to give back most come first, at each level; no one gives back more than is due of it, and
    no one is owed more than the guaranteed that it asks for and does not have.
    """
    account.tree.refresh()
    found: list[Debt] = []
    for _, root in sorted(account.tree.roots.items()):
        settling = _Settling(account, resource)
        found += settling.beneath(root, account.tree.totals.get(root.quota.tree, {}).get(resource, 0))
    return found


class _Settling:
    """One resource of one tree. `_left`: what of each quota's due nobody has asked for yet."""

    def __init__(self, account: Account, resource: str) -> None:
        self._account = account
        self._resource = resource
        self._left: dict[str, int] = {}

    def beneath(self, parent: Node, has: int) -> Iterator[Debt]:
        """Among the children of a quota that may use so much, and beneath them."""
        sharing = [child for child in parent.children if child.shares(self._resource)]
        stands = {child.quota.key: self._standing(child) for child in sharing}
        room = max(0, has - parent.taken.get(self._resource, 0))
        for creditor in sorted(sharing, key=lambda node: (-stands[node.quota.key].owed, node.quota.order)):
            missing = stands[creditor.quota.key].owed
            free = min(missing, room)
            room -= free
            yield from self._collect(creditor, missing - free, sharing, stands)
        for child in sharing:
            if child.children:
                yield from self.beneath(child, stands[child.quota.key].runtime or 0)

    def _collect(
        self, creditor: Node, missing: int, sharing: list[Node], stands: dict[str, Standing]
    ) -> Iterator[Debt]:
        for debtor in sorted(sharing, key=lambda node: (-stands[node.quota.key].due, node.quota.order)):
            asked = min(missing, self._due(debtor))
            if asked > 0:
                missing -= asked
                for key, amount in self._from(debtor, asked):
                    yield Debt(self._resource, creditor.quota.key, key, amount)

    def _from(self, debtor: Node, amount: int) -> Iterator[tuple[str, int]]:
        """Which quotas beneath it give that back, or it does."""
        self._left[debtor.quota.key] = self._due(debtor) - amount
        for child in sorted(debtor.children, key=lambda node: (-self._due(node), node.quota.order)):
            asked = min(amount, self._due(child))
            if asked > 0:
                amount -= asked
                yield from self._from(child, asked)
        if amount:
            yield debtor.quota.key, amount

    def _due(self, node: Node) -> int:
        key = node.quota.key
        if key not in self._left:
            self._left[key] = self._standing(node).due
        return self._left[key]

    def _standing(self, node: Node) -> Standing:
        return self._account.stands(node.quota.key, self._resource)
