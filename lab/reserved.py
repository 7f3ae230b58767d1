"""What Koordinator's Reservations promise, worked out by the checker itself.

Shared with the extender is only how objects are read (qos.cluster.reservation's records).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lab.changes import PriorityClass
from lab.promises import Promise
from qos.cluster.objects import (
    NodePredicate,
    NodeSelectorTerm,
    Pod,
    Requirement,
    Resources,
    Selector,
    Toleration,
)
from qos.cluster.reservation import Reservation
from qos.keys import HIGHEST_USER_PRIORITY, PODS


@dataclass(slots=True)
class Reserved:
    """Reservations by name, and who uses them. `users`: pods by UID, of each Reservation's UID; those of one
    that is for one pod stay when they end.
    """

    known: dict[str, Reservation] = field(default_factory=dict)
    users: dict[str, dict[str, Pod]] = field(default_factory=dict)

    def see(self, pod: Pod, *, gone: bool) -> bool:
        """A pod as it became; whether promises may be others for that. One without a node uses none: what was
        decided of it did not happen.
        """
        if not pod.node_name:
            known = [users.pop(pod.uid, None) for users in self.users.values()]
            return any(known)
        if not pod.reserved_by:
            return False
        there = self.users.setdefault(pod.reserved_by, {})
        if not (gone or pod.terminal):
            there[pod.uid] = pod
        elif not any(one.uid == pod.reserved_by and one.once for one in self.known.values()):
            there.pop(pod.uid, None)
        return bool(self.known)

    def promises(self, now: float, classes: Mapping[str, PriorityClass]) -> Iterable[Promise]:
        """One slot of each that is Available; of one that is shared the slots of its pods, and the rest."""
        for one in self.known.values():
            ended = one.expires is not None and one.expires <= now
            users = self.users.get(one.uid, {})
            if one.phase != "Available" or ended or (one.once and users):
                continue
            yield Promise(
                key=f"/{one.name}",
                namespace="",
                selector=Selector(),
                vector=_rest(one.vector, () if one.once else users.values()),
                slots=1 + len(users),
                priority=_priority(one, classes),
                created=one.created,
                where=_on(one.node),
                pinned=True,
                reservation=one.uid,
            )

    def misused(self, pod: Pod) -> str:
        """What is wrong with the Reservation that a pod uses, which was bound just now; "" nothing."""
        one = next((one for one in self.known.values() if one.uid == pod.reserved_by), None)
        if one is None:
            return ""
        users = self.users.get(one.uid, {})
        if one.node and pod.node_name != one.node:
            return f"Reservation {one.name} is on node {one.node}"
        if one.once and len(users) > 1:
            return f"Reservation {one.name} is for one pod, and {len(users)} have used it"
        taken = {name: sum(user.requests.get(name, 0) for user in users.values()) for name in one.vector}
        over = [name for name, amount in taken.items() if name != PODS and amount > one.vector[name]]
        if one.restricted and over:
            return f"Reservation {one.name} is Restricted, and its pods take more than it has of {over[0]}"
        return ""


def _rest(reserved: Resources, users: Iterable[Pod]) -> Resources:
    users = list(users)
    left = {r: max(0, v - sum(u.requests.get(r, 0) for u in users)) for r, v in reserved.items()}
    return left | {PODS: 1}


def _on(node: str) -> NodePredicate:
    term = NodeSelectorTerm(fields=(Requirement("metadata.name", "In", (node,)),))
    return NodePredicate((), (term,), (Toleration(operator="Exists"),))


def _priority(one: Reservation, classes: Mapping[str, PriorityClass]) -> int:
    if one.priority is not None:
        return one.priority
    known = classes.get(one.priority_class_name)
    return known.value if known is not None else HIGHEST_USER_PRIORITY
