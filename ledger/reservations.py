"""Which Reservations pods use: found by what their owners state, chosen by order and how much is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from qos.cluster.objects import Pod, Resources
from qos.cluster.reservation import PodOwner, Reserved

if TYPE_CHECKING:
    from ledger.state import State
    from ledger.table import Rows

NONE: Final = -1
"""As ledger.demands.NO_DEMAND."""
_MOST_KINDS: Final = 20_000
_MOST_WEIGHED: Final = 200
"""Reservations of one order that a pod could use and that are compared with each other."""
_Bucket: TypeAlias = tuple[str, ...]


class Use(NamedTuple):
    """A pod that uses a Reservation for certain, and what it takes."""

    pod: Pod
    requests: Resources


class Account(NamedTuple):
    """What became of a Reservation: where it is held, and who uses it; `node`: "" where that is nowhere."""

    node: str = ""
    used_up: Use | None = None


class Reservations:
    """The demands that are Reservations, by what their owners state first.

    `enabled`: False where nobody asked for them: then pods' words about them mean nothing. `used_up`: by UID,
    the pods that used those up that are for one pod.
    """

    def __init__(self, *, enabled: bool = False) -> None:
        self.enabled = enabled
        self.rules: dict[int, Reserved] = {}
        self.by_uid: dict[str, int] = {}
        self.used_up: dict[str, Use] = {}
        self._buckets: dict[_Bucket, dict[int, None]] = {}
        self._kinds: dict[object, tuple[int, ...]] = {}

    def set(self, number: int, reserved: Reserved | None) -> None:
        """Take a demand as it is now; None: it is no Reservation, or gone."""
        before = self.rules.pop(number, None)
        if before is not None:
            self.by_uid.pop(before.uid, None)
            for owner in before.owners:
                self._drop(_bucket(owner), number)
        if reserved is not None:
            self.rules[number] = reserved
            self.by_uid[reserved.uid] = number
            for owner in reserved.owners:
                self._buckets.setdefault(_bucket(owner), {})[number] = None
        if before != reserved:
            self._kinds.clear()

    def _drop(self, bucket: _Bucket, number: int) -> None:
        there = self._buckets.get(bucket)
        if there is not None:
            there.pop(number, None)
            if not there:
                del self._buckets[bucket]

    def used_by(self, pod: Pod) -> int:
        """The Reservation that a bound pod says it uses, if it may; else NONE."""
        number = self.by_uid.get(pod.reserved_by, NONE)
        if number == NONE or pod.node_name not in ("", self.rules[number].node):
            return NONE
        return number if self.rules[number].owned_by(pod) else NONE

    def candidates(self, pod: Pod) -> tuple[int, ...]:
        """Those that are Available and that the pod may come to use, lowest order first, then by name."""
        if not self.rules:
            return ()
        if any(bucket in self._buckets for bucket in _buckets_of_one(pod)):
            return self._found(pod)
        kind = pod.namespace, frozenset(pod.labels.items()), pod.controller, pod.reservation_affinity
        found = self._kinds.get(kind)
        if found is None:
            if len(self._kinds) >= _MOST_KINDS:
                self._kinds.clear()
            found = self._kinds[kind] = self._found(pod)
        return found

    def _found(self, pod: Pod) -> tuple[int, ...]:
        buckets = (*_buckets_of_one(pod), *_buckets_of_kind(pod))
        numbers = {number for bucket in buckets for number in self._buckets.get(bucket, ())}
        fitting = (number for number in numbers if self.rules[number].node and self.rules[number].admits(pod))
        return tuple(sorted(fitting, key=lambda number: (self._rank(number), self.rules[number].name)))

    def _rank(self, number: int) -> float:
        return self.rules[number].order or float("inf")

    def groups(self, pod: Pod) -> Iterator[list[int]]:
        """The candidates of a pod, those of the same order together."""
        group: list[int] = []
        for number in self.candidates(pod):
            if group and self._rank(group[0]) != self._rank(number):
                yield group
                group = []
            group.append(number)
        if group:
            yield group


def account(state: State, key: str) -> Account:
    """The account of a Reservation's demand, which may not be there."""
    number = state.demands.numbers.get(key)
    if number is None:
        return Account()
    rows = np.flatnonzero(state.holds.count[number]).tolist() if state.holds.held_total[number] else []
    rule = state.demands.reservations.rules[number]
    return Account(
        state.table.names[rows[0]] if rows else "", state.demands.reservations.used_up.get(rule.uid)
    )


