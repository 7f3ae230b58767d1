"""The preempt verb: keep only candidates where the evictions really lead to a bind (traps T14, T23)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np

from ledger import quotas, sharing
from ledger.decisions import Mode
from ledger.demands import NO_DEMAND
from ledger.judge import Verdict, board_for, commit, moved, own_flags, plans
from ledger.moves import Search
from ledger.offers import EVICTION_SECONDS, Offer
from ledger.placement import settle
from ledger.requests import Request, avail, fits_free, request_of, sees
from ledger.state import State, exempt
from ledger.table import Columns, Flags, Rows, Vector, counts
from qos.cluster.objects import Pod


def candidates(
    state: State,
    pod: Pod,
    victims: Mapping[str, Sequence[str]],
    now: float,
    violations: Mapping[str, int] | None = None,
) -> list[str]:
    """The nodes to keep, in the order given.

    `victims` maps a node to the UIDs that would be evicted there, `violations` to how many of these
    evictions a PodDisruptionBudget forbids.
    """
    state.now = max(state.now, now)
    if state.rooms.evicts(pod.uid, state.now) or pod.uid in state.gone:
        return []
    kept = _candidates(state, pod, victims, now, violations or {})
    if kept:
        state.rooms.preempt(pod.uid, state.now)
    return kept


def _candidates(
    state: State, pod: Pod, victims: Mapping[str, Sequence[str]], now: float, violations: Mapping[str, int]
) -> list[str]:
    if exempt(pod) or state.mode is Mode.OBSERVE:
        return list(victims)
    if node := state.claims.node_in_doubt(pod.uid):
        return [name for name in victims if name == node]  # filter sends the pod nowhere else
    settle(state)
    request = request_of(state, pod)
    if _has_room_when_warm(state, request):
        return []
    flight = state.flights.drop(pod.uid)
    coming = _coming(state, request, victims)
    let = quotas.permitted(state, request, victims)
    ways = _ways(state, request, {node: uids for node, uids in victims.items() if node in let})
    if flight is not None:
        state.flights.put(flight)
    if coming is not None:
        return coming
    before = state.offers.by_uid.get(pod.uid)
    if before is not None and (node := _under_way(state, before, pod, victims)) in ways:
        return [node]
    kept = _kept(state, request, victims, ways, violations)
    if not kept:
        return []  # kube-scheduler leaves its nomination as it is: the last offer and its victims still count
    state.offers.put(
        pod.uid, _offer(state, {node: victims[node] for node in kept}, now), pod.nominated_node_name
    )
    if pod.uid in state.pending and not pod.nominated_node_name:
        likely = min(kept, key=lambda node: (violations.get(node, 0), *_harm(state, victims[node])))
        state.nominations.foresee(
            request.counted, likely, now
        )  # the next preemptor may come before this shows
    return kept


def _offer(state: State, victims: Mapping[str, Sequence[str]], now: float) -> Offer:
    """By the UIDs of our own account: an offer is kept, and those of a request are texts of their own."""
    claims = state.claims.by_uid
    own = {
        node: tuple(claims[uid].pod.uid if uid in claims else uid for uid in uids)
        for node, uids in victims.items()
    }
    offer = Offer(own, now)
    offer.ended = frozenset(uid for uid in offer.all() if _ends(state, uid))
    return offer


def _has_room_when_warm(state: State, request: Request) -> bool:
    """Whether victims ended for the pod already, and only the warm-up keeps it from their room."""
    uid = request.pod.uid
    if uid not in state.nominations.refused or not state.is_cold_to(request.owner):
        return False
    fit = fits_free(state, request, np.asarray([state.nominations.by_uid[uid][0]], dtype=np.intp))
    return fit is None or bool(fit[0])


def _coming(state: State, request: Request, victims: Mapping[str, Sequence[str]]) -> list[str] | None:
    """What to answer where pods that end on the node of the pod's hole are all that it takes; None: they are
    not. kube-scheduler nominates it there once more where it would evict only these, which costs nobody.
    """
    row, _ = state.nominations.by_uid.get(request.pod.uid, (-1, request.pod))
    node = state.table.names[row] if row >= 0 else ""
    if node not in victims:
        return None
    ending = state.claims.ending_on(row)
    if not ending or plan_after(state, request, row, ending) is None:
        return None
    if quotas.refusal(state, request, ending):
        return None
    return [node] if set(victims[node]) <= {*ending} else []


def _under_way(state: State, before: Offer, pod: Pod, victims: Mapping[str, Sequence[str]]) -> str:
    """Where the pod's victims are being evicted, and nobody else is to be; "" nowhere.

    kube-scheduler tries a preemptor again once its informer shows the last victim's deletion. Its cache may
    show it a moment later, and it would choose victims on another node. The pod may not even say yet where
    it is nominated (seen with 1.34): then it is where victims that were offered end.
    """
    node = pod.nominated_node_name or before.node or _ending_at(state, pod.uid, before)
    same = set(victims.get(node, ())) <= set(before.victims.get(node, ()))
    return node if same and state.now - before.since < EVICTION_SECONDS else ""


def _ending_at(state: State, pod: str, offer: Offer) -> str:
    """The one node where all victims end, and some of them for this pod; "" where that is not so."""
    nodes = [
        node
        for node, uids in offer.victims.items()
        if not offer.ended.issuperset(uids) and all(_ends(state, uid) for uid in uids)
    ]
    if len(nodes) != 1:
        return ""
    (node,) = nodes
    own = set(offer.victims[node]) - offer.ended - state.offers.evicted_for_others(pod, node)
    return node if own else ""


def _ends(state: State, uid: str) -> bool:
    """Whether a pod is ending, or not there."""
    claim = state.claims.by_uid.get(uid)
    return claim is None or claim.pod.deleting


def victims_left(state: State, pod: Pod, names: Sequence[str]) -> list[str]:
    """UIDs of a preemptor's victims that we still count on the node they made room on; none elsewhere.

    kube-scheduler tries a nominated node alone, and as a rule once the victims are gone; our watch may show
    it later (T06). A refusal there would make it evict others, and leave the hole to anyone. On nodes that
    were offered and to which it is not nominated, the victims live.
    """
    offer = state.offers.by_uid.get(pod.uid)
    if offer is None or list(names) != [offer.node]:
        return []
    row, claims = state.table.index.get(offer.node, -1), state.claims.by_uid
    there = (uid for uid in dict.fromkeys(offer.victims[offer.node]) if uid in claims)
    return [uid for uid in there if claims[uid].row == row]


def victims_ending(state: State, pod: Pod, names: Sequence[str]) -> list[str]:
    """Those of them that may be gone where kube-scheduler looks.

    It finds room on a nominated node as well once others have ended there: that it asks does not show that
    the victims are gone. One that is not seen to be deleted in time lives on.
    """
    left = victims_left(state, pod, names)
    return _ending(state, state.offers.by_uid[pod.uid], left) if left else left


def _ending(state: State, offer: Offer, uids: Sequence[str]) -> list[str]:
    """Without those whose eviction has failed."""
    claims = ((uid, state.claims.by_uid.get(uid)) for uid in uids)
    return [
        uid
        for uid, claim in claims
        if claim is None or claim.pod.deleting or not offer.is_late(uid, state.now)
    ]


def left_out(state: State, uids: Sequence[str]) -> AbstractContextManager[None]:
    """Leave claims out of account meanwhile."""
    return _suspended(state, uids) if uids else nullcontext()


@contextmanager
def _suspended(state: State, uids: Sequence[str]) -> Iterator[None]:
    for uid in uids:
        state.claims.suspend(uid, -1)
    try:
        yield
    finally:
        for uid in uids:
            state.claims.suspend(uid, 1)


def _kept(
    state: State,
    request: Request,
    victims: Mapping[str, Sequence[str]],
    ways: Mapping[str, Verdict],
    violations: Mapping[str, int],
) -> list[str]:
    """The candidates to answer. Where holds must move, others can take their destination before the
    scheduler's choice shows, and the victims die in vain. So they move now where it would choose such a
    node, and that is all it is answered; else such nodes are left out.
    """
    moving = {node for node, way in ways.items() if way.moves}
    if not moving:
        return list(ways)
    best = min(ways, key=lambda node: (violations.get(node, 0), *_harm(state, victims[node]), node in moving))
    if best not in moving:
        return [node for node in ways if node not in moving]
    commit(state, request, ways[best])
    return [best]


def _harm(state: State, uids: Sequence[str]) -> tuple[int, int, int]:
    """What kube-scheduler weighs next: the highest priority, the sum of them, the number of victims.

    Source: pickOneNodeForPreemption. Of equals it prefers victims that started late.
    """
    known = (state.claims.by_uid.get(uid) for uid in uids)
    priorities = [claim.pod.priority if claim is not None else 0 for claim in known]
    return max(priorities, default=0), sum(priority + (1 << 31) for priority in priorities), len(priorities)


def _ways(state: State, request: Request, victims: Mapping[str, Sequence[str]]) -> dict[str, Verdict]:
    """How the pod gets in at each candidate where it does, in their order.

    Those where moves must help share one search: kube-scheduler waits 300 ms, and a candidate that is
    dropped unseen only makes it choose another.
    """
    names = list(victims)
    rows = state.demands.strict.reach(request.owner, state.table.rows_of(names))
    left, own = _left_after(state, request, rows, list(victims.values()))
    need = np.asarray(request.need, dtype=np.int64)[:, None]
    fits = ((need <= left) | (need <= 0)).all(axis=0) & (rows >= 0)
    if request.reserved_only:
        fits &= own
    found = {
        place: Verdict(row=int(rows[place]), own=bool(own[place])) for place in np.flatnonzero(fits).tolist()
    }
    short = np.flatnonzero(~fits & (rows >= 0))
    if short.size and not request.reserved_only:
        pool = board_for(state, request)
        if pool.shapes:
            moving = plans(Search(pool), request, rows[short], left[:, short], own[short])
            found.update((int(short[position]), verdict) for position, verdict in moving)
    return {names[place]: found[place] for place in sorted(found)}


def plan_after(state: State, request: Request, row: int, uids: Sequence[str]) -> Verdict | None:
    """How the pod gets onto the node once these pods are gone; None when it does not."""
    rows = state.demands.strict.reach(request.owner, np.asarray([row], dtype=np.intp))
    if rows[0] < 0:
        return None
    left, own = _left_after(state, request, rows, [uids])
    there = zip(request.need, left[:, 0].tolist(), strict=True)
    if all(amount <= beside for amount, beside in there if amount > 0):
        return Verdict(row=row, own=bool(own[0]))
    pool = board_for(state, request)
    return moved(Search(pool), request, rows, left, own) if pool.shapes else None


def _left_after(
    state: State, request: Request, rows: Rows, victims: Sequence[Sequence[str]]
) -> tuple[Columns, Flags]:
    """What the pod may use of each row once the victims there are gone, and where it takes its own hold.

    A victim that fills a slot of a policy the pod must respect leaves a hold behind: that much is not won.
    Nor is what one takes of a Reservation that is shared, unless the pod comes to use that.
    An owner that has no hold of its policy there fills one of those itself.
    """
    own = own_flags(state, request, rows)
    left = avail(state, request, rows, own=request.owner != NO_DEMAND)
    names = [state.table.resources[dim] for dim in state.demands.dims]
    claims = state.claims.by_uid
    for place, (row, uids) in enumerate(zip(rows.tolist(), victims, strict=True)):
        reborn: list[int] = []
        shared: set[int] = set()
        won = [0] * len(names)
        for uid in set(uids):
            claim = claims.get(uid)
            if row < 0 or claim is None or claim.row != row:
                continue
            for dim, name in enumerate(names):
                if counts(amount := claim.requests.get(name, 0)):
                    won[dim] += amount
            if not state.demands.there(claim.owner) or not sees(state, request, claim.owner):
                continue
            if state.demands.reservations.shares(claim.owner):
                shared.add(claim.owner)
            else:
                reborn.append(claim.owner)
        left[:, place] += np.asarray(won, dtype=np.int64)
        if reborn:
            left[:, place] -= _held_again(state, request, reborn, own=bool(own[place]))
        for number in shared:
            left[:, place] -= _grown(state, request, number, uids)
    return left, own


def _grown(state: State, request: Request, number: int, uids: Collection[str]) -> Vector:
    """How much more of a shared Reservation is held once these pods are gone; nothing if the pod uses it."""
    pod, demand = request.pod, state.demands[number]
    now, later = demand.vector, sharing.remaining(state, demand, number, uids)
    assert later.reserved is not None, "only Reservations are shared"
    free_to = request.owner == NO_DEMAND and later.reserved.admits(pod) and later.admits(pod.requests)
    names = [state.table.resources[dim] for dim in state.demands.dims]
    if request.owner == number or free_to:
        return np.zeros(len(names), dtype=np.int64)
    return np.asarray([later.vector.get(name, 0) - now.get(name, 0) for name in names], dtype=np.int64)


def _held_again(state: State, request: Request, owners: list[int], *, own: bool) -> Vector:
    """What the slots of these demands' evicted owners amount to, without the one that the pod fills."""
    reborn = _slots_reborn(state, owners)
    if request.owner in reborn and not own:
        reborn.remove(request.owner)
    return np.asarray(state.demands.vectors[reborn][:, state.demands.dims].sum(axis=0))


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
    offer = state.offers.by_uid.get(pod.uid)
    if offer is None or row is None or pod.nominated_node_name not in offer.victims:
        return
    uids = _ending(state, offer, offer.victims[pod.nominated_node_name])
    settle(state)
    request = request_of(state, pod)
    verdict = plan_after(state, request, row, uids)
    if verdict is not None and verdict.moves:
        commit(state, request, verdict)
