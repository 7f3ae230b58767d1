"""The policies' demands: their order, their slot vectors, and which pods they own."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final

import numpy as np

from ledger.eligibility import Eligibility, admits_node
from ledger.reservations import Reservations
from ledger.strict import Strict
from ledger.table import Columns, Flags, Rows, Table, reshaped
from qos.cluster.needs import Enforcement
from qos.cluster.objects import (
    Demand,
    Node,
    NodePredicate,
    OwnerFit,
    PlacementMode,
    Pod,
    Resources,
    Selector,
    Spread,
    Terms,
    Toleration,
)
from qos.cluster.precedence import precedence
from qos.cluster.selectors import matches

NO_DEMAND = -1
NO_SLOT: Final = ""
"""What the annotation says of a policy's pod that fills none of its slots."""
_NOTHING: Final[Resources] = {}
_FIRST_DEMANDS = 512
"""Room to begin with: memory that is never written to costs nothing, and doubling takes long."""
_FIRST_WITH_RESERVATIONS = 2_048
_COMPARED_AT_ONCE = 5_000
"""Selectors compared with sets of labels in one step, at half a microsecond each."""
_MOST_LABEL_SETS = 20_000
"""Pods of one template share their labels, so asking once for each set of them is enough."""
_MOST_WEIGHED = 16
"""Resources that say which node is tight: the most named ones; few clusters hold more."""
_MOST_LABELS = 100
"""A pod with more of them is asked for each time: thousands of such sets would take much memory."""


def order_key(demand: Demand) -> tuple[bool, int, float, str]:
    """The precedence of its policy."""
    return precedence(demand.priority, demand.created, demand.key)