def choose(state: State, pod: Pod, rows: Rows | None, avoid: int = NONE) -> int:
    """The Reservation that a pod is to use, on one of these rows or, if None, on any; NONE without one.

    The lowest order first; of those, the one that the pod would fill most. `avoid`: a row to choose last.
    """
    reservations = state.demands.reservations
    if not reservations.rules:
        return NONE
    asked = None if rows is None else np.zeros(state.table.shape[1], dtype=np.bool_)
    if asked is not None and rows is not None:
        asked[rows[rows >= 0]] = True
    last = NONE
    for group in reservations.groups(pod):
        weighed: list[tuple[float, str, int, int]] = []
        for number in group:
            row = _free_at(state, number)
            if row < 0 or not (asked is None or asked[row]):
                continue
            if not (state.demands[number].admits(pod.requests) and _fits(state, number, row, pod)):
                continue
            filled = _filled(state, number, pod)
            weighed.append((-filled, reservations.rules[number].name, number, row))
            if len(weighed) == _MOST_WEIGHED:
                break
        others = [one for one in weighed if one[3] != avoid]
        if others:
            return min(others)[2]
        if weighed and last == NONE:
            last = min(weighed)[2]
    return last


def _free_at(state: State, number: int) -> int:
    """The row where a Reservation is held for whoever comes; -1: nowhere."""
    row = state.table.index.get(state.demands.reservations.rules[number].node, -1)
    return row if row >= 0 and state.holds.movable(number, row) else -1


def _fits(state: State, number: int, row: int, pod: Pod) -> bool:
    """Whether the node has beside the Reservation what the pod asks for beyond it."""
    slot, table = state.demands[number].vector, state.table
    for name, amount in pod.requests.items():
        beyond, dim = amount - slot.get(name, 0), table.dims.get(name)
        if beyond <= 0 or dim is None:
            continue
        left = table.free[dim, row] - table.charged[dim, row] - table.possible[dim, row]
        if beyond > left - state.holds.all[dim, row]:
            return False
    return True


def _filled(state: State, number: int, pod: Pod) -> float:
    """How much of it would be used, 0..1, as the mean over what is reserved."""
    slot = state.demands[number].vector
    shares = [min(1.0, pod.requests.get(name, 0) / amount) for name, amount in slot.items() if amount]
    return sum(shares) / len(shares) if shares else 0.0


def _bucket(owner: PodOwner) -> _Bucket:
    """Where pods look for this owner: by the one thing it states that fewest pods share."""
    by = owner.controller
    if owner.uid or owner.name:
        return ("uid", owner.uid) if owner.uid else ("name", owner.name)
    if by is not None and (by.uid or by.name):
        return ("controller uid", by.uid) if by.uid else ("controller", by.name)
    for one in owner.selector.requirements if owner.selector else ():
        if one.operator == "In" and len(one.values) == 1:
            return ("label", one.key, one.values[0])
    return ("namespace", owner.namespace) if owner.namespace else ("any",)


def _buckets_of_one(pod: Pod) -> tuple[_Bucket, ...]:
    """Where owners are that state this very pod."""
    return ("uid", pod.uid), ("name", pod.name)


def _buckets_of_kind(pod: Pod) -> Iterator[_Bucket]:
    """Where owners are that state what pods of one kind share."""
    if pod.controller is not None:
        yield from (("controller uid", pod.controller.uid), ("controller", pod.controller.name))
    yield from (("label", key, value) for key, value in pod.labels.items())
    yield from (("namespace", pod.namespace), ("any",))
