"""What the ledger tells the status, the metrics and the autoscaler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from ledger.bind import unplaced_slots
from ledger.decisions import DemandReport
from ledger.demands import NO_DEMAND
from ledger.placement import settle
from ledger.risk import holds_at_risk
from ledger.state import State
from ledger.unplaced import why


def reports(state: State) -> dict[str, DemandReport]:
    """Each demand's account, by key, in the demands' order."""
    settle(state, thorough=True)
    waiting, risky = _waiting_owners(state), holds_at_risk(state)
    return {state.demands[n].key: _report(state, n, waiting[n], risky[n]) for n in state.demands.order}


def _report(state: State, demand: int, waiting: int, risky: int) -> DemandReport:
    record = state.demands[demand]
    names = state.table.names
    holds = sorted(
        ((names[row], count) for row, count in state.holds.of(demand)), key=lambda h: (-h[1], h[0])
    )
    return DemandReport(
        key=record.key,
        desired=record.desired,
        filled=min(record.desired, state.holds.filled_total[demand]),
        held=state.holds.held_total[demand],
        holds=tuple(holds),
        unplaced=why(state, demand),
        waiting_owners=waiting,
        pods=state.holds.filled_total[demand],
        at_risk=risky,
    )


def _waiting_owners(state: State) -> Counter[int]:
    """Pending owners that kube-scheduler found no node for, by demand."""
    waiting: Counter[int] = Counter()
    for pod in state.pending.values():
        if pod.unschedulable_since > 0 and not pod.deleting and pod.uid not in state.claims.by_uid:
            owner = state.demands.owned_by(pod)
            if owner != NO_DEMAND:
                waiting[owner] += 1
    return waiting


def held_nodes(state: State) -> frozenset[str]:
    """Names of the nodes with at least one hold."""
    settle(state)
    return frozenset(state.table.names[row] for row in np.flatnonzero(state.holds.number).tolist())


def gauges(state: State, waiting: int) -> Mapping[str, float]:
    """Totals.

    `KIND/RESOURCE` for allocatable, claimed and held, plain names for the rest, `*_total` for counters.
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
        "overcommitted_nodes": int(((table.free < 0).any(axis=0) & table.present).sum()),
        "pods": len(state.pods),
        "claims": len(state.claims.by_uid),
        "claims_unseen": len(state.claims.unseen),
        "in_flight": len(state.flights.by_uid),
        "nominated": len(state.nominations.by_uid),
        "waiting": waiting,
        "holds": sum(state.holds.held_total),
        "unplaced": unplaced_slots(state),
    }
    return values | {f"{name}_total": count for name, count in state.counters.items()}