class Demands:
    """Each demand has a number; `vectors` is indexed [demand, resource], `eligible` [demand, row].

    `dims`: the columns of which some demand holds any, sorted by their `resources`; `axis` the same as an
    index that goes with one of rows. `spread`: the demands with spread constraints or anchors; `restricted`:
    those that some of the pods they select do not fit. `changes` counts those of any of it;
    `relabelled` those of which nodes have which labels.
    """

    def __init__(self, table: Table, *, reservations: bool = False) -> None:
        self._table = table
        self.reservations = Reservations(enabled=reservations)
        self.numbers: dict[str, int] = {}
        first = _FIRST_WITH_RESERVATIONS if reservations else _FIRST_DEMANDS
        self.records: list[Demand | None] = [None] * first
        self.order: list[int] = []
        self.position: dict[int, int] = {}
        self.levels: list[int] = []
        self.dims: list[int] = []
        self.resources: list[str] = []
        self.axis: Rows = np.zeros((0, 1), dtype=np.intp)
        self._named_most: list[int] = []
        self.changes = 0
        self.relabelled = 0
        self.spread: set[int] = set()
        self.restricted: set[int] = set()
        self._leaving: set[int] = set()
        self._by_namespace: dict[str, list[int]] = {}
        self._by_place: dict[NodePredicate, dict[int, None]] = {}
        self._keys: dict[int, tuple[tuple[bool, int, float, str], int]] = {}
        self._owners: dict[tuple[str, frozenset[tuple[str, str]]], tuple[int, ...]] = {}
        self.vectors: Columns = np.zeros((first, table.shape[0]), dtype=np.int64)
        self._largest: dict[int, int] = {}
        self._largest_of = -1
        self.eligible: Flags = np.zeros((first, table.shape[1]), dtype=np.bool_)
        self.strict = Strict(table)
        self._nodes = Eligibility(table)

    def __getitem__(self, number: int) -> Demand:
        record = self.records[number]
        assert record is not None, f"demand {number} is not there"
        return record

    def resize(self) -> None:
        """Follow the table's growth, and the number of demands."""
        dims, rows = self._table.shape
        count = len(self.records)
        if self.vectors.shape == (count, dims) and self.eligible.shape == (count, rows):
            return
        used = self.used
        self.vectors = np.asarray(reshaped(self.vectors, (count, dims), used), dtype=np.int64)
        self.eligible = np.asarray(reshaped(self.eligible, (count, rows), used), dtype=np.bool_)
        self.strict.resize()
        self._nodes.resize()

    @property
    def used(self) -> int:
        """Numbers from this one on are free."""
        return max(self.numbers.values(), default=-1) + 1

    def add(self, demand: Demand) -> int:
        """Take a demand as it is now; returns its number."""
        number = self.numbers.get(demand.key)
        if number is None:
            number = self._number()
            self.numbers[demand.key] = number
        before = self.records[number]
        self._place(number, before, demand)
        self.records[number] = demand
        self.changes += 1
        if before is None or before.vector != demand.vector:
            self.vectors[number] = self._table.vector(demand.vector)
        if before is None or (before.where, before.needs) != (demand.where, demand.needs):
            self.strict.set_needs(number, demand.needs)
            self.eligible[number] = self.strict.judge_all(number, self._nodes.admitted(demand.where))
        (self.spread.add if demand.spread or demand.anchors else self.spread.discard)(number)
        if demand.reserved is not None:
            self.reservations.set(number, demand.reserved)
        restricts = demand.reserved is None and demand.owner_fit is OwnerFit.RESTRICTED
        (self.restricted.add if restricts else self.restricted.discard)(number)
        if before is None or _arranged(before) != _arranged(demand):
            self._arrange()
        return number

    def set_left(self, number: int, vector: Resources) -> None:
        """What pods leave of a demand that they share; as cheap as a bind must be."""
        self.records[number] = replace(self[number], vector=vector)
        self.vectors[number] = self._table.vector(vector)
        self.changes += 1
        if not set(np.flatnonzero(self.vectors[number]).tolist()) <= {*self.dims}:
            self._arrange()

    def naming(self, resources: AbstractSet[str]) -> list[int]:
        """The demands that ask for one of these resources."""
        return [number for number in self.order if not resources.isdisjoint(self[number].vector)]

    def follow_columns(self, naming: Iterable[int]) -> None:
        """Write slot vectors anew: resources of them have got a column, or have none any more."""
        for number in naming:
            self.vectors[number] = self._table.vector(self[number].vector)
        self._arrange()

    def nowhere(self, number: int) -> str:
        """The first resource of a demand that no node offers, or ""."""
        vector = self[number].vector
        return min((name for name in vector if name not in self._table.dims), default="")

    def there(self, number: int) -> bool:
        """False for NO_DEMAND, and for the number of a demand that has been removed."""
        return number != NO_DEMAND and self.records[number] is not None

    def remove(self, key: str) -> int | None:
        """Forget a demand; returns the number it had, which no other gets before it is given back."""
        number = self.numbers.pop(key, None)
        if number is None:
            return None
        self._place(number, self.records[number], None)
        self.records[number] = None
        self._leaving.add(number)
        self.strict.set_needs(number, None)
        self.reservations.set(number, None)
        self.spread.discard(number)
        self.restricted.discard(number)
        self.vectors[number] = 0
        self.eligible[number] = False
        self._arrange()
        return number

    def give_back(self, number: int) -> None:
        """No claim has the number of this removed demand any more."""
        self._leaving.discard(number)

    def _number(self) -> int:
        for number, record in enumerate(self.records):
            if record is None and number not in self._leaving:
                return number
        count = len(self.records)
        self.records += [None] * count
        self.resize()
        return count

    def _place(self, number: int, before: Demand | None, after: Demand | None) -> None:
        """Keep what is looked up by a demand's own words: hundreds of others have not changed."""
        if after is not None:
            key = order_key(after), number
            if self._keys.get(number) != key:
                self._keys[number] = key
                self._move(number, after.namespace)
        elif before is not None:
            del self._keys[number]
            self._move(number, before.namespace)
        if before is not None and after is not None and before.where == after.where:
            return
        if before is not None:
            there = self._by_place[before.where]
            del there[number]
            if not there:
                del self._by_place[before.where]
        if after is not None:
            self._by_place.setdefault(after.where, {})[number] = None

    def _move(self, number: int, namespace: str) -> None:
        """Give a demand its place in the order, of all and of its namespace; none when it is gone."""
        self.order = self._moved(self.order, number)
        rivals = self._moved(self._by_namespace.pop(namespace, []), number)
        if rivals:
            self._by_namespace[namespace] = rivals

    def _moved(self, numbers: Sequence[int], number: int) -> list[int]:
        moved = [one for one in numbers if one != number]
        if number in self._keys:
            insort(moved, number, key=self._keys.__getitem__)
        return moved

    def _arrange(self) -> None:
        self.position = dict(zip(self.order, range(len(self.order)), strict=True))
        self.levels = sorted({record.priority for record in self.records if record is not None})
        used = (
            np.count_nonzero(self.vectors[self.order], axis=0) if self.order else np.zeros(0, dtype=np.intp)
        )
        self.dims = sorted(np.flatnonzero(used).tolist(), key=self._table.resources.__getitem__)
        self._named_most = sorted(self.dims, key=lambda dim: -int(used[dim]))[:_MOST_WEIGHED]
        self.resources = [self._table.resources[dim] for dim in self.dims]
        self.axis = np.asarray(self.dims, dtype=np.intp)[:, None]
        self.changes += 1
        self._owners.clear()

    def weighed(self, number: int) -> list[int]:
        """The columns that decide where holds of a demand go: what it asks for, and what most demands do."""
        if len(self.dims) <= _MOST_WEIGHED:
            return self.dims
        return sorted({*self._named_most, *np.flatnonzero(self.vectors[number]).tolist()})

    def largest(self, dim: int) -> int:
        """The most that any slot has of a column."""
        if self._largest_of != self.changes:
            self._largest, self._largest_of = {}, self.changes
        found = self._largest.get(dim)
        if found is None:
            found = self._largest[dim] = int(self.vectors[:, dim].max(initial=0))
        return found

    def level(self, priority: int) -> int:
        """Index of the lowest level that a pod of this priority sees; len(levels) when it sees none."""
        return bisect_left(self.levels, priority)

    def floating(self, number: int) -> bool:
        """True when its holds may move while their node is there."""
        return self[number].mode is PlacementMode.FLOATING

    def _eligible(self, number: int, row: int, node: Node | None) -> bool:
        willing = node is not None and node.ready and admits_node(self[number].where, node)
        return self.strict.judge(number, row, willing)

    def judge_node(self, row: int, node: Node | None, before: Node | None) -> bool:
        """Judge one node for every demand; True when an answer changed. `before`: as it was judged last."""
        if node is not None and before is not None and _traits(node) == _traits(before):
            return False
        self._nodes.set_node(row, node)
        self.changes += 1
        self.relabelled += node is None or before is None or node.labels != before.labels
        was = self.eligible[:, row].copy()
        for where, numbers in self._by_place.items():
            willing = node is not None and node.ready and admits_node(where, node)
            for number in numbers:
                self.eligible[number, row] = self.strict.judge(number, row, willing)
        return bool((was != self.eligible[:, row]).any())

    def discouraged(self, rows: Rows) -> bool:
        """Whether a soft taint of one of these nodes, as last heard of, makes others the better ones."""
        return self._nodes.discouraged(rows)

    def tolerated(self, tolerations: tuple[Toleration, ...], rows: Rows) -> Flags:
        """Whether these tolerate the hard taints and the cordon of each of these nodes, as last heard of."""
        return self._nodes.tolerated(tolerations, rows)

    def admitted(self, where: NodePredicate) -> Flags:
        """The ready nodes that admit pods so constrained, [row]."""
        return self._nodes.admitted(where)

    def hear(self, name: str, said: Enforcement | None) -> bool:
        """Take what a node says it enforces; True when an answer changed."""
        changed = self.strict.say(name, said)
        self.changes += bool(changed)
        for number in changed:
            row = self._table.index[name]
            self.eligible[number, row] = self._eligible(number, row, self._table.nodes[row])
        return bool(changed)

    def owned_by(self, pod: Pod) -> int:
        """The first demand of its namespace, in order, whose selector matches the pod, and which it fits.

        NO_DEMAND without one. Before that the Reservation that a bound pod uses.
        """
        if pod.reserved_by:
            number = self.reservations.used_by(pod)
            if number != NO_DEMAND:
                return number
        return self.policy_of(pod)

    def policy_of(self, pod: Pod) -> int:
        """The same, whatever Reservation it uses."""
        for number in self.selecting(pod.namespace, pod.labels):
            if self[number].admits(pod.requests):
                return number
        return NO_DEMAND

    def misfit_of(self, pod: Pod) -> int:
        """The first demand that would own the pod, did it not ask for more than a slot; NO_DEMAND: it has an
        owner, or none selects it.
        """
        if not self.restricted or self.owned_by(pod) != NO_DEMAND:
            return NO_DEMAND
        return next(iter(self.selecting(pod.namespace, pod.labels)), NO_DEMAND)

    def selecting(self, namespace: str, labels: Mapping[str, str]) -> tuple[int, ...]:
        """The demands that select pods of these labels, in order, up to the first that any pod fits."""
        rivals = self._by_namespace.get(namespace)
        if rivals is None:
            return ()
        key = (namespace, frozenset(labels.items()))
        found = self._owners.get(key)
        if found is None:
            fitting = (number for number in rivals if matches(self[number].selector, labels))
            found = self._up_to_one_for_all(fitting)
            if len(self._owners) >= _MOST_LABEL_SETS:
                self._owners.clear()
            if len(labels) <= _MOST_LABELS:
                self._owners[key] = found
        return found

    def _up_to_one_for_all(self, numbers: Iterable[int]) -> tuple[int, ...]:
        found = []
        for number in numbers:
            found.append(number)
            if number not in self.restricted:
                break
        return tuple(found)

    def owed(self, number: int) -> Resources:
        """What a pod that fills a slot of this demand counts for at least; empty: what it requests."""
        record = self.records[number] if number != NO_DEMAND else None
        return _NOTHING if record is None else record.owed

    def counts(self, pod: Pod, owner: int) -> Resources:
        """What a pod of this demand takes of its node: its requests, and what a slot owes it beyond them.

        Of which nobody has said that it fills no slot, fills one: nodes take it so, too.
        """
        owed, requests = self.owed(owner), pod.requests
        if not owed or pod.slot == NO_SLOT:
            return requests
        if all(requests.get(name, 0) >= amount for name, amount in owed.items()):
            return requests
        return {**requests, **{name: max(requests.get(name, 0), amount) for name, amount in owed.items()}}

    def rivals(self, namespace: str) -> list[int]:
        """The demands of a namespace, in order."""
        return self._by_namespace.get(namespace, [])

    def domains(self, number: int, spread: Spread) -> tuple[Rows, int]:
        """Each row's domain by one of a demand's constraints, -1 for none, and how many there are."""
        record = self[number]
        keys = _keys(record, spread)
        return self._nodes.domains(record.where, spread, keys)

    def alike(self, number: int, spread: Spread) -> object:
        """What decides the domains of a constraint: those of many demands are the same."""
        record = self[number]
        where = record.where if spread.honor_affinity or spread.honor_taints else None
        return where, spread.key, spread.honor_affinity, spread.honor_taints, _keys(record, spread)

    def meeting(self, volumes: Iterable[Terms]) -> Flags:
        """The nodes, ready or not, where volumes can be used, each on nodes that meet its terms."""
        return self._nodes.meeting(volumes)

    def label(self, row: int, key: str) -> str:
        """What a node's label says, "" without one."""
        node = self._table.nodes[row]
        return node.labels.get(key, "") if node is not None else ""

    def later(self, number: int) -> list[int]:
        """The demands strictly after this one, last first."""
        return self.order[: self.position[number] : -1]


