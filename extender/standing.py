"""The placeholders that are there, and the owners that wait for one: as the watch and our own writes show."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from adapters.kubernetes import placeholders
from adapters.loops import OneAtATime
from qos import keys
from qos.cluster.objects import NodePredicate, Pod
from qos.cluster.placeholders import Placeholder
from qos.cluster.refusals import Refusals

log = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 1.0
"""How long a placeholder may wait to be bound before others make room on its node."""
UNSEEN_SECONDS: Final = 30.0
"""How long a placeholder counts that we made and no watch shows: it may have gone before the list began."""
_MOST_GONE: Final = 10_000


@dataclass(frozen=True, slots=True)
class Gated:
    """A pod that waits for schedulingGates, ours among them; `where`: which nodes admit it."""

    pod: Pod
    gates: tuple[str, ...]
    where: NodePredicate


class Standing:
    """Placeholders by policy, and gated pods.

    `namespace`: of placeholders; a pod with their label elsewhere is none. `clock`: seconds, monotonic.
    `changed` is called after each change. By UID: `gated`; `ended`, placeholders that kubelet refused or
    evicted; `places`, where pods may run that kube-scheduler refused; `aside`: placeholders that we have
    nominated no longer, for a while. `nominating`, by node: whoever nominates placeholders there, or has them
    step aside, does so alone. `versions` differ when a policy's
    placeholders changed. `refusals`: of which nodes' kubelets.
    """

    def __init__(self, namespace: str, changed: Callable[[], None], clock: Callable[[], float]) -> None:
        self.gated: dict[str, Gated] = {}
        self.ended: dict[str, Placeholder] = {}
        self.places: dict[str, NodePredicate] = {}
        self.aside: set[str] = set()
        self.nominating = OneAtATime()
        self.versions: Counter[str] = Counter()
        self.refusals = Refusals()
        self._namespace = namespace
        self._changed = changed
        self._clock = clock
        self._by_uid: dict[str, Placeholder] = {}
        self._by_policy: dict[str, dict[str, Placeholder]] = {}
        self._bound: dict[str, dict[str, str]] = {}
        self._asked: dict[str, float] = {}
        self._given: dict[str, Placeholder] = {}
        self._gone: dict[str, None] = {}
        self._unseen: dict[str, float] = {}

    def take(self, pod: Pod, raw: bytes) -> bool:
        """Take a pod as it is now; True for a placeholder, which is in no other account. DecodeError."""
        if self.is_placeholder(pod):
            self._take(pod, raw)
            return True
        waits = not (pod.node_name or pod.terminal or pod.deleting)
        gates = placeholders.gates(raw) if waits else ()
        if waits and pod.unschedulable_since:
            if pod.uid not in self.places:
                self._changed()
            self.places[pod.uid] = placeholders.placement(raw)
        else:
            self.places.pop(pod.uid, None)
        if keys.HAND_OVER_GATE in gates:
            self.gated[pod.uid] = Gated(pod, gates, placeholders.placement(raw))
            self._changed()
        else:
            self.gated.pop(pod.uid, None)
        return False

    def is_placeholder(self, pod: Pod) -> bool:
        """Whether it is a hold, and so no claim."""
        return pod.namespace == self._namespace and pod.labels.get(keys.PLACEHOLDER_LABEL) == "true"

    def _take(self, pod: Pod, raw: bytes) -> None:
        one = placeholders.placeholder(raw)
        self._unseen.pop(pod.uid, None)
        if pod.deleting or pod.terminal:
            self.drop(pod.uid)
        elif pod.uid not in self._gone:
            self.put(one)
        if pod.terminal and not pod.deleting and pod.uid not in self.ended:
            self.ended[pod.uid] = one
            reason = placeholders.ended_because(raw)
            if self.refusals.note(one.node, reason, self._clock()):
                log.warning("kubelet refuses or evicts placeholders node=%s reason=%s", one.node, reason)
            self._changed()

    def put(self, one: Placeholder) -> None:
        """Take a placeholder as it is now."""
        if self._by_uid.get(one.uid) == one:
            self._by_uid[one.uid] = self._by_policy[one.policy][one.uid] = one  # of another version perhaps
            return
        if one.bound:
            self._bound.setdefault(one.node, {})[one.uid] = one.policy
            self._asked.pop(one.uid, None)
        else:
            self._asked.setdefault(one.uid, self._clock())
        self._by_uid[one.uid] = one
        self._by_policy.setdefault(one.policy, {})[one.uid] = one
        self._note(one.policy)

    def nominated(self, one: Placeholder, *, nominated: bool = True) -> None:
        """kube-scheduler is told to keep its room, or no longer; the watch may have shown more already."""
        if self._by_uid.get(one.uid) == one:
            self.put(replace(one, nominated=nominated))
        if nominated:
            self.aside.discard(one.uid)
        elif one.uid in self._by_uid:
            self.aside.add(one.uid)

    def made(self, one: Placeholder) -> None:
        """We have created it. The watch may have shown it before the answer came: as it is now, or gone."""
        if one.uid not in self._by_uid and one.uid not in self._gone:
            self._unseen[one.uid] = self._clock()
            self.put(one)

    def forget_unseen(self) -> None:
        """Leave out what has not been shown for long; if it is there after all, the watch will tell."""
        due = self._clock() - UNSEEN_SECONDS
        for uid in [uid for uid, since in self._unseen.items() if since <= due]:
            self.drop(uid)
            self._gone.pop(uid, None)

    def remove(self, uid: str) -> bool:
        """A pod is gone; True when it was a placeholder."""
        self.gated.pop(uid, None)
        self.places.pop(uid, None)
        self.ended.pop(uid, None)
        ours = uid in self._by_uid or uid in self._gone
        self.drop(uid)
        return ours

    def drop(self, uid: str) -> None:
        """A placeholder was deleted, whatever watches still show of it."""
        one = self._by_uid.pop(uid, None)
        self._given.pop(uid, None)
        self._unseen.pop(uid, None)
        self.aside.discard(uid)
        if one is None:
            return
        self._asked.pop(uid, None)
        if one.bound:
            there = self._bound[one.node]
            del there[uid]
            if not there:
                del self._bound[one.node]
        self._gone[uid] = None
        if len(self._gone) > _MOST_GONE:
            del self._gone[next(iter(self._gone))]
        own = self._by_policy[one.policy]
        del own[uid]
        if not own:
            del self._by_policy[one.policy]
        self._note(one.policy)

    def give(self, one: Placeholder) -> bool:
        """It goes, or an owner takes its place: it is no hold any more. False when that was said before."""
        if one.uid in self._given:
            return False
        self._given[one.uid] = one
        self._note(one.policy)
        return True

    def take_back(self, one: Placeholder) -> None:
        """It did not go."""
        if self._given.pop(one.uid, None) is not None:
            self._note(one.policy)

    def stays(self, one: Placeholder) -> None:
        """It did not go, because it has become what it is now; the watch may not have shown that yet."""
        self.take_back(one)
        if one.uid in self.ended:
            self.ended[one.uid] = one
        if one.uid in self._by_uid:
            self.put(one)

    def _note(self, policy: str) -> None:
        self.versions[policy] += 1
        self._changed()

    def of(self, policy: str) -> list[Placeholder]:
        """A policy's placeholders, without those that are given to owners."""
        return [one for one in self._by_policy.get(policy, {}).values() if one.uid not in self._given]

    def asking(self, node: str) -> list[Placeholder]:
        """Placeholders of all policies that wait to be bound to this node."""
        return [one for one in self.waiting() if one.node == node]

    def going(self, node: str) -> list[Placeholder]:
        """Those that wait to be bound to this node, and are given to owners or about to go."""
        there = [self._by_uid[uid] for uid in self._asked if uid in self._given]
        return [one for one in there if one.node == node]

    def waiting(self) -> list[Placeholder]:
        """Those that wait to be bound, without those that are given to owners."""
        return [self._by_uid[uid] for uid in self._asked if uid not in self._given]

    def waits(self, uid: str) -> bool:
        """Whether a placeholder is there and not bound."""
        return uid in self._asked

    def beyond(self, node: str, wanted: Mapping[str, int]) -> list[Placeholder]:
        """Those that wait to be bound to this node though no hold there needs them. `wanted`: holds there."""
        asking = sorted(self.asking(node), key=lambda one: (not one.nominated, one.name))
        there = {policy: self.of(policy) for policy in {one.policy for one in asking}}
        found, left = list[Placeholder](), Counter[str]()
        for policy, own in there.items():
            left[policy] = wanted.get(policy, 0) - sum(one.bound and one.node == node for one in own)
        for one in asking:
            left[one.policy] -= 1
            if left[one.policy] < 0:
                found.append(one)
        return found

    def policies(self) -> Iterable[str]:
        """Keys of the policies that have any."""
        return [*self._by_policy]

    def nodes(self, policy: str) -> list[tuple[str, int]]:
        """Where a policy's bound placeholders stand, and how many: holds lay there before a restart."""
        return sorted(Counter(one.node for one in self.of(policy) if one.bound).items())

    def bound_on(self, node: str, form: str = "") -> Counter[str]:
        """How many are bound there of each policy, of a `form` if one is asked for, without those that are
        given to owners.
        """
        there = {uid: policy for uid, policy in self._bound.get(node, {}).items() if uid not in self._given}
        some = (uid for uid in there if not form or self._by_uid[uid].form == form)
        return Counter(there[uid] for uid in some)

    def bound_among(self, policy: str, nodes: Collection[str]) -> int:
        """How many of a policy's are bound on these nodes."""
        return sum(one.bound and one.node in nodes for one in self.of(policy)) if nodes else 0

    def counted_on(self, node: str, priority: int, wanted: Mapping[str, int], but: str = "") -> Counter[str]:
        """How many of each policy kube-scheduler counts there for a pod of this priority, without one: all
        that are bound, also those that are about to go, and those nominated that holds need. Others step
        aside (extender.giving). `wanted`: holds there.
        """
        there = {uid: policy for uid, policy in self._bound.get(node, {}).items() if uid != but}
        asking = [one for one in self.asking(node) if one.nominated and one.priority >= priority]
        beyond = {one.uid for one in self.beyond(node, wanted)} if asking else set[str]()
        nominated = (one.policy for one in asking if one.uid != but and one.uid not in beyond)
        return Counter([*there.values(), *nominated])

    def late(self) -> set[str]:
        """UIDs of the placeholders that have waited to be bound for longer than PATIENCE_SECONDS."""
        due = self._clock() - PATIENCE_SECONDS
        return {uid for uid, since in self._asked.items() if since <= due}

    def asking_policies(self) -> set[str]:
        """Keys of the policies of which some are not bound."""
        return {self._by_uid[uid].policy for uid in self._asked}

    def count(self, *, bound: bool) -> int:
        """How many there are, bound or not."""
        return len(self._by_uid) - len(self._asked) if bound else len(self._asked)
