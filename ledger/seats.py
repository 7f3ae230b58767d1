"""Which pods of a policy fill its slots, as their annotations say it, and which of these are not true.

Only what the extender says decides who has a floor on the node, so what it says changes as little as can be:
who fills a slot keeps it as long as there are so many; the first of those who fill none follow when one is
free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from ledger.claims import Claim, ClaimState
from ledger.demands import NO_SLOT
from ledger.state import State
from qos.cluster.objects import Pod

_A_STEP: Final = 2_000
"""Claims looked at between two steps: a millisecond or so."""


class Occupants(NamedTuple):
    """Who has a policy's slots.

    `owners`: nodes by UID of its pods that are bound for certain, those that fill slots first; `left`: which
    of the pods that were asked for are known to be among them no more; `unsure`: of which nothing is known.
    """

    owners: Mapping[str, str]
    left: frozenset[str]
    unsure: frozenset[str]


def occupants(state: State, key: str, asked: Iterable[str]) -> Occupants | None:
    """The pods of a policy, and what became of those that are asked for; None while that is not known.

    A pod on a node that is lost is there until it is gone: it may come back.
    """
    number = state.demands.numbers.get(key)
    if number is None or state.ownership.unsettled(state.demands[number].namespace):
        return None
    there = state.claims.of.get(number, {})
    bound = [claim for claim in there.values() if claim.state is not ClaimState.BINDING]
    bound.sort(key=lambda claim: (claim.pod.slot == NO_SLOT, claim.pod.slot is None))
    names = state.table.names
    owners = {claim.pod.uid: names[claim.row] for claim in bound if not _never_filled(claim)}
    away = [uid for uid in asked if uid not in there]
    left = frozenset(uid for uid in away if _is_known_to_have_left(state, uid))
    return Occupants(owners, left, frozenset(away) - left)


def _never_filled(claim: Claim) -> bool:
    return claim.pod.deleting and claim.pod.slot == NO_SLOT


def _is_known_to_have_left(state: State, uid: str) -> bool:
    """Whether it is gone, has ended, or is another policy's pod now."""
    pod = state.pods.get(uid)
    return uid in state.gone or uid in state.claims.by_uid or (pod is not None and pod.terminal)


class Openings(NamedTuple):
    """What a policy's next pods may get: of `desired` slots those that are `held`; those that are `missing`,
    with no place for now; and the places of its pods that are being deleted, `ending`: UID and node.
    """

    desired: int
    held: int
    missing: int
    ending: tuple[tuple[str, str], ...]


def openings(state: State, key: str) -> Openings | None:
    """None of a policy that is not there."""
    number = state.demands.numbers.get(key)
    if number is None:
        return None
    holds, ending = state.holds, tuple[tuple[str, str], ...]()
    if state.claims.ending[number]:
        there = state.claims.of.get(number, {}).values()
        names = state.table.names
        ending = tuple((one.pod.uid, names[one.row]) for one in there if one.pod.deleting and not one.away)
    missing = max(0, holds.missing(number))
    return Openings(state.demands[number].desired, holds.held_total[number], missing, ending)


class Untrue(NamedTuple):
    """The pods of a policy whose annotations say something else than `wanted`, each with that."""

    policy: str
    wanted: tuple[tuple[Pod, str], ...]


def fills_slot(state: State, owner: int) -> bool:
    """Whether the owner that was counted last fills a slot of this demand, which is there.

    A pod that is being deleted has its capacity to the end, and leaves its slot to the next.
    """
    return state.seated(owner) <= state.demands[owner].seats


def gather_untrue(state: State) -> Iterator[Untrue | None]:
    """Of each policy whose pods or slots have changed since it was asked last; None between two steps.

    A policy whose pods are not all found yet has its turn later.
    """
    claims, later = state.claims, set[int]()
    while claims.recounted:
        number = claims.recounted.pop()
        if not state.demands.there(number) or state.demands[number].reserved is not None:
            continue
        if state.ownership.unsettled(state.demands[number].namespace):
            later.add(number)
            continue
        yield from _untrue(state, number)
    claims.recounted |= later


def _misfits_marked(state: State, number: int) -> list[Claim]:
    """Pods that ask for more than a slot of this demand, and of which it is not said that they fill none."""
    there = state.claims.misfits.get(number, {}).values()
    seen = (one for one in there if one.state is ClaimState.SEEN and not one.pod.deleting)
    return [one for one in seen if one.pod.slot != NO_SLOT]


def _untrue(state: State, number: int) -> Iterator[Untrue | None]:
    demand = state.demands[number]
    using, filling, others, denied = list[Claim](), list[Claim](), list[Claim](), list[Claim]()
    used_by = demand.used_by or frozenset()
    for looked, claim in enumerate([*state.claims.of.get(number, {}).values()], start=1):
        if not (claim.away or claim.pod.deleting):
            said = claim.pod.slot
            known = filling if said == demand.key else denied if said == NO_SLOT else others
            (using if claim.pod.uid in used_by else known).append(claim)
        if looked % _A_STEP == 0:
            yield None
    wanted = [(claim.pod, NO_SLOT) for claim in _misfits_marked(state, number)]
    ended = len(used_by) - len(using)
    seats, most = demand.seats - ended, demand.most_seats - ended
    for place, claim in enumerate((*using, *filling, *others, *denied)):
        said = claim.pod.slot
        fills = place < (most if said == demand.key else seats)
        true = said == demand.key or said is None if fills else said == NO_SLOT
        if not true and claim.state is ClaimState.SEEN:
            wanted.append((claim.pod, demand.key if fills else NO_SLOT))
        if place % _A_STEP == _A_STEP - 1:
            yield None
    yield Untrue(demand.key, tuple(wanted))
