"""Which pods of a policy fill its slots, as their annotations say it, and which of these are not true.

Only what the extender says decides who has a floor on the node, so what it says changes as little as can be:
who fills a slot keeps it as long as there are so many; the first of those who fill none follow when one is
free.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ledger.claims import Claim, ClaimState
from ledger.demands import NO_SLOT
from ledger.state import State
from qos.cluster.objects import Pod

_A_STEP: Final = 2_000
"""Claims looked at between two steps: a millisecond or so."""


class Untrue(NamedTuple):
    """The pods of a policy whose annotations say something else than `wanted`, each with that."""

    policy: str
    wanted: tuple[tuple[Pod, str], ...]


def fills_slot(state: State, owner: int) -> bool:
    """Whether the owner that was counted last fills a slot of this demand, which is there.

    A pod that is being deleted has its capacity to the end, and leaves its slot to the next.
    """
    staying = state.holds.filled_total[owner] - state.claims.ending[owner]
    return staying <= state.demands[owner].seats


def gather_untrue(state: State) -> Iterator[Untrue | None]:
    """Of each policy whose pods or slots have changed since it was asked last; None between two steps.

    A policy whose pods are not all found yet has its turn later.
    """
    claims, later = state.claims, set[int]()
    while claims.recounted:
        number = claims.recounted.pop()
        if not state.demands.there(number):
            continue
        if state.ownership.unsettled(state.demands[number].namespace):
            later.add(number)
            continue
        yield from _untrue(state, number)
    claims.recounted |= later


def _untrue(state: State, number: int) -> Iterator[Untrue | None]:
    demand, filling, others, denied = state.demands[number], list[Claim](), list[Claim](), list[Claim]()
    for looked, claim in enumerate([*state.claims.of.get(number, {}).values()], start=1):
        if not (claim.away or claim.pod.deleting):
            said = claim.pod.slot
            (filling if said == demand.key else denied if said == NO_SLOT else others).append(claim)
        if looked % _A_STEP == 0:
            yield None
    wanted = []
    for place, claim in enumerate((*filling, *others, *denied)):
        said = claim.pod.slot
        fills = place < demand.seats
        true = said == demand.key or said is None if fills else said == NO_SLOT
        if not true and claim.state is ClaimState.SEEN:
            wanted.append((claim.pod, demand.key if fills else NO_SLOT))
        if place % _A_STEP == _A_STEP - 1:
            yield None
    yield Untrue(demand.key, tuple(wanted))
