"""Places for pods that must all have one: claimed one pod at a time, and how many there can be at the most.

Here every resource counts that a pod asks for, not only those that demands hold: nobody has been asked yet
whether it fits.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ledger import quotas
from ledger.bind import bind_pod
from ledger.decisions import Mode
from ledger.filter import filter_nodes
from ledger.placement import settle
from ledger.requests import request_of, scale
from ledger.state import State
from ledger.table import Rows
from ledger.waiting import Waiting
from qos.cluster.objects import NodePredicate, Pod

_TIGHTEST = 64
"""Of so many nodes, those with least to spare, filter is asked first, and of all others only then."""


@dataclass(frozen=True, slots=True)
class Place:
    """The node that a pod has claimed, or why there is none."""

    node: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Room:
    """How many pods of a kind there is room for at the most, wherever holds lie; the resource of which there
    is least; and how many nodes admit one.
    """

    pods: int
    resource: str
    nodes: int


class Gangs:
    """What is asked of a ledger for pods that start together, or not at all. `now` as the ledger's."""

    def __init__(self, state: State, waiting: Waiting) -> None:
        self._state, self._waiting = state, waiting

    def room(
        self, pod: Pod, where: NodePredicate, *, empty: bool = False, mates: Collection[str] = ()
    ) -> Room:
        """For pods like this one; empty: as if no pod ran. Too much where holds cannot move away. mates: UIDs
        of pods whose nominations are no obstacle.
        """
        state = self._state
        rows = np.flatnonzero(state.demands.admitted(where))
        fits = _each(state, pod, rows, empty=empty, mates=mates)
        if fits is None or not rows.size:
            return Room(0, _unknown(state, pod), int(rows.size))
        scarcest = min(fits, key=lambda name: (int(fits[name].sum()), name))
        together = np.minimum.reduce(list(fits.values()))
        return Room(int(together.sum()), scarcest, int(rows.size))

    @property
    def stamp(self) -> object:
        """Differs when anything has changed on which answers depend."""
        return self._state.version, self._state.table.changes

    def quota_of(self, pod: Pod) -> str:
        """What tells a pod's quota from others; "" where there are none."""
        quotas = self._state.quotas
        return "" if quotas is None else str(quotas.kind(pod))

    def refusal(self, pod: Pod, mates: Collection[str] = ()) -> str:
        """Why its quota refuses a pod, which may ask for what several do together, its mates (UIDs) among
        them; "" where it does not.
        """
        state = self._state
        if state.quotas is None or state.mode is Mode.OBSERVE:
            return ""
        return quotas.refusal(state, request_of(state, pod), mates=mates)

    def forget(self, uid: str) -> None:
        """A pod had no place: nobody need wake it, because kube-scheduler does not try it."""
        self._waiting.forget(uid)

    def place(self, pod: Pod, where: NodePredicate, now: float, prefer: str = "") -> Place:
        """Claim a node for a pod: `prefer` if it will do, else the one with least to spare. A claim that it
        has stays. Ledger.release takes it back.
        """
        state = self._state
        if (claim := state.claims.by_uid.get(pod.uid)) is not None:
            return Place(state.table.names[claim.row])
        settle(state)
        if unknown := _unknown(state, pod):
            return Place(why=f"no node offers {unknown}")
        admitting = np.flatnonzero(state.demands.admitted(where))
        ordered = _tightest(state, pod, admitting)
        if not ordered:
            return Place(why=_short(state, pod, admitting))
        if prefer in ordered:
            ordered.remove(prefer)
            ordered.insert(0, prefer)
        return _claim(state, self._waiting, pod, ordered, now)


def _each(
    state: State, pod: Pod, rows: Rows, *, empty: bool, mates: Collection[str]
) -> dict[str, NDArray[np.int64]] | None:
    """How many such pods fit on each row by one resource alone; None where no node offers one of them."""
    names = _asked(pod)
    if any(name not in state.table.dims for name in names):
        return None
    left = _left(state, pod, names, rows, empty=empty)
    if mates and not empty:
        left = left + _kept_for(state, pod, mates, names, rows)
    return {name: np.maximum(left[place], 0) // pod.requests[name] for place, name in enumerate(names)}


def _asked(pod: Pod) -> list[str]:
    return [name for name, amount in sorted(pod.requests.items()) if amount > 0]


def _unknown(state: State, pod: Pod) -> str:
    return next((name for name in _asked(pod) if name not in state.table.dims), "")


def _left(
    state: State, pod: Pod, names: Sequence[str], rows: Rows, *, empty: bool = False
) -> NDArray[np.int64]:
    """What is free, [names, rows], beside pods in flight and those that wait for their victims."""
    table, dims = state.table, [state.table.dims[name] for name in names]
    pick = np.ix_(np.asarray(dims, dtype=np.intp), rows)
    if empty:
        return np.asarray(table.allocatable[pick])
    left = table.free[pick] - table.charged[pick] - table.possible[pick]
    waiting = state.nominations.above(pod.uid, pod.priority, dims, rows)
    return np.asarray(left if waiting is None else left - waiting)


def _kept_for(
    state: State, pod: Pod, mates: Collection[str], names: Sequence[str], rows: Rows
) -> NDArray[np.int64]:
    """What nominations keep for these, [names, rows], as far as the pod sees it."""
    kept = np.zeros((len(names), state.table.shape[1]), dtype=np.int64)
    for uid in mates:
        row, mate = state.nominations.by_uid.get(uid, (-1, pod))
        if row >= 0 and uid != pod.uid and mate.priority >= pod.priority:
            kept[:, row] += [mate.requests.get(name, 0) for name in names]
    return kept[:, rows]


def _tightest(state: State, pod: Pod, rows: Rows) -> list[str]:
    """The nodes, of these, with room for a pod, those with least to spare first."""
    names = _asked(pod)
    dims = [state.table.dims[name] for name in names]
    asked = _amounts(pod, names)
    left = _left(state, pod, names, rows) - asked
    fit = np.asarray((left >= 0).all(axis=0))
    spare = (left[:, fit] / scale(state, dims)[:, None]).sum(axis=0)
    rows = rows[fit]
    order = rows[np.lexsort((state.table.rank().take(rows), spare))]
    return [state.table.names[row] for row in order.tolist()]


def _amounts(pod: Pod, names: Sequence[str]) -> NDArray[np.int64]:
    return np.asarray([pod.requests[name] for name in names], dtype=np.int64)[:, None]


def _claim(state: State, waiting: Waiting, pod: Pod, ordered: list[str], now: float) -> Place:
    why = ""
    for names in (ordered[:_TIGHTEST], ordered[_TIGHTEST:]):
        if not names:
            continue
        answer = filter_nodes(state, waiting, pod, names, now, prefers=True)
        if answer.nodes:
            open_nodes = set(answer.nodes)
            node = next(name for name in names if name in open_nodes)
            decision = bind_pod(state, waiting, pod, node, now)
            if not decision.refusal:
                state.promised.add(pod.uid)
                return Place(node)
            why = decision.refusal
        else:
            why = answer.message or next(iter(answer.others.values()), "no node has room")
    return Place(why=why)


def _short(state: State, pod: Pod, rows: Rows) -> str:
    """Which resource is missing most, in words that stay the same while nothing else changes."""
    if not rows.size:
        return "no ready node admits it, by node selector, required affinity and taints"
    names = _asked(pod)
    enough = (_left(state, pod, names, rows) >= _amounts(pod, names)).sum(axis=1).tolist()
    return f"no node has enough {names[min(range(len(names)), key=lambda n: enough[n])]} left"
