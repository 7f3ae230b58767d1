"""What the ledger reports to the status, the metrics and the autoscaler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ledger.board import slots_that_fit
from ledger.decisions import DemandReport
from ledger.demands import NO_DEMAND
from ledger.placement import settle
from ledger.requests import room, vector_of
from ledger.risk import gather_at_risk
from ledger.state import State
from ledger.table import Flags, Table
from ledger.unplaced import Place, why
from qos.cluster.objects import Demand
from qos.keys import BANDWIDTHS

_SLICE = 60_000
"""Rows looked at between two steps: some milliseconds."""
_MOST_STEPS = 500
"""How long a report waits until each pod's owner is found."""
_A_POLICY = 200
_DEMANDS_A_STEP = 50
_ROWS_A_STEP = 40_000
_PLENTY = 64
"""With room for so many slots beside twice those filled, a crash costs none: a new place is found in time."""


class Holding(NamedTuple):
    """A demand, and where its holds lie: node and count; how many slots are unplaced."""

    demand: Demand
    nodes: tuple[tuple[str, int], ...]
    unplaced: int = 0


class Reports:
    """Each demand's account; what did not change is not made again: where its holds lie."""

    def __init__(self) -> None:
        self._holds: dict[str, tuple[int, tuple[tuple[str, int], ...]]] = {}

    def gather(self, state: State) -> Iterator[dict[str, DemandReport]]:
        """By key, in the demands' order, in steps of some milliseconds; the last is all of it.

        Each demand's account is of one moment, but for its holds at risk.
        """
        done = 0
        risky = Counter[str]()
        for _ in range(_MOST_STEPS if state.ownership.under_way else 0):
            settle(state)
            yield {}
            if not state.ownership.under_way:
                break
        settle(state)
        for step in gather_at_risk(state):
            risky = step
            yield {}
        settle(state)
        found: dict[str, DemandReport] = {}
        place = Place(state)
        for key in [state.demands[number].key for number in state.demands.order]:
            if done > _SLICE:
                yield found
                settle(state)
                done, place = 0, Place(state)
            number = state.demands.numbers.get(key)
            if number is not None:
                done += _A_POLICY + (len(state.table.names) if state.holds.missing(number) > 0 else 0)
                found[key] = self._report(state, number, risky[key], place)
        self._holds = {key: held for key, held in self._holds.items() if key in found}
        yield found

    def gather_holdings(self, state: State) -> Iterator[Holding | None]:
        """Where each demand's holds lie, in the demands' order; None between two steps of a millisecond or
        so. A demand's `nodes` are the very same object as long as nothing changed.
        """
        settle(state)
        for count, key in enumerate([state.demands[number].key for number in state.demands.order], 1):
            if not count % _DEMANDS_A_STEP:
                yield None
            number = state.demands.numbers.get(key)
            if number is not None:
                lie = self._held(state, number, key)
                yield Holding(state.demands[number], lie, max(0, state.holds.missing(number)))

    @staticmethod
    def gather_replaced(state: State) -> Iterator[Mapping[str, Mapping[str, int]]]:
        """Slots that are filled where no other slot of their policy fits, of policies for which there is not
        plenty of room elsewhere, by policy and node: what is known of it after each step of a millisecond or
        so; the last is all of it. Not where a pod is nominated that who stands by would keep out.
        """
        found: dict[str, Mapping[str, int]] = {}
        done, left = 0, None
        for key in [state.demands[number].key for number in state.demands.order]:
            if done > _ROWS_A_STEP:
                yield found
                done, left = 0, None
            done += _ROWS_A_STEP // _DEMANDS_A_STEP
            number = state.demands.numbers.get(key, NO_DEMAND)
            if number == NO_DEMAND:
                continue
            # Where none may be placed, a cordoned node for one, none will be.
            rows = np.flatnonzero((state.holds.filled[number] > 0) & state.demands.eligible[number])
            if not rows.size:
                continue
            if left is None:
                left, nominated = room(state, state.holds.all), _nominated(state)
            rows = rows[~np.isin(rows, nominated[0, nominated[1] <= state.demands[number].priority])]
            vector = vector_of(state, number)
            full = rows[slots_that_fit(left[:, rows], vector) <= 0].tolist()
            done += left.shape[1] if full else 0
            if full and not _plenty(state, number, slots_that_fit(left, vector)):
                found[key] = {state.table.names[row]: int(state.holds.filled[number, row]) for row in full}
        yield found

    def _report(self, state: State, demand: int, risky: int, place: Place) -> DemandReport:
        record = state.demands[demand]
        return DemandReport(
            key=record.key,
            desired=record.desired_of_budgets,
            filled=min(record.desired, state.holds.filled_total[demand]),
            held=state.holds.held_total[demand],
            holds=self._held(state, demand, record.key),
            unplaced=why(state, demand, place),
            pods=state.holds.filled_total[demand],
            at_risk=min(risky, state.holds.held_total[demand]),
            survives=_survives(state, demand) if record.spare else 0,
        )

    def _held(self, state: State, demand: int, key: str) -> tuple[tuple[str, int], ...]:
        """Node and count, the most first; made anew when a hold came, went or moved."""
        known = self._holds.get(key)
        stamp = state.holds.stamps[demand]
        if known is None or known[0] != stamp:
            names = state.table.names
            there = ((names[row], count) for row, count in state.holds.of(demand))
            known = self._holds[key] = stamp, tuple(sorted(there, key=lambda hold: (-hold[1], hold[0])))
        return known[1]


