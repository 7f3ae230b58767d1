"""Whose slots pods fill: found anew, some pods at a time, when the demands of their namespace change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from ledger.claims import Claims
from ledger.demands import NO_DEMAND, Demands
from qos.cluster.objects import Pod

LabelSet: TypeAlias = frozenset[tuple[str, str]]
_EFFORT_A_STEP = 12_000
"""About two milliseconds: so many claims looked at that keep their owner."""
_CHANGE, _LABEL_SET, _RIVAL, _RECKON = 10, 10, 4, 6
_CLAIMS_AT_ONCE: Final = 100


def label_set(pod: Pod) -> LabelSet:
    """A pod's labels: pods of one namespace with the same ones are owned by the same demand."""
    return frozenset(pod.labels.items())


class Ownership:
    """Known pods by namespace and labels, and the namespaces whose claims have still to find their owner.

    Until then a namespace is `unsettled`: its demands' filled slots are not all counted, so nothing is placed
    for them, and nothing lifted. What changes meanwhile begins another pass after the one under way, so that
    each comes to its end. A demand that is removed leaves its number to no other before a pass that began
    after that is over: claims may have it until then. `users`: pods that say that they use a Reservation, by
    its UID.
    """

    def __init__(self, claims: Claims, demands: Demands) -> None:
        self._claims = claims
        self._demands = demands
        self.kinds: dict[str, dict[LabelSet, set[str]]] = {}
        self._passes: dict[str, Iterator[int]] = {}
        self._again: set[str] = set()
        self._removed: dict[str, list[int]] = {}
        self.users: dict[str, set[str]] = {}

    def remember(self, pod: Pod) -> None:
        """Take a pod whose namespace or labels are new."""
        self.kinds.setdefault(pod.namespace, {}).setdefault(label_set(pod), set()).add(pod.uid)
        if pod.reserved_by:
            self.users.setdefault(pod.reserved_by, set()).add(pod.uid)

    def forget(self, pod: Pod) -> None:
        """The pod is gone, or has other labels now."""
        kinds, labels = self.kinds[pod.namespace], label_set(pod)
        kinds[labels].discard(pod.uid)
        if not kinds[labels]:
            del kinds[labels]
        if not kinds:
            del self.kinds[pod.namespace]
        users = self.users.get(pod.reserved_by)
        if users is not None:
            users.discard(pod.uid)
            if not users:
                del self.users[pod.reserved_by]

    def unsettled(self, namespace: str) -> bool:
        """True while claims of its pods may have another owner than the demands say."""
        return namespace in self._passes

    @property
    def under_way(self) -> bool:
        """True while any namespace is unsettled."""
        return bool(self._passes)

    def begin(self, namespace: str, removed: int = NO_DEMAND) -> None:
        """The demands of a namespace have changed; `removed`: the number of one that is gone."""
        if removed != NO_DEMAND:
            self._removed.setdefault(namespace, []).append(removed)
        if namespace in self._passes:
            self._again.add(namespace)
        else:
            self._passes[namespace] = self._find(namespace)

    def step(self) -> bool:
        """Some of what is left to be done; True when a namespace has been settled."""
        effort, settled = _EFFORT_A_STEP, False
        while self._passes and effort > 0:
            namespace, found = next(iter(self._passes.items()))
            for spent in found:
                effort -= spent
                if effort <= 0:
                    return settled
            del self._passes[namespace]
            if namespace in self._again:
                self._again.discard(namespace)
                self._passes[namespace] = self._find(namespace)
            else:
                settled = True
        return settled

    def _find(self, namespace: str) -> Iterator[int]:
        """One pass over the claims of a namespace's pods; yields what it took."""
        removed = self._removed.pop(namespace, [])
        yield from self._find_unseen()
        for labels in [*self.kinds.get(namespace, {})]:
            uids = [*self.kinds.get(namespace, {}).get(labels, ())]
            owner = self._owner_of_all(namespace, labels) if uids else NO_DEMAND
            yield _LABEL_SET + _RIVAL * len(self._demands.rivals(namespace))
            look = _CHANGE if owner is None else _RECKON if self._demands.owed(owner) else 1
            for start in range(0, len(uids), _CLAIMS_AT_ONCE):
                some = uids[start : start + _CLAIMS_AT_ONCE]
                still = self.kinds.get(namespace, {}).get(labels, set()).intersection(some)
                yield look * len(some) + _CHANGE * self._claims.own(still, owner)
        for number in removed:
            for uid in [*self._claims.of.get(number, ())]:  # a Reservation's are of any namespace
                self._claims.own_again(uid)
            self._demands.give_back(number)

    def _owner_of_all(self, namespace: str, labels: LabelSet) -> int | None:
        """The demand that owns all pods of these labels; None where it depends on what they request."""
        found = self._demands.selecting(namespace, dict(labels))
        if not self._demands.restricted.isdisjoint(found):
            return None
        return next(iter(found), NO_DEMAND)

    def _find_unseen(self) -> Iterator[int]:
        """Their pods may be known by other labels, or not at all."""
        uids = [*self._claims.unseen]
        for start in range(0, len(uids), _CLAIMS_AT_ONCE):
            some = uids[start : start + _CLAIMS_AT_ONCE]
            for uid in some:
                self._claims.own_again(uid)
            yield (1 + _CHANGE) * len(some)
