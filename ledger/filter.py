"""The filter and prioritize verbs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

import numpy as np

from ledger import quotas
from ledger.beside_owners import certainly_full
from ledger.decisions import Filtered, Mode
from ledger.demands import NO_DEMAND
from ledger.flights import Flight, joined
from ledger.judge import Verdict, commit, judge
from ledger.placement import settle
from ledger.preempt import left_out, victims_ending
from ledger.refusals import in_doubt, of_quota, refuse
from ledger.requests import Request, avail, cells, own_holds, request_of, sufficing
from ledger.state import State, exempt
from ledger.table import Rows
from ledger.waiting import Waiting
from qos.cluster.objects import Pod, Resources, Toleration

_MOST_SCORE = 10
_RETRY_SECONDS = 1.0
"""kube-scheduler's shortest back-off: a later filter call is a new attempt, an earlier one the same."""


def filter_nodes(
    state: State,
    waiting: Waiting,
    pod: Pod,
    names: Sequence[str],
    now: float,
    tolerations: tuple[Toleration, ...] | None = None,
    *,
    prefers: bool = False,
    unfiltered: bool = False,
) -> Filtered:
    """Which of the names may be used; see Filtered, and Ledger.filter."""
    state.now = max(state.now, now)
    state.ask(pod)
    if exempt(pod):
        state.counters["exempt"] += 1
        return Filtered(list(names))
    settle(state)
    if state.mode is not Mode.OBSERVE and (node := state.claims.node_in_doubt(pod.uid)):
        if node not in names:
            waiting.remember(state, pod, names, unfiltered=unfiltered)
        return in_doubt(names, node)
    state.offers.nominated(pod)
    before = state.flights.drop(pod.uid)
    rows = _not_ahead(state, state.table.rows_of(names), tolerations)
    rows = _sufficing(state, pod, rows) if unfiltered else rows
    request = request_of(state, pod, _tried(before, now), rows)
    left = victims_ending(state, pod, names)
    why = quotas.refusal(state, request, left)
    verdict = None if why else _judged(state, request, rows, left)
    if verdict is not None and _shown_empty(state, request, rows, verdict):
        settle(state)
        verdict = _judged(state, request, rows, left)
    if state.mode is Mode.OBSERVE:
        return _observe(state, names, verdict)
    if verdict is None:
        _keep_flight(state, before)
        waiting.remember(state, request.pod, names, unfiltered=unfiltered)
        return of_quota(state, pod, names, why) if why else _refuse(state, request, names, rows)
    waiting.forget(pod.uid)
    if verdict.passing is not None and not prefers:
        state.portions.cut(verdict.passing, rows, state.demands.discouraged)
    commit(state, request, verdict)
    _keep_offer(state, pod, names)
    # A call may come when the pod is bound, which is counted already, or gone: nothing would end its flight.
    lands = pod.uid not in state.claims.by_uid and pod.uid not in state.gone
    _take_off(state, before, _flight(state, request, verdict, rows, now) if lands else None)
    if verdict.passing is None:
        return Filtered([state.table.names[verdict.row]])
    return Filtered(_chosen(names, verdict))


def _judged(state: State, request: Request, rows: Rows, left: Sequence[str]) -> Verdict | None:
    """The verdict without the pod itself and these victims of it."""
    state.claims.suspend(request.pod.uid, -1)
    with left_out(state, left):
        verdict = judge(state, request, rows)
    state.claims.suspend(request.pod.uid, 1)
    return verdict


def _shown_empty(state: State, request: Request, rows: Rows, verdict: Verdict) -> bool:
    """Whether kube-scheduler has found room where, by our account, pods in flight certainly leave too little:
    some of them do not come, it knows. From now on they only may, so that slots without a place are held
    there before the pod takes it.
    """
    if verdict.passing is None or not state.lacking or not state.flights.by_uid:
        return False
    open_rows = rows[verdict.passing]
    full = certainly_full(state, request, open_rows)
    if not (full.any() and state.flights.doubt(set(open_rows[full].tolist()))):
        return False
    state.changed()
    return True


def _not_ahead(state: State, rows: Rows, tolerations: tuple[Toleration, ...] | None) -> Rows:
    """Without nodes (-1) whose taints, as known here, keep the pod away: kube-scheduler has seen them go.

    While slots are unplaced, the first pods of such a node would take what is to be held there in a moment.
    """
    if tolerations is None or state.mode is Mode.OBSERVE or not state.lacking:
        return rows
    return np.where(state.demands.tolerated(tolerations, rows), rows, -1)


def _sufficing(state: State, pod: Pod, rows: Rows) -> Rows:
    """Without nodes (-1) that have too little of what no demand holds."""
    return np.where(sufficing(state, pod, rows), rows, -1)


def _keep_offer(state: State, pod: Pod, names: Sequence[str]) -> None:
    """A pod that goes anywhere but to the one node it is nominated to needs no victims any more."""
    offer = state.offers.by_uid.get(pod.uid)
    if offer is not None and list(names) != [offer.node]:
        state.offers.drop(pod.uid)


