"""What the pods that share a Reservation leave of it, and which pod used up one that is for one."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from ledger.claims import ClaimState
from ledger.reservations import Use
from qos.cluster.objects import Demand

if TYPE_CHECKING:
    from ledger.state import State


def reckon(state: State) -> None:
    """Of Reservations that are shared, what their pods leave is held: bound ones, and those in flight."""
    if not (state.flights.shared or state.demands.reservations.unreckoned):
        return
    unreckoned, state.flights.shared = state.flights.shared, set()
    unreckoned |= state.demands.reservations.unreckoned
    state.demands.reservations.unreckoned.clear()
    for number in sorted(filter(state.demands.reservations.shares, unreckoned)):
        demand = remaining(state, state.demands[number], number)
        if demand == state.demands[number]:
            continue
        state.holds.weigh(number, -1)
        state.demands.set_left(number, demand.vector)
        state.holds.weigh(number, 1)
        state.holds.follow(number)
        rows = [row for row, _ in state.holds.of(number)]
        state.holds.fuller.setdefault(number, set()).update(rows)
        state.table.touched.update(rows)
        state.table.grown.update(rows)
        state.holds.wanting.add(number)
        state.failed.pop(number, None)
        state.changed()


def remaining(state: State, demand: Demand, number: int, without: Collection[str] = ()) -> Demand:
    """A Reservation that is shared, with what its pods leave of it: a pod's place at least, so that it
    keeps its own. `without`: UIDs of pods to leave out of account.
    """
    assert demand.reserved is not None, "only Reservations are shared"
    flights = (one.pod.requests for one in state.flights.by_uid.values() if one.shares == number)
    there = state.claims.of.get(number, {})
    claims = (claim.requests for uid, claim in there.items() if uid not in without)
    left = demand.reserved.left([*claims, *flights])
    return replace(demand, vector=left)


def use_up(state: State, uid: str) -> None:
    """A Reservation is over with its first pod, once that is bound for certain."""
    claim = state.claims.by_uid[uid]
    reserved = state.demands.reservations.rules.get(claim.owner)
    if reserved is None or reserved.shared is not None or claim.state is ClaimState.BINDING:
        return
    used_up = state.demands.reservations.used_up
    if reserved.uid not in used_up:
        used_up[reserved.uid] = Use(claim.pod, claim.requests)
        state.set_demand(state.demands[claim.owner])


def find_users(state: State, uid: str) -> None:
    """Pods may have been bound to a Reservation before it was known here, or known so."""
    for user in [*state.ownership.users.get(uid, ())]:
        if user in state.claims.by_uid:
            state.claims.own_again(user)
            use_up(state, user)
