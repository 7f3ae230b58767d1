"""The account of all quotas: pods and floors counted for the quotas they are of, and what these may use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from qos import keys
from qos.cluster.objects import Pod, Resources
from qos.cluster.quota import BESIDE, ElasticQuota, is_preemptible
from quota.book import DEFAULT_TREE, Book, Origin, Place
from quota.node import Node
from quota.tree import Tree

_PLACING: Final = ("parent", "tree", "namespaces", "plain", "created", "is_root", "total", "beside")
_NOTHING: Final[Resources] = {}


@dataclass(slots=True, eq=False)
class _Sums:
    """What pods of one origin, and floors for such pods, come to; `key`: the quota that they are of.

    `members`: how many pods and floors; without any it goes.
    """

    origin: Origin
    key: str
    request: dict[str, int] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    firm: dict[str, int] = field(default_factory=dict)
    ending: dict[str, int] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)
    members: int = 0


@dataclass(frozen=True, slots=True)
class _Counted:
    """How a pod is counted: as one that has a node, that nobody may evict, that is being deleted."""

    sums: _Sums
    request: Resources
    bound: bool
    firm: bool
    ending: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """How a quota stands with one resource, in canonical units. None: there is no limit.

    `request`: what its pods ask for, within the max of its children. `used`: what pods take that have a
    node. `held`: what floors hold. `guaranteed`: its min, less where the whole has not so much, never less
    than floors hold. `runtime`: what it may use now. `lent`: what of the guaranteed it leaves to others.
    `borrowed`: what it takes beyond the guaranteed. `owed`: what of the guaranteed it wants and does not
    have. `due`: what it takes beyond its runtime, and so has to give back.
    """

    request: int
    used: int
    held: int
    min: int
    max: int | None
    guaranteed: int
    runtime: int | None
    lent: int = 0
    borrowed: int = 0
    owed: int = 0
    due: int = 0


class Account:
    """Everything about quotas. Whatever the order in which things come in, it says the same.

    guarantees: as Tree has it.
    """

    def __init__(self, *, guarantees: bool = False) -> None:
        self.book = Book()
        self.tree = Tree(guarantees=guarantees)
        self.places: dict[str, Place] = {}
        self._cluster: Resources = {}
        self._sums: dict[Origin, _Sums] = {}
        self._pods: dict[str, _Counted] = {}
        self._floors: dict[str, tuple[_Sums, Resources]] = {}
        self.change()

    def change(self, put: Iterable[ElasticQuota] = (), drop: Iterable[str] = ()) -> None:
        """Add or replace quotas, and take away those of these keys; their pods go where they belong then."""
        changed, gone = tuple(put), tuple(drop)
        before = [self.book.get(one.key) for one in changed]
        self.book.change(changed, gone)
        if (
            changed
            and not gone
            and all(one and _same_place(one, new) for one, new in zip(before, changed, strict=True))
        ):
            self.tree.arrange([one for one in changed if one.key in self.places], self.places)
            return
        self.places = self.book.places()
        self.tree.arrange(self.book, self.places)
        for origin, sums in self._sums.items():
            key = self.book.quota_of(origin)
            if key != sums.key:
                self._move(sums, key)
        self._drop_gone()
        self._set_totals()

    def _drop_gone(self) -> None:
        """Those beneath first."""
        gone = [key for key in self.tree.nodes if key not in self.places]
        while gone:
            waiting = []
            for key in gone:
                if self.tree.nodes[key].children:
                    waiting.append(key)
                else:
                    self.tree.drop(key)
            assert len(waiting) < len(gone)
            gone = waiting

    def _move(self, sums: _Sums, key: str) -> None:
        self.tree.add(sums.key, sums.request, sums.taken, sums.firm, sums.ending, -1)
        self.tree.hold(sums.key, sums.held, -1)
        sums.key = key
        self.tree.add(key, sums.request, sums.taken, sums.firm, sums.ending, 1)
        self.tree.hold(key, sums.held, 1)

    def set_cluster(self, amounts: Resources) -> None:
        """What all nodes have together."""
        self._cluster = amounts
        self._set_totals()

    def _set_totals(self) -> None:
        """What each tree has: its root says so, and the default tree has the rest of the cluster."""
        totals: dict[str, dict[str, int]] = {DEFAULT_TREE: dict(self._cluster)}
        roots = [one for one in self.book if one.is_root and one.total is not None]
        for one in sorted(roots, key=lambda quota: (quota.created, quota.key)):
            tree = self.places[one.key].tree
            if one.total is None or tree == DEFAULT_TREE or tree in totals:
                continue
            totals[tree] = dict(one.total)
            if not one.beside:
                for resource, amount in one.total.items():
                    left = totals[DEFAULT_TREE].get(resource, 0) - amount
                    totals[DEFAULT_TREE][resource] = left
        self.tree.set_totals(totals)

    def count(self, pod: Pod, *, bound: bool | None = None) -> None:
        """Count a pod as it is now, whether or not it was counted; one that has ended no longer.

        bound: whether it takes what it asks for; None: whether it has a node.
        """
        if pod.terminal:
            self.forget(pod.uid)
            return
        taken = bool(pod.node_name) if bound is None else bound
        firm = not is_preemptible(pod.labels)
        before = self._pods.get(pod.uid)
        sums = self._sums_of(origin_of(pod))
        now = _Counted(sums, pod.requests, taken, firm, pod.deleting)
        if before == now:
            return
        self._pods[pod.uid] = now
        self._count(now, 1)  # first, so that its origin does not come to nothing in between
        if before is not None:
            self._count(before, -1)

    def forget(self, uid: str) -> None:
        """Count a pod no longer."""
        before = self._pods.pop(uid, None)
        if before is not None:
            self._count(before, -1)

    def _count(self, counted: _Counted, sign: int) -> None:
        sums, request = counted.sums, counted.request
        taken = request if counted.bound else _NOTHING
        firm = taken if counted.firm else _NOTHING
        ending = taken if counted.ending else _NOTHING
        _add(sums.request, request, sign)
        _add(sums.taken, taken, sign)
        _add(sums.firm, firm, sign)
        _add(sums.ending, ending, sign)
        self.tree.add(sums.key, request, taken, firm, ending, sign)
        self._enrol(sums, sign)

    def hold(self, policy: str, origin: Origin, amounts: Resources) -> None:
        """Count what a policy holds now for pods of this origin, in place of what it did before."""
        before = self._floors.pop(policy, None)
        if before is not None:
            self._hold(*before, -1)
        if amounts:
            self._floors[policy] = now = self._sums_of(origin), amounts
            self._hold(*now, 1)

    def _hold(self, sums: _Sums, amounts: Resources, sign: int) -> None:
        _add(sums.held, amounts, sign)
        self.tree.hold(sums.key, amounts, sign)
        self._enrol(sums, sign)

    def _sums_of(self, origin: Origin) -> _Sums:
        sums = self._sums.get(origin)
        return _Sums(origin, self.book.quota_of(origin)) if sums is None else sums

    def _enrol(self, sums: _Sums, sign: int) -> None:
        sums.members += sign
        if not sums.members:
            del self._sums[sums.origin]
        elif sums.members == sign == 1:
            self._sums[sums.origin] = sums

    def quota_of(self, pod: Pod) -> ElasticQuota:
        """The quota that a pod is of."""
        return self.node_of(origin_of(pod)).quota

    def node_of(self, origin: Origin) -> Node:
        """Where pods of this origin are counted."""
        sums = self._sums.get(origin)
        return self.tree.nodes[sums.key if sums is not None else self.book.quota_of(origin)]

    def counts(self, uid: str) -> bool | None:
        """Whether a pod is counted as one that takes what it asks for; None: it is not counted."""
        counted = self._pods.get(uid)
        return counted.bound if counted is not None else None

    def ends(self, uid: str) -> bool:
        """Whether a pod is counted as one that takes what it asks for, and is being deleted."""
        counted = self._pods.get(uid)
        return counted is not None and counted.bound and counted.ending

    def standing(self, key: str) -> dict[str, Standing]:
        """How a quota stands, by resource: those that its max names, and those it has of."""
        return {name: self.stands(key, name) for name in sorted(self.tree.nodes[key].resources())}

    def stands(self, key: str, name: str) -> Standing:
        """How a quota stands with one resource."""
        node = self.tree.nodes[key]
        taken, held = node.taken.get(name, 0), node.held.get(name, 0)
        amounts = node.request.get(name, 0), taken - held, held, node.quota.min.get(name, 0)
        most = node.quota.max.get(name)
        group = self.tree.group(node, name)
        if group is None:
            return Standing(*amounts, most, amounts[-1], most)
        guaranteed, runtime = group.leasts[node.position], group.shares[node.position]
        return Standing(
            *amounts,
            most,
            guaranteed,
            runtime,
            lent=max(0, guaranteed - runtime),
            borrowed=max(0, taken - guaranteed),
            owed=max(0, min(group.wants[node.position], guaranteed) - taken),
            due=max(0, taken - runtime),
        )

    def whole(self, tree: str) -> dict[str, Standing]:
        """How a tree stands as a whole: runtime and max are what it has."""
        root = self.tree.roots[tree]
        found = {}
        for name, total in sorted(self.tree.totals.get(tree, {}).items()):
            request, taken, held = (each.get(name, 0) for each in (root.request, root.taken, root.held))
            found[name] = Standing(request, taken - held, held, 0, total, total, total)
        return found

    def quotas(self) -> Iterator[ElasticQuota]:
        """All quotas; the default and the system quota only where there is such an object or such a pod."""
        for key, node in self.tree.nodes.items():
            if node.quota.name not in BESIDE or node.quota.namespace or any(node.request.values()):
                yield self.tree.nodes[key].quota


def _same_place(one: ElasticQuota, other: ElasticQuota) -> bool:
    """Whether names, trees, totals, and which pods are of which quota, are as before."""
    return all(getattr(one, name) == getattr(other, name) for name in _PLACING)


def _add(sums: dict[str, int], amounts: Resources, sign: int) -> None:
    for resource, amount in amounts.items():
        sums[resource] = sums.get(resource, 0) + sign * amount


def origin_of(pod: Pod) -> Origin:
    """What decides which quota a pod is of."""
    return pod.namespace, pod.labels.get(keys.QUOTA_NAME_LABEL, "")