def _tried(before: Flight | None, now: float) -> int:
    """The one row the pod was sent to and did not get bound on.

    Next time another one, where there is a choice.
    """
    if before is None or now - before.since < _RETRY_SECONDS:
        return -1
    rows = before.rows()
    return int(rows[0]) if rows.size == 1 else -1


def _chosen(names: Sequence[str], verdict: Verdict) -> list[str]:
    assert verdict.passing is not None
    if verdict.passing.all():
        return list(names)
    return list(compress(names, verdict.passing.tolist()))


def _observe(state: State, names: Sequence[str], verdict: Verdict | None) -> Filtered:
    """Refuse nothing and charge nothing; count what Guard would have held back."""
    passing = 0
    if verdict is not None:
        passing = 1 if verdict.passing is None else int(np.count_nonzero(verdict.passing))
    state.counters["withheld"] += len(names) - passing
    return Filtered(list(names), withheld=len(names) - passing)


def _keep_flight(state: State, before: Flight | None) -> None:
    """Of a pod that is refused now: where bind does not come through us, it may still land."""
    if before is not None:
        if not state.binds:
            state.flights.put(before)
        else:
            state.changed()


def _refuse(state: State, request: Request, names: Sequence[str], rows: Rows) -> Filtered:
    state.counters["refusals"] += 1
    if state.is_cold_to(request.owner):
        state.nominations.refuse(request.pod.uid, state.warmup_until)
    return refuse(state, request, names, rows)


def _take_off(state: State, before: Flight | None, flight: Flight | None) -> None:
    """Charge the new answer in place of the old one, or on top of it when bind does not come through us."""
    if not state.binds and before is not None:
        flight = before if flight is None else joined(before, flight)
    elif before is not None:
        state.changed()
    if flight is not None:
        state.flights.put(flight)


def _flight(state: State, request: Request, verdict: Verdict, rows: Rows, now: float) -> Flight | None:
    """What an answer charges. Hold-free nodes are charged unless bind can refuse (traps T02, T09): else a
    hold might move to where the pod is about to go, and in Guard nothing would stop it.
    """
    if verdict.passing is None:
        rows = np.asarray([verdict.row], dtype=np.intp)
        if not verdict.own:
            return Flight(request.counted, now, [(rows, request.requests)])
        if state.demands.reservations.shares(request.owner):
            slot = state.demands[request.owner].vector
            share = {name: min(amount, slot.get(name, 0)) for name, amount in request.requests.items()}
            return Flight(request.counted, now, [(rows, request.requests)], shares=request.owner, share=share)
        charge = _beyond_slot(state, request)
        return Flight(request.counted, now, [(rows, charge)], [(request.owner, verdict.row)])
    if state.binds and state.mode is Mode.STRICT:
        return None
    open_rows = rows[verdict.passing]  # a name given twice is charged once: numpy adds once an index
    one = open_rows.size == 1
    unsure = one and (verdict.narrowed or _drives_away(state, request, open_rows))
    return Flight(request.counted, now, [(open_rows, request.requests)], unsure=unsure)


def _beyond_slot(state: State, request: Request) -> Resources:
    """What an owner takes of its node beyond the hold it was given."""
    slot = state.demands[request.owner].vector
    return {name: max(0, amount - slot.get(name, 0)) for name, amount in request.requests.items()}


def _drives_away(state: State, request: Request, rows: Rows) -> bool:
    """Whether charging the pod for certain, before it is known to come, would drive away holds that it does
    not see.
    """
    pick = cells(state, rows[state.holds.number.take(rows) > 0])
    left = state.table.free[pick] - state.table.charged[pick] - state.holds.all[pick]
    need = np.asarray(request.need, dtype=np.int64)[:, None]
    return bool(((need > 0) & (left < need)).any())


def prioritize_nodes(state: State, pod: Pod, names: Sequence[str], now: float) -> list[int]:
    """Scores 0..10.

    An owner's own holds first; for others, nodes where holds stand last, the fuller the later.
    """
    state.now = max(state.now, now)
    settle(state)
    rows = state.table.rows_of(names)
    request = request_of(state, pod, rows=rows)
    rows = state.demands.strict.reach(request.owner, rows)
    scores = np.full(len(names), _MOST_SCORE, dtype=np.int64)
    scores[~state.table.present.take(rows)] = 0
    if exempt(pod) or not request.parts:
        return [int(score) for score in scores]
    clear = state.holds.clear_for(request.priority).take(rows)
    held = np.flatnonzero(~clear & (scores > 0))
    if request.owner != NO_DEMAND and own_holds(state, request, rows).any():
        own = own_holds(state, request, rows) & (scores > 0)
        return [int(score) for score in np.where(own, _MOST_SCORE, 0)]
    if held.size:
        need = np.asarray(request.need, dtype=np.int64)[:, None]
        fits = (avail(state, request, rows[held], own=False) >= need).all(axis=0)
        scores[held] = np.where(fits, _MOST_SCORE // 2, 0)
    return [int(score) for score in scores]