def _keys(demand: Demand, spread: Spread) -> frozenset[str]:
    """The labels that a node has that is in a domain: those of all constraints of the same kind."""
    if spread.between_pods:
        return frozenset({spread.key})
    stated = (one for one in demand.spread if one.required == spread.required)
    return frozenset(one.key for one in stated if not one.between_pods)


def _arranged(demand: Demand) -> tuple[object, ...]:
    """What decides the order, the dimensions and the indexes; not how many slots are desired."""
    return order_key(demand), demand.vector, demand.selector, demand.where, demand.owner_fit


def _traits(node: Node) -> tuple[object, ...]:
    """What decides whether a node is eligible."""
    return node.ready, node.unschedulable, node.taints, node.labels


def losers(
    demands: Demands, kinds: Mapping[str, Iterable[frozenset[tuple[str, str]]]]
) -> Iterator[dict[str, str]]:
    """Demand key -> key of the demand that owns a pod both select, or that has the very same selector.

    `kinds`: the sets of labels that pods of a namespace have. Step by step: one namespace, or some of its
    sets, at a time.
    """
    for namespace in sorted({demands[number].namespace for number in demands.order} - {""}):
        rivals = demands.rivals(namespace)
        if len(rivals) > 1:
            selectors = [(demands[number].key, demands[number].selector) for number in rivals]
            yield _same_selector(selectors)
            sets = list(kinds.get(namespace, ()))
            size = max(1, _COMPARED_AT_ONCE // len(rivals))
            for start in range(0, len(sets), size):
                yield _same_pods(selectors, sets[start : start + size])


def _same_selector(selectors: Sequence[tuple[str, Selector]]) -> dict[str, str]:
    first: dict[frozenset[object], str] = {}
    lost = {}
    for key, selector in selectors:
        winner = first.setdefault(frozenset(selector.requirements), key)
        if winner != key:
            lost[key] = winner
    return lost


def _same_pods(
    selectors: Sequence[tuple[str, Selector]], sets: Iterable[frozenset[tuple[str, str]]]
) -> dict[str, str]:
    lost: dict[str, str] = {}
    for labels in map(dict, sets):
        matching = [key for key, selector in selectors if matches(selector, labels)]
        for loser in matching[1:]:
            lost.setdefault(loser, matching[0])
    return lost
