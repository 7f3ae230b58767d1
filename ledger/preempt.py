"""The preempt verb: keep only candidates where the evictions really lead to a bind (traps T14, T23)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from ledger.decisions import Mode
from ledger.demands import NO_DEMAND
from ledger.flights import Offer
from ledger.judge import Verdict, board_for, commit, moved, own_flags
from ledger.moves import Search
from ledger.placement import settle
from ledger.requests import Request, avail, request_of, sees, vector_of
from ledger.state import State, exempt
from qos.cluster.objects import Pod


def candidates(state: State, pod: Pod, victims: Mapping[str, Sequence[str]], now: float) -> list[str]:
    """The nodes to keep, in the order given.

    `victims` maps a node to the UIDs that would be evicted there.
    """
    state.now = max(state.now, now)
    if exempt(pod) or state.mode is Mode.OBSERVE:
        return list(victims)
    settle(state)
    flight = state.flights.drop(pod.uid)
    request = request_of(state, pod)
    kept = [node for node, uids in victims.items() if _leads_to_bind(state, request, node, uids)]
    if flight is not None:
        state.flights.put(flight)
    state.offers[pod.uid] = Offer({node: tuple(victims[node]) for node in kept})
    return kept


@contextmanager
def victims_gone(state: State, pod: Pod, names: Sequence[str]) -> Iterator[None]:
    """Leave a preemptor's victims out of account while it is judged for the node they made room on.

    kube-scheduler tries a nominated node alone, and only once the victims are gone; our watch may show it
    later (T06). A refusal there would make it evict others, and leave the hole to anyone. On nodes that were
    offered and to which it is not nominated, the victims live.
    """
    offer = state.offers.get(pod.uid)
    gone = offer.victims[offer.node] if offer is not None and list(names) == [offer.node] else ()
    row = state.table.index.get(names[0], -1) if gone else -1
    there = [uid for uid in set(gone) if uid in state.claims.by_uid and state.claims.by_uid[uid].row == row]
    for uid in there:
        state.claims.suspend(uid, -1)
    try:
        yield
    finally:
        for uid in there:
            state.claims.suspend(uid, 1)


def _leads_to_bind(state: State, request: Request, node: str, uids: Sequence[str]) -> bool:
    row = state.table.index.get(node)
    return row is not None and plan_after(state, request, row, uids) is not None


def plan_after(state: State, request: Request, row: int, uids: Sequence[str]) -> Verdict | None:
    """How the pod gets onto the node once these pods are gone; None when it does not.

    A victim that fills a slot of a policy the pod must respect leaves a hold behind: that much is not won.
    An owner that has no hold of its policy there fills one of those itself.
    """
    rows = state.demands.strict.reach(request.owner, np.asarray([row], dtype=np.intp))
    if rows[0] < 0:
        return None
    own = own_flags(state, request, rows)
    left = avail(state, request, rows, own=request.owner != NO_DEMAND)[:, 0]
    reborn: list[int] = []
    for uid in set(uids):
        claim = state.claims.by_uid.get(uid)
        if claim is None or claim.row != row:
            continue
        names = [state.table.resources[dim] for dim in state.demands.dims]
        left += np.asarray([claim.requests.get(name, 0) for name in names], dtype=np.int64)
        if claim.owner != NO_DEMAND and sees(state, request, claim.owner):
            reborn.append(claim.owner)
    reborn = _slots_reborn(state, reborn)
    if request.owner in reborn and not own[0]:
        reborn.remove(request.owner)
    for demand in reborn:
        left -= np.asarray(vector_of(state, demand), dtype=np.int64)
    if all(amount <= there for amount, there in zip(request.need, left.tolist(), strict=True) if amount > 0):
        return Verdict(row=row, own=bool(own[0]))
    pool = board_for(state, request)
    if not pool.shapes:
        return None
    return moved(Search(pool), request, rows, left[:, None], own)


def _slots_reborn(state: State, owners: list[int]) -> list[int]:
    """The demands of evicted owners whose slots must be held again.

    More owners than slots leave none behind.
    """
    reborn = []
    for demand in set(owners):
        spare = state.holds.filled_total[demand] - state.demands[demand].desired
        reborn += [demand] * max(0, owners.count(demand) - max(0, spare))
    return reborn


def open_hole(state: State, pod: Pod) -> None:
    """The scheduler has nominated the pod.

    What has to move to let it in once its victims are gone moves now.
    """
    row = state.table.index.get(pod.nominated_node_name)
    offer = state.offers.get(pod.uid)
    if offer is None or row is None or pod.nominated_node_name not in offer.victims:
        return
    uids = offer.victims[pod.nominated_node_name]
    settle(state)
    request = request_of(state, pod)
    verdict = plan_after(state, request, row, uids)
    if verdict is not None and verdict.moves:
        commit(state, request, verdict)
