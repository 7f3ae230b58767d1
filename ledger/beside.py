"""What is left of a node beside slots that somebody stands in for, whatever is held there."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ledger.state import State
from ledger.table import Vector
from qos.cluster.objects import Pod


def slots_of(state: State, counts: Mapping[str, int]) -> Vector:
    """What so many slots of each demand, by key, take together."""
    total, numbers = np.zeros_like(state.holds.total), state.demands.numbers
    for key in counts.keys() & numbers.keys():
        total += state.demands.vectors[numbers[key]] * counts[key]
    return total


def fits_beside(state: State, pod: Pod, node: str, counts: Mapping[str, int]) -> bool:
    """Whether a pod fits beside so many slots, and those that kube-scheduler counts before it."""
    row = state.table.index.get(node, -1)
    if row < 0:
        return False
    left = state.table.free[:, row] - slots_of(state, counts)
    own = state.claims.by_uid.get(pod.uid)
    if own is not None and own.row == row:
        left = left + state.table.vector(own.requests)
    taken = state.nominations.above(pod.uid, pod.priority, range(left.size), np.asarray([row]))
    if taken is not None:
        left = left - taken[:, 0]
    asked = state.table.vector(pod.requests)
    return bool((asked <= left)[asked > 0].all())
