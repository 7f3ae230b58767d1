"""Quotas beside the ledger: who counts for them, and whom they refuse. What they are is not known here.

A pod takes of its quota what it asks for while it has a claim, or a charge in flight; what holds amount to is
theirs as well. All of it follows the ledger's own account, so that one commit point serves both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from ledger.demands import NO_DEMAND
from qos import keys
from qos.cluster.objects import Demand, Pod, Resources
from qos.cluster.quota import ElasticQuota

if TYPE_CHECKING:
    from ledger.requests import Request
    from ledger.state import State

Floor = tuple[tuple[str, str], Resources]
"""What is held for a pod, and for pods of which namespace and quota's label, "" for none."""


class Quotas(Protocol):
    """The account of quotas (quota.limits.Limits)."""

    def set(self, quota: ElasticQuota) -> bool:
        """Take a quota as it is now. False: nothing of it matters that has changed."""

    def remove(self, key: str) -> None:
        """It is gone."""

    def settle(self) -> None:
        """Bring in what was set and removed."""

    def set_cluster(self, amounts: Resources) -> None:
        """What all nodes have that pods can go to."""

    def count(self, pod: Pod, *, bound: bool) -> None:
        """Count a pod as it is now."""

    def forget(self, uid: str) -> bool:
        """Count it no longer. True: others may have what it waited for."""

    def hold(self, key: str, origin: tuple[str, str], amounts: Resources) -> None:
        """What a demand holds now."""

    def refusal(self, pod: Pod, floor: Floor | None, leaving: Iterable[Pod], coming: Iterable[Pod]) -> str:
        """Why a pod may not take what it asks for; "" where it may."""

    def permitted(
        self, pod: Pod, victims: Mapping[str, Collection[Pod]], floor: Floor | None, coming: Iterable[Pod]
    ) -> list[str]:
        """Of these ways to let a pod in, by whose end, those that quotas permit."""

    def kind(self, pod: Pod) -> object:
        """Pods of one kind, that ask for the same, are judged alike."""

    def room(self, pod: Pod) -> int | None:
        """How many such pods may come; None: as many as you like."""


def follow(state: State, uid: str) -> None:
    """A pod came, changed, was charged or claimed, or is gone."""
    if state.quotas is None:
        return
    claim, flight = state.claims.by_uid.get(uid), state.flights.by_uid.get(uid)
    pod = state.pods.get(uid) or state.asked.get(uid)
    if pod is None and (claim is not None or flight is not None):
        pod = claim.pod if claim is not None else flight.pod if flight is not None else None
    if pod is not None and not pod.terminal:
        state.quotas.count(pod, bound=claim is not None or flight is not None or bool(pod.node_name))
    elif state.quotas.forget(uid):
        state.changed()


def settle(state: State, quotas: Quotas) -> None:
    """Bring what nodes offer and what is held up to date; nothing of it for each pod that comes."""
    quotas.settle()
    if state.reoffered:
        state.reoffered = False
        offered = state.table.allocatable[:, state.table.usable].sum(axis=1).tolist()
        quotas.set_cluster(
            {name: sum_ for name, sum_ in zip(state.table.resources, offered, strict=True) if sum_}
        )
    for number in sorted(state.holds.reheld):
        if state.demands.there(number):
            demand = state.demands[number]
            quotas.hold(demand.key, _origin(demand), _held(state, number, demand))
    state.holds.reheld.clear()


def refusal(state: State, request: Request, leaving: Iterable[str] = (), mates: Collection[str] = ()) -> str:
    """Why its quota refuses a pod that has no claim; "" where it does not. leaving: UIDs of those that are
    out of account; mates: of those that do not come before it.
    """
    quotas, pod = state.quotas, request.pod
    if quotas is None or pod.uid in state.claims.by_uid:
        return ""
    settle(state, quotas)
    gone = [state.claims.by_uid[uid].pod for uid in leaving if uid in state.claims.by_uid]
    why = quotas.refusal(pod, _floor(state, request), gone, ahead(state, pod, mates))
    _forget_unknown(state, pod)
    return why


def _forget_unknown(state: State, pod: Pod) -> None:
    """After a call that comes late: nothing would take the pod out of the account."""
    known = state.pods.get(pod.uid) or state.asked.get(pod.uid)
    if known is None or known.terminal:
        follow(state, pod.uid)


def permitted(state: State, request: Request, victims: Mapping[str, Collection[str]]) -> Collection[str]:
    """The nodes where quotas permit that these pods, by UID, end for another, and let that one in then."""
    quotas, pod = state.quotas, request.pod
    if quotas is None:
        return victims.keys()
    settle(state, quotas)
    known = {
        node: [state.claims.by_uid[uid].pod for uid in uids if uid in state.claims.by_uid]
        for node, uids in victims.items()
    }
    found = quotas.permitted(pod, known, _floor(state, request), ahead(state, pod))
    _forget_unknown(state, pod)
    return found


def room(state: State, request: Request) -> int | None:
    """How many pods like this one its quota lets in; None: as many as you like."""
    if state.quotas is None:
        return None
    if refusal(state, request):
        return 0
    left = state.quotas.room(request.pod)
    return left if left is None else max(1, left)


def ahead(state: State, pod: Pod, mates: Collection[str] = ()) -> list[Pod]:
    """Pods that wait for their victims to end: what these leave of a quota is theirs (trap T14)."""
    waiting = state.nominations.by_uid
    if not waiting:
        return []
    others = (one for uid, (_, one) in waiting.items() if uid != pod.uid and uid not in mates)
    return [one for one in others if one.priority >= pod.priority]


def _floor(state: State, request: Request) -> Floor | None:
    """The slot that the pod fills, where one is held that no other pod was given."""
    number = request.owner
    if number == NO_DEMAND or state.demands.reservations.shares(number):
        return None
    demand = state.demands[number]
    free = state.holds.held_total[number] - state.holds.given_total[number]
    return (_origin(demand), demand.vector) if free > 0 and state.has_seat(number) else None


def _held(state: State, number: int, demand: Demand) -> Resources:
    """Without what owners in flight were given: these take it."""
    slots = max(0, state.holds.held_total[number] - state.holds.given_total[number])
    return {name: slots * amount for name, amount in demand.vector.items()} if slots else {}


def _origin(demand: Demand) -> tuple[str, str]:
    """Of the pods that its selector names, as far as that says it."""
    for one in demand.selector.requirements:
        if one.key == keys.QUOTA_NAME_LABEL and one.operator == "In" and len(one.values) == 1:
            return demand.namespace, one.values[0]
    return demand.namespace, ""
