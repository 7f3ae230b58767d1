"""Which quotas there are: their names, their places in trees, and whose pods are whose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from qos import keys
from qos.cluster.quota import BESIDE, BUILT_IN, ElasticQuota

Origin: TypeAlias = tuple[str, str]
"""Of pods: their namespace, and the quota that their label names, "" for none."""
DEFAULT_TREE: Final = ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a quota is: its tree and its parent's key, "" at the top. `problem`: why not where it says."""

    tree: str
    parent: str = ""
    problem: str = ""


class Book:
    """All quotas, by key. Names are for the whole cluster: of several quotas of a name it is the oldest's."""

    def __init__(self) -> None:
        made = [ElasticQuota("", name) for name in sorted(BESIDE)]
        self._quotas: dict[str, ElasticQuota] = {one.key: one for one in made}
        self._named: dict[str, str] = {}
        self._annotated: dict[str, str] = {}
        self._plain: dict[str, str] = {}
        self._index()

    def change(self, put: Iterable[ElasticQuota] = (), drop: Iterable[str] = ()) -> None:
        """Add or replace quotas, and take away those of these keys."""
        for one in put:
            self._quotas[one.key] = one
        for key in drop:
            self._quotas.pop(key, None)
        self._index()

    def _index(self) -> None:
        self._named, self._annotated, self._plain = {}, {}, {}
        # What this file makes itself comes last: it has no namespace.
        for one in sorted(self._quotas.values(), key=lambda q: (not q.namespace, q.created, q.key)):
            self._named.setdefault(one.name, one.key)
            for namespace in one.namespaces:
                self._annotated.setdefault(namespace, one.key)
            if one.plain:
                self._plain.setdefault(one.namespace, one.key)

    def __iter__(self) -> Iterator[ElasticQuota]:
        """Those that pods may be of: all but the root."""
        return (one for one in self._quotas.values() if one.name != keys.ROOT_QUOTA)

    def get(self, key: str) -> ElasticQuota | None:
        """The quota of a key, namespace/name."""
        return self._quotas.get(key)

    def named(self, name: str) -> ElasticQuota | None:
        """The quota that a label or a parent label means."""
        key = self._named.get(name)
        return self._quotas[key] if key is not None else None

    def bound(self, namespace: str) -> ElasticQuota | None:
        """The quota whose annotation names this namespace."""
        key = self._annotated.get(namespace)
        return self._quotas[key] if key is not None else None

    def quota_of(self, origin: Origin) -> str:
        """The key of the quota that such pods are of.

        The label's, the default quota where there is none of that name. Without a label the one that is
        called like the namespace and in it, else the one whose annotation names it, else the plain one in
        it, else the default quota.
        """
        namespace, name = origin
        if name:
            key = self._named.get(name)
        else:
            key = f"{namespace}/{namespace}"
            if key not in self._quotas:
                key = self._annotated.get(namespace) or self._plain.get(namespace)
        if key is None or self._quotas[key].name == keys.ROOT_QUOTA:
            return self._named[keys.DEFAULT_QUOTA]
        return key

    def places(self) -> dict[str, Place]:
        """Where each quota is. One whose parent is not there, or that is its own ancestor, is at the top."""
        found: dict[str, Place] = {}
        for one in self:
            if one.key not in found:
                self._place(one, found)
        return found

    def _place(self, one: ElasticQuota, found: dict[str, Place]) -> None:
        """Its place and those of its ancestors, from the top down."""
        chain: list[ElasticQuota] = []
        known: dict[str, int] = {}
        at: ElasticQuota | None = one
        while at is not None and at.key not in found and at.key not in known:
            known[at.key] = len(chain)
            chain.append(at)
            at = self._parent(at)
        circle = chain[known[at.key] :] if at is not None and at.key in known else []
        for each in circle:
            why = f"its parent {each.parent} is beneath it: name another one"
            found[each.key] = Place(each.tree, "", why)
        for each in reversed(chain):
            if each.key not in found:
                found[each.key] = self._beneath(each, found)

    def _parent(self, one: ElasticQuota) -> ElasticQuota | None:
        if not one.parent or one.name in BUILT_IN or one.parent in BUILT_IN:
            return None
        return self.named(one.parent)

    def _beneath(self, one: ElasticQuota, found: Mapping[str, Place]) -> Place:
        if one.name in BESIDE:
            return Place(DEFAULT_TREE)
        parent = self._parent(one)
        if parent is None:
            why = f"its parent {one.parent} is not there: make it, or name another one" if one.parent else ""
            return Place(one.tree, "", why)
        tree = found[parent.key].tree
        if one.tree and one.tree != tree:
            why = f"its tree is {one.tree}, and its parent {one.parent} is in {tree or 'the default tree'}"
            return Place(one.tree, "", why + ": give both the same tree-id")
        return Place(tree, parent.key)
