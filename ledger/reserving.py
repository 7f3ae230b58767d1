"""Which Reservation a pod is to use, and what became of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ledger import sharing
from ledger.claims import ClaimState
from ledger.reservations import NONE, Use
from qos.cluster.objects import Pod, Resources
from qos.keys import PODS

if TYPE_CHECKING:
    from ledger.state import State
    from ledger.table import Rows

_MOST_WEIGHED: Final = 200
"""Reservations of one order that a pod could use and that are compared with each other."""


class Account(NamedTuple):
    """What became of a Reservation: where it is held, "" nowhere; by whom it was used up; or who shares it.

    `lacking`: what should be held is not.
    """

    node: str = ""
    used_up: Use | None = None
    uses: tuple[Use, ...] = ()
    lacking: bool = False


def account(state: State, key: str) -> Account:
    """The account of a Reservation's demand, which may not be there."""
    number = state.demands.numbers.get(key)
    if number is None:
        return Account()
    row = int(state.holds.count[number].argmax()) if state.holds.held_total[number] else -1
    rule = state.demands.reservations.rules[number]
    there = state.claims.of.get(number, {}).values() if rule.shared is not None else ()
    return Account(
        state.table.names[row] if row >= 0 else "",
        state.demands.reservations.used_up.get(rule.uid),
        tuple(Use(claim.pod, claim.requests) for claim in there if claim.state is not ClaimState.BINDING),
        lacking=state.holds.missing(number) > 0,
    )


def choose(state: State, pod: Pod, rows: Rows | None, avoid: int = NONE) -> int:
    """The Reservation that a pod is to use, on one of these rows or, if None, on any; NONE without one.

    The lowest order first; of those, the one that the pod would fill most. `avoid`: a row to choose last.
    """
    reservations = state.demands.reservations
    if not reservations.rules:
        return NONE
    sharing.reckon(state)  # the pod itself, in flight, may just have been left out of account
    asked = None if rows is None else np.zeros(state.table.shape[1], dtype=np.bool_)
    if asked is not None and rows is not None:
        asked[rows[rows >= 0]] = True
    last = NONE
    for group in reservations.groups(pod):
        weighed: list[tuple[float, str, int, int]] = []
        for number in group:
            row = _free_at(state, number)
            if row < 0 or not (asked is None or asked[row]):
                continue
            slot = state.demands[number]
            if not (
                slot.admits(pod.requests) and _gives(slot.vector, pod) and _fits(state, number, row, pod)
            ):
                continue
            filled = _filled(state, number, pod)
            weighed.append((-filled, reservations.rules[number].name, number, row))
            if len(weighed) == _MOST_WEIGHED:
                break
        others = [one for one in weighed if one[3] != avoid]
        if others:
            return min(others)[2]
        if weighed and last == NONE:
            last = min(weighed)[2]
    return last


def _free_at(state: State, number: int) -> int:
    """The row where a Reservation is held for whoever comes; -1: nowhere."""
    row = state.table.index.get(state.demands.reservations.rules[number].node, -1)
    return row if row >= 0 and state.holds.movable(number, row) else -1


def _gives(slot: Resources, pod: Pod) -> bool:
    """Whether anything is left of it that the pod asks for."""
    return any(amount and pod.requests.get(name) for name, amount in slot.items() if name != PODS)


def _fits(state: State, number: int, row: int, pod: Pod) -> bool:
    """Whether the node has beside the Reservation what the pod asks for beyond it."""
    slot, table = state.demands[number].vector, state.table
    for name, amount in pod.requests.items():
        beyond, dim = amount - slot.get(name, 0), table.dims.get(name)
        if beyond <= 0 or dim is None:
            continue
        left = table.free[dim, row] - table.charged[dim, row] - table.possible[dim, row]
        if beyond > left - state.holds.all[dim, row]:
            return False
    return True


def _filled(state: State, number: int, pod: Pod) -> float:
    """How much of it would be used, 0..1, as the mean over what is reserved."""
    slot = state.demands[number].vector
    shares = [min(1.0, pod.requests.get(name, 0) / amount) for name, amount in slot.items() if amount]
    return sum(shares) / len(shares) if shares else 0.0