def _plenty(state: State, demand: int, fit: NDArray[np.int64]) -> bool:
    """Whether so many more slots fit that a flood will not have taken them all before one is held anew.
    `fit`: how many do into each row.
    """
    seats = state.holds.seats(demand)
    fit = (fit if seats is None else np.minimum(fit, seats))[state.demands.eligible[demand]]
    return int(fit.sum()) > _PLENTY + 2 * int(state.holds.filled_total[demand])


def _nominated(state: State) -> NDArray[np.int64]:
    """Of each pod that is nominated: the row, and its priority."""
    found = [(row, pod.priority) for row, pod in state.nominations.by_uid.values()]
    return np.array(found, dtype=np.int64).reshape(-1, 2).T


def _survives(state: State, demand: int) -> int:
    """How many of the nodes with the most slots may be lost."""
    there = state.holds.count[demand].astype(np.int64) + state.holds.filled[demand]
    most = np.sort(there[there > 0])[::-1]
    left = int(most.sum()) - np.cumsum(most)
    return int(np.count_nonzero(left >= (state.demands[demand].asked or 0)))


def holds_on(state: State, name: str) -> dict[str, int]:
    """How many holds of each demand lie on a node, by key."""
    settle(state)
    row = state.table.index.get(name)
    if row is None:
        return {}
    return {state.demands[number].key: int(state.holds.count[number, row]) for number in state.holds.on(row)}


def held_nodes(state: State) -> frozenset[str]:
    """Names of the nodes with at least one hold."""
    settle(state)
    return frozenset(state.table.names[row] for row in np.flatnonzero(state.holds.number).tolist())


def _overcommitted(table: Table) -> Flags:
    """Where more is claimed than there is; not of bandwidth that nobody has measured there."""
    short = table.free < 0
    for dim in [table.dims[name] for name in BANDWIDTHS.values() if name in table.dims]:
        short[dim] &= table.allocatable[dim] > 0
    return np.asarray(short.any(axis=0))


def gauges(state: State, waiting: int, withheld: int = 0) -> Mapping[str, float]:
    """Totals.

    `KIND/RESOURCE` for allocatable, claimed and held, plain names for the rest, `*_total` for counters.
    `withheld`: slots that budgets do not give, which are in no demand.
    """
    settle(state)
    table = state.table
    values: dict[str, float] = {}
    for dim, resource in enumerate(table.resources):
        allocatable = int(table.allocatable[dim].sum())
        if allocatable or state.holds.all[dim].any():
            values[f"allocatable/{resource}"] = allocatable
            values[f"claimed/{resource}"] = allocatable - int(table.free[dim].sum())
            values[f"held/{resource}"] = int(state.holds.all[dim].sum())
    values |= {
        "nodes": len(table.index),
        "ready_nodes": int(table.usable.sum()),
        "held_nodes": int(np.count_nonzero(state.holds.number)),
        "overcommitted_nodes": int((_overcommitted(table) & table.present).sum()),
        "lumped_nodes": state.pools.lumped,
        "pods": len(state.pods),
        "claims": len(state.claims.by_uid),
        "claims_unseen": len(state.claims.unseen),
        "in_flight": len(state.flights.by_uid),
        "nominated": len(state.nominations.by_uid),
        "waiting": waiting,
        "holds": sum(state.holds.held_total),
        "unplaced": state.holds.unplaced + withheld,
        "over_budget": withheld,
    }
    return values | {f"{name}_total": count for name, count in state.counters.items()}
