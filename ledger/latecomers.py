"""Pods that came to a node where slots were kept, past the scheduler that knew of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ledger.state import State


def overcommitted(state: State, kept: Mapping[str, Mapping[str, int]], since: float) -> frozenset[str]:
    """Nodes where pods leave no room for so many slots of each demand, by key, and would but for those that
    came after `since`. Whatever is held.
    """
    table, demands = state.table, state.demands
    there = [
        (table.index[node], demands.numbers[key], count)
        for node, slots in kept.items()
        for key, count in slots.items()
        if node in table.index and key in demands.numbers
    ]
    asked = np.zeros_like(table.free)
    if there:
        rows, numbers, counts = np.asarray(there, dtype=np.intp).T
        np.add.at(asked.T, rows, demands.vectors[numbers] * counts[:, None])
    short = {*np.flatnonzero(((asked > 0) & (asked > table.free)).any(axis=0)).tolist()}
    without = {row: table.free[:, row].copy() for row in short}
    for claim in reversed(state.claims.by_uid.values()) if short else ():
        if claim.since <= since:
            break
        if claim.row in short:
            without[claim.row] += table.vector(claim.requests)
    return frozenset(
        table.names[row]
        for row, free in without.items()
        if not ((asked[:, row] > 0) & (asked[:, row] > free)).any()
    )
