"""The bind verb: the commit point. Check again, move, claim, with nothing in between (traps T01, T02)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from ledger import quotas
from ledger.claims import ClaimState
from ledger.decisions import BindDecision, Mode
from ledger.demands import NO_DEMAND, NO_SLOT
from ledger.flights import Flight
from ledger.judge import Verdict, commit, judge
from ledger.placement import settle
from ledger.preempt import left_out, victims_left
from ledger.refusals import (
    IN_DOUBT,
    NOT_RESERVED,
    UNKNOWN,
    WAITS_FOR_VICTIMS,
    in_the_way,
    policies_at,
    short_of,
    unable,
)
from ledger.requests import Request, request_of
from ledger.retries import Patience
from ledger.seats import fills_slot
from ledger.state import State, exempt
from ledger.waiting import Waiting
from qos.cluster.objects import Pod


def bind_pod(
    state: State, waiting: Waiting, pod: Pod, node: str, now: float, gone: Collection[str] = ()
) -> BindDecision:
    """Claim the node for the pod, or refuse (Strict only); see BindDecision. `gone`: UIDs of victims that
    are known to be.
    """
    state.now = max(state.now, now)
    if _already(state, pod, node):
        state.settle_flight(pod.uid)
        return _decided(state, pod)
    if elsewhere := _bound_elsewhere(state, pod, node):
        return BindDecision(refusal=f"the pod is bound to node {elsewhere}")
    if state.mode is Mode.STRICT and state.claims.node_in_doubt(pod.uid):
        return BindDecision(refusal=IN_DOUBT)
    patience = Patience(state)
    settle(state, patience=patience)
    flight = state.flights.drop(pod.uid)
    state.drop_claim(pod.uid)
    row = state.table.index.get(node, -1)
    request = request_of(state, pod, rows=np.asarray([row], dtype=np.intp))
    left = victims_left(state, pod, [node])
    verdict = _judged(state, request, row, left)
    why = _of_quota(state, request, left)
    if verdict is not None and not why and (awaited := _awaited(state, request, row, left, gone)):
        _wait(state, pod, flight)
        return BindDecision(refusal=WAITS_FOR_VICTIMS, awaited=awaited)
    if flight is not None:
        state.changed()
    if exempt(pod):
        state.counters["exempt"] += 1
    elif why:
        state.counters["quota_refusals"] += 1
        return BindDecision(refusal=why)
    elif verdict is None and state.mode is Mode.STRICT:
        state.counters["refusals"] += 1
        return BindDecision(refusal=_refusal(state, request, row))
    waiting.forget(pod.uid)
    return _claim(state, request, node, verdict, now, patience)


def _judged(state: State, request: Request, row: int, without: Sequence[str]) -> Verdict | None:
    """The verdict on one row, with these pods left out of account."""
    with left_out(state, without):
        return judge(state, request, np.asarray([row], dtype=np.intp), decided=True)


def _of_quota(state: State, request: Request, without: Sequence[str]) -> str:
    """Why the pod's quota refuses it, with these pods left out of account; "" where bind cannot refuse."""
    if state.mode is not Mode.STRICT or exempt(request.pod):
        return ""
    return quotas.refusal(state, request, without)


def _awaited(
    state: State, request: Request, row: int, left: Sequence[str], gone: Collection[str]
) -> tuple[Pod, ...]:
    """The victims, of those left, that must be known to be gone before the pod gets in, on the node and in
    its quota; none where bind cannot refuse.

    That kube-scheduler tries its nominated node does not show that they are: when it gives up a Binding that
    may still land it finds room there that is none.
    """
    unsure = [uid for uid in left if uid not in gone]
    if state.mode is not Mode.STRICT or exempt(request.pod) or not unsure:
        return ()
    known = [uid for uid in left if uid in gone]
    if _judged(state, request, row, known) is not None and not _of_quota(state, request, known):
        return ()
    return tuple(state.claims.by_uid[uid].pod for uid in unsure)


def _wait(state: State, pod: Pod, flight: Flight | None) -> None:
    """Its victims are still there. Their hole is its own, though kube-scheduler takes its nomination back."""
    if state.nominations.refuse(pod.uid, state.now):
        state.changed()
    elif flight is not None:
        state.flights.put(flight)


def _already(state: State, pod: Pod, node: str) -> bool:
    claim = state.claims.by_uid.get(pod.uid)
    return claim is not None and state.table.names[claim.row] == node


def _bound_elsewhere(state: State, pod: Pod, node: str) -> str:
    """The other node to which the pod is known to be bound, or "": its claim there must not be let go."""
    claim = state.claims.by_uid.get(pod.uid)
    if claim is None or claim.state is ClaimState.BINDING or state.table.names[claim.row] == node:
        return ""
    return state.table.names[claim.row]


def _selecting(state: State, pod: Pod, owner: int) -> str:
    """Key of the pod's policy; also of one whose slot it does not fit, so that the Binding says so."""
    number = state.demands.misfit_of(pod) if owner == NO_DEMAND else owner
    return state.demands[number].key if state.demands.there(number) else ""


def _decided(state: State, pod: Pod, moved: int = 0, unplaced: int = 0) -> BindDecision:
    """What the pod's claim comes to. Of a policy's pod that uses a Reservation, the policy fills no slot."""
    owner = state.claims.by_uid[pod.uid].owner
    reserved = state.demands.reservations.rules.get(owner)
    if reserved is not None:
        owner = state.demands.policy_of(pod)
    return BindDecision(
        policy=_selecting(state, pod, owner),
        slot=reserved is None and state.demands.there(owner) and fills_slot(state, owner),
        moved=moved,
        unplaced=unplaced,
        reservation=reserved,
    )


def _refusal(state: State, request: Request, row: int) -> str:
    if row < 0:
        return UNKNOWN
    if obstacle := unable(state, request, row):
        return obstacle
    if request.reserved_only:
        return NOT_RESERVED
    there = np.asarray([row], dtype=np.intp)
    keys = policies_at(state, request, there)
    return in_the_way(keys, request.pod.namespace) if keys else str(short_of(state, request, there)[0])


def _as_bound(state: State, request: Request) -> Pod:
    """The pod as its Binding will mark it, if that decides what it counts for: one beyond the slots is owed
    nothing. What it uses of Reservations is said there anew.
    """
    reserved = state.demands.reservations.rules.get(request.owner)
    if reserved is not None:
        return replace(request.pod, reserved_by=reserved.uid)
    if request.pod.reserved_by:
        return replace(request.pod, reserved_by="")
    if not state.demands.owed(request.owner) or state.has_seat(request.owner):
        return request.pod
    return replace(request.pod, slot=NO_SLOT)


def _claim(
    state: State, request: Request, node: str, verdict: Verdict | None, now: float, patience: Patience
) -> BindDecision:
    pod, unplaced, moves = request.pod, state.holds.unplaced, state.counters["moves"]
    if verdict is not None:
        commit(state, request, verdict)
    state.put_claim(_as_bound(state, request), node, ClaimState.BINDING, now)
    settle(state, patience=patience)
    return _decided(state, pod, state.counters["moves"] - moves, max(0, state.holds.unplaced - unplaced))
