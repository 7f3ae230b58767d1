"""Which demands are Reservations, and which of them a pod may come to use, by what their owners state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from qos.cluster.objects import Pod, Resources
from qos.cluster.reservation import PodOwner, Reserved

NONE: Final = -1
"""As ledger.demands.NO_DEMAND."""
_MOST_KINDS: Final = 20_000
_Bucket: TypeAlias = tuple[str, ...]


class Use(NamedTuple):
    """A pod that uses a Reservation for certain, and what it takes."""

    pod: Pod
    requests: Resources


class Reservations:
    """The demands that are Reservations, by what their owners state first.

    `enabled`: False where nobody asked for them: then pods' words about them mean nothing. `used_up`: by UID,
    the pods that used those up that are for one pod. `unreckoned`: those that are shared and whose pods have
    changed since it was worked out what they leave.
    """

    def __init__(self, *, enabled: bool = False) -> None:
        self.enabled = enabled
        self.rules: dict[int, Reserved] = {}
        self.by_uid: dict[str, int] = {}
        self.used_up: dict[str, Use] = {}
        self.unreckoned: set[int] = set()
        self._buckets: dict[_Bucket, dict[int, None]] = {}
        self._kinds: dict[object, tuple[int, ...]] = {}

    def set(self, number: int, reserved: Reserved | None) -> None:
        """Take a demand as it is now; None: it is no Reservation, or gone."""
        before = self.rules.pop(number, None)
        if before is not None:
            self.by_uid.pop(before.uid, None)
            self.unreckoned.discard(number)
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

    def shares(self, number: int) -> bool:
        """Whether several pods use this demand."""
        rule = self.rules.get(number)
        return rule is not None and rule.shared is not None

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
