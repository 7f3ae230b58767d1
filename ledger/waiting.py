"""Refused pods, and which of them would pass by now.

Kube-scheduler does not know when to try them again (trap T21).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ledger.demands import NO_DEMAND
from ledger.judge import judge
from ledger.moves import slots_that_fit
from ledger.placement import settle
from ledger.requests import avail, request_of
from ledger.state import State
from qos.cluster.objects import Pod

MOST_REMEMBERED = 5_000
_SAMPLE = 100
"""Below this number of nodes kube-scheduler shows every node.

Above, the names are a sample and other nodes may do too (T18).
"""
_MOST_JUDGED = 64


@dataclass(slots=True)
class _Refused:
    pod: Pod
    names: tuple[str, ...]
    moment: tuple[int, bool]


class Waiting:
    """Pods refused by filter, oldest refusal first; when there are too many the oldest are forgotten."""

    def __init__(self) -> None:
        self._refused: dict[str, _Refused] = {}

    def __len__(self) -> int:
        return len(self._refused)

    def remember(self, state: State, pod: Pod, names: Sequence[str]) -> None:
        """Note a refusal."""
        self._refused.pop(pod.uid, None)
        shown = tuple(names) if len(names) < _SAMPLE else ()
        self._refused[pod.uid] = _Refused(pod, shown, state.moment)
        if len(self._refused) > MOST_REMEMBERED:
            del self._refused[next(iter(self._refused))]

    def forget(self, uid: str) -> None:
        """The pod passed, or is gone."""
        self._refused.pop(uid, None)

    def ready(self, state: State) -> list[Pod]:
        """Pods whose next attempt would pass, as many of each kind as there is room for.

        Each is returned once.
        """
        settle(state, thorough=True)
        moment = state.moment
        kinds: dict[object, list[_Refused]] = {}
        for refused in self._refused.values():
            if refused.moment != moment:
                kinds.setdefault(_kind(state, refused), []).append(refused)
        woken: list[Pod] = []
        # Those longest not judged first: changes may come faster than all kinds can be judged.
        turns = sorted(kinds.values(), key=lambda alike: min(refused.moment for refused in alike))
        for alike in turns[:_MOST_JUDGED]:
            woken += [refused.pod for refused in alike[: _passing(state, alike[0])]]
            for refused in alike:
                refused.moment = moment
        for pod in woken:
            self.forget(pod.uid)
        return woken


def _kind(state: State, refused: _Refused) -> object:
    """Pods of one kind get one verdict."""
    pod = refused.pod
    return (
        tuple(sorted(pod.requests.items())),
        pod.priority,
        state.demands.owned_by(pod),
        _names(state, refused),
    )


def _names(state: State, refused: _Refused) -> tuple[str, ...]:
    """Where the pod may go: the names of its refusal, and its nominated node; empty: anywhere.

    kube-scheduler can lose the event that should make it try a preemptor again; its hole would stay empty.
    """
    nominated = state.nominations.by_uid.get(refused.pod.uid)
    if nominated is None or not refused.names:
        return refused.names
    return (*refused.names, state.table.names[nominated[0]])


def _passing(state: State, refused: _Refused) -> int:
    """How many pods like this one would pass now; by moves one at a time."""
    names = _names(state, refused) or tuple(state.table.index)
    rows = state.table.rows_of(names)
    request = request_of(state, refused.pod)
    verdict = judge(state, request, rows)
    if verdict is None:
        return 0
    if verdict.passing is None:
        return 1
    left = avail(state, request, np.unique(rows[verdict.passing]), own=request.owner != NO_DEMAND)
    return max(1, int(min(slots_that_fit(left, request.need).sum(), MOST_REMEMBERED)))
