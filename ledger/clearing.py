"""Where there is, or could be, room for a pod: what nodes have left, and whose end would leave more.

In steps, because every pod of the cluster is looked at. What holds keep is no room, and a pod that fills a
slot leaves none: its slot is held again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from ledger.claims import Claim, ClaimState
from ledger.demands import NO_DEMAND
from ledger.state import State, exempt
from qos.cluster.objects import Node, Pod, Resources

_PODS_A_STEP = 500
_NODES_A_STEP = 100


class Clearance(NamedTuple):
    """A node: what of each resource that was asked for is left to the pod, and pods there that may end."""

    node: str
    left: Resources
    pods: tuple[Pod, ...]


def survey(
    state: State,
    pod: Pod,
    admits: Callable[[Node], bool],
    worth: Callable[[Pod], bool],
    leaving_soon: Collection[str],
) -> Iterator[list[Clearance]]:
    """What there is so far, in steps of a millisecond or so; the last is all of it. `worth`: whether a pod
    may end for this one. `leaving_soon`: UIDs of pods that end already: they are room, as those being
    deleted.
    """
    found: list[Clearance] = []
    there: dict[int, list[Claim]] = {}
    leaving: dict[int, list[Claim]] = {}
    yield found
    for number, claim in enumerate(list(state.claims.by_uid.values())):
        if number % _PODS_A_STEP == 0:
            yield found
        if claim.owner != NO_DEMAND:
            continue
        if claim.pod.deleting or claim.pod.uid in leaving_soon:
            leaving.setdefault(claim.row, []).append(claim)
        elif _may_end(claim) and worth(claim.pod):
            there.setdefault(claim.row, []).append(claim)
    for number, (name, row) in enumerate(list(state.table.index.items())):
        if number % _NODES_A_STEP == 0:
            yield found
        node = state.table.nodes[row]
        if node is None or not state.table.usable[row] or not admits(node):
            continue
        left = _left(state, pod, row, [claim.requests for claim in _still(state, leaving.get(row, ()))])
        pods = tuple(claim.pod for claim in _still(state, there.get(row, ())))
        if pods or all(left[each] >= amount for each, amount in pod.requests.items()):
            found.append(Clearance(name, left, pods))
    yield found


def left_at(state: State, pod: Pod, node: str, leaving_soon: Collection[str]) -> Resources:
    """Likewise on one node; without what a node that is not there would have."""
    row = state.table.index.get(node, -1)
    if row < 0 or state.table.nodes[row] is None or not state.table.usable[row]:
        return {}
    ends = dict.fromkeys([*state.claims.ending_on(row), *leaving_soon])
    claims = [state.claims.by_uid[uid] for uid in ends if uid in state.claims.by_uid]
    there = [one for one in claims if one.row == row and one.owner == NO_DEMAND]
    return _left(state, pod, row, [one.requests for one in there])


def _still(state: State, claims: Iterable[Claim]) -> list[Claim]:
    """Those that did not end between two steps: their room is free by now."""
    return [claim for claim in claims if state.claims.by_uid.get(claim.pod.uid) is claim]


def _may_end(claim: Claim) -> bool:
    return claim.state is ClaimState.SEEN and not exempt(claim.pod)


def _left(state: State, pod: Pod, row: int, leaving: Iterable[Resources]) -> dict[str, int]:
    """What is free there, or will be, beside holds, pods in flight, and those that wait for their victims."""
    there, table = np.asarray([row], dtype=np.intp), state.table
    dims = [(name, table.dims[name]) for name in pod.requests if name in table.dims]
    columns = [dim for _, dim in dims]
    held = state.holds.visible_to(pod.priority)
    waiting = state.nominations.above(pod.uid, pod.priority, columns, there)
    left = dict.fromkeys(pod.requests, 0)
    for place, (name, dim) in enumerate(dims):
        amount = int(table.free[dim, row]) - int(table.charged[dim, row])
        amount -= int(held[dim, row]) if held is not None else 0
        amount -= int(waiting[place, 0]) if waiting is not None else 0
        left[name] = amount + sum(requests.get(name, 0) for requests in leaving)
    return left
