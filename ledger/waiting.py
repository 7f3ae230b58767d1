"""Refused pods, and which of them would pass by now.

Kube-scheduler does not know when to try them again (trap T21).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from zlib import crc32

import numpy as np

from ledger import quotas
from ledger.board import slots_that_fit
from ledger.demands import NO_DEMAND
from ledger.judge import judge
from ledger.placement import settle
from ledger.requests import avail, request_of, sufficing
from ledger.state import State
from ledger.table import Flags
from qos.cluster.objects import Pod

MOST_REMEMBERED = 5_000
SAMPLE = 100
"""Below this number of nodes kube-scheduler shows every node.

Above, the names are a sample and other nodes may do too (T18).
"""
_MOST_JUDGED = 64


_SOON = 8.0
SAMPLED_SECONDS = 30.0
"""Seconds at most between two wakings that prove vain: where a node that the pod was shown would do now, and
where others would, of which kube-scheduler shows the next sample each time."""
REGAINED_SECONDS = 300.0
_CHANGES_AHEAD = 8
"""kube-scheduler may have reasons against those others that we do not know: of wakings for them a pod has as
many as show it every node and eight more, and regains one in so many seconds."""
_PODS_A_STEP = 200
ANSWER_SECONDS = 60.0
"""A pod that was woken tries again by then, unless it is gone and no watch has shown it: kube-scheduler lets
it back off for ten seconds at most."""


@dataclass(slots=True)
class _Refused:
    """A pod, and what is known of its refusals.

    `names` it was shown if those were all; else `sample` is how many of them, `seen` the rows it was shown so
    far, and `known` those where it would have passed when it was looked at last. `vain`: wakings after which
    it was refused again, `tries` those of them since a node was new among `known`; `since`: when it was
    refused last; `later`: when to look again though nothing changes; `regained`: when it will have all its
    wakings for other nodes again; `woken`: when it was woken last; `unfiltered`: kube-scheduler had not
    looked at the names.
    """

    pod: Pod
    names: tuple[str, ...]
    moment: tuple[int, bool]
    since: float
    sample: int = 0
    seen: Flags | None = None
    known: Flags | None = None
    vain: int = 0
    tries: int = 0
    regained: float = -math.inf
    later: float = math.inf
    woken: float = math.inf
    unfiltered: bool = False


class _Remembered:
    """Refused pods, oldest refusal first.

    When there are too many, the namespace that has most of them loses its oldest: thousands of pods of one
    tenant must not keep those of another from being woken.
    """

    def __init__(self) -> None:
        self.by_uid: dict[str, _Refused] = {}
        self._namespaces: dict[str, dict[str, None]] = {}

    def put(self, refused: _Refused) -> None:
        """Remember a pod that is not remembered, as the newest."""
        pod = refused.pod
        self.by_uid[pod.uid] = refused
        self._namespaces.setdefault(pod.namespace, {})[pod.uid] = None
        if len(self.by_uid) > MOST_REMEMBERED:
            most = max(self._namespaces, key=lambda name: len(self._namespaces[name]))
            self.pop(next(iter(self._namespaces[most])))

    def pop(self, uid: str) -> _Refused | None:
        """Forget a pod; what was remembered of it."""
        refused = self.by_uid.pop(uid, None)
        if refused is not None:
            there = self._namespaces[refused.pod.namespace]
            del there[uid]
            if not there:
                del self._namespaces[refused.pod.namespace]
        return refused


class Waiting:
    """Pods refused by filter, and those woken since."""

    def __init__(self, sample: int = SAMPLE) -> None:
        self._sample = sample
        self._refused = _Remembered()
        self._woken = _Remembered()
        self._judged: tuple[int, bool] | None = None
        """The moment as of which all were judged."""

    def __len__(self) -> int:
        return len(self._refused.by_uid)

    def remember(self, state: State, pod: Pod, names: Sequence[str], *, unfiltered: bool = False) -> None:
        """Note a refusal."""
        before = self._refused.pop(pod.uid)
        woken = self._woken.pop(pod.uid)
        sampled = len(names) >= self._sample
        shown = () if sampled else tuple(names)
        refused = _Refused(pod, shown, state.moment, state.now, unfiltered=unfiltered)
        if sampled:
            refused.sample = len(names)
            refused.seen = np.zeros(state.table.shape[1], dtype=np.bool_)
            refused.seen[state.table.rows_of(names)] = True
        earlier = before or woken
        if earlier is not None:
            refused.vain = earlier.vain + (woken is not None)
            refused.tries = earlier.tries + (woken is not None)
            refused.regained = earlier.regained
            refused.known = earlier.known
            if earlier.seen is not None and refused.seen is not None:
                refused.seen[: earlier.seen.size] |= earlier.seen
        if sampled:
            refused.later = state.now + _pause(refused.vain + 1, SAMPLED_SECONDS) * _unlike_others(refused)
        self._refused.put(refused)

    def forget(self, uid: str) -> bool:
        """The pod passed, or is gone. True when it was woken and has not tried: its room is left."""
        self._refused.pop(uid)
        return self._woken.pop(uid) is not None

    def lapse(self, now: float) -> bool:
        """Forget who was woken long ago and has not tried. True when there was one: its room is left."""
        before = len(self._woken.by_uid)
        while (
            oldest := next(iter(self._woken.by_uid.values()), None)
        ) and oldest.woken + ANSWER_SECONDS <= now:
            self._woken.pop(oldest.pod.uid)
        return len(self._woken.by_uid) < before

    def unjudged(self, state: State) -> bool:
        """Whether a pod may pass by now because something has changed, not time alone."""
        return bool(self._refused.by_uid) and self._judged != state.moment

    def ready(self, state: State) -> list[Pod]:
        """Pods whose next attempt would pass, as many of each kind as there is room for.

        Each is returned once.
        """
        *_, woken = self.gather(state)
        return woken

    def gather(self, state: State) -> Iterator[list[Pod]]:
        """The same in steps, of one kind of pods or some of it; the last is all of it."""
        settle(state, thorough=True)
        began, all_judged = state.moment, True
        kinds: dict[object, list[_Refused]] = {}
        woken: list[Pod] = []
        for number, refused in enumerate(list(self._refused.by_uid.values())):
            if number % _PODS_A_STEP == 0:
                yield woken
            changed = refused.moment != state.moment
            if refused.later <= state.now or (changed and _due(state, refused, _SOON)):
                kinds.setdefault(_kind(state, refused), []).append(refused)
            elif changed:
                all_judged = False
        yield woken
        # Those longest not judged first: changes may come faster than all kinds can be judged.
        for alike in nsmallest(_MOST_JUDGED, kinds.values(), key=_longest):
            settle(state)
            passing, most = _passing(state, alike[0])
            nowhere = not most
            for number, refused in enumerate(alike):
                there = self._refused.by_uid.get(refused.pod.uid) is refused
                if nowhere:
                    refused.known, refused.later = passing, math.inf
                elif there and most > 0 and _wakes(state, refused, passing):
                    woken.append(refused.pod)
                    most -= 1
                    refused.woken = state.now
                    self._refused.pop(refused.pod.uid)
                    self._woken.pop(refused.pod.uid)
                    self._woken.put(refused)
                refused.moment = state.moment
                if number % _PODS_A_STEP == 0:
                    yield woken
        self._judged = began if all_judged and len(kinds) <= _MOST_JUDGED else None
        yield woken


def _longest(alike: list[_Refused]) -> tuple[int, bool]:
    """When the one of them was judged that was not for longest."""
    return alike[0].moment if len(alike) == 1 else min([refused.moment for refused in alike])


def _due(state: State, refused: _Refused, most: float) -> bool:
    """Whether a pod that was woken in vain may be woken again: after a second, then two, four .."""
    return state.now >= refused.since + _pause(refused.vain, most)


def _pause(vain: int, most: float) -> float:
    return min(most, 2.0 ** (vain - 1)) if vain else 0.0


def _wakes(state: State, refused: _Refused, passing: Flags) -> bool:
    """Whether the pod is to try again, which would pass on these rows.

    A node that it was refused on and that would do now is a reason at once. Others of which it was shown a
    sample are one until, since one of them is new, it has been shown as many samples as show every node, and
    some more: which one is next depends on the other pods that try.
    """
    refused.later = math.inf
    if refused.seen is None:
        return bool(passing.any())
    if _is_news(refused, passing):
        refused.tries = 0
    rounds = -(-len(state.table.index) // refused.sample)
    searched = refused.tries > rounds + _CHANGES_AHEAD
    if passing[: refused.seen.size][refused.seen].any():
        if searched and not _due(state, refused, SAMPLED_SECONDS):
            refused.later = refused.since + SAMPLED_SECONDS
            return False
    elif searched or not passing.any():
        refused.known = passing
        return False
    else:
        refused.later = _turn(refused, rounds)
        if state.now < refused.later:
            return False
        refused.regained = max(refused.regained, state.now) + REGAINED_SECONDS
    refused.known = passing
    return True


def _is_news(refused: _Refused, passing: Flags) -> bool:
    """Whether the pod would pass where it would not have passed before."""
    if refused.known is None:
        return bool(passing.any())
    news = passing.copy()
    news[: refused.known.size] &= ~refused.known[: news.size]
    return bool(news.any())


def _turn(refused: _Refused, rounds: int) -> float:
    """When the pod may be woken for nodes that it was not shown."""
    paid = refused.regained - (rounds + _CHANGES_AHEAD - 1) * REGAINED_SECONDS
    return max(refused.since + _pause(refused.vain, SAMPLED_SECONDS), paid)


def _unlike_others(refused: _Refused) -> float:
    """1/2 to 1, another one for each pod and try: pods that always try in turn would each be shown the same
    few samples again and again.
    """
    return 0.5 + crc32(f"{refused.pod.uid} {refused.vain}".encode()) / (2 << 32)


def _kind(state: State, refused: _Refused) -> object:
    """Pods of one kind get one verdict. A nominated pod has a hole, which those like it have not."""
    pod = refused.pod
    nominated = state.nominations.by_uid.get(pod.uid)
    return (
        tuple(sorted(pod.requests.items())),
        pod.priority,
        state.demands.owned_by(pod),
        state.demands.reservations.candidates(pod),
        pod.reservation_affinity is not None,
        _names(state, refused),
        refused.unfiltered,
        -1 if nominated is None else nominated[0],
        state.quotas.kind(pod) if state.quotas is not None else None,
    )


def _names(state: State, refused: _Refused) -> tuple[str, ...]:
    """Where the pod may go: the names of its refusal, and its nominated node; empty: anywhere.

    kube-scheduler can lose the event that should make it try a preemptor again; its hole would stay empty.
    """
    nominated = state.nominations.by_uid.get(refused.pod.uid)
    if nominated is None or not refused.names:
        return refused.names
    return (*refused.names, state.table.names[nominated[0]])


def _passing(state: State, refused: _Refused) -> tuple[Flags, int]:
    """Where a pod like this one would pass now, by row, and how many of them; by moves one at a time.

    Nodes that are not ready are no reason to try others again: kube-scheduler shows them to hardly any pod.
    Owners' nodes that pods in flight may fill are one: the others may be none that kube-scheduler shows it.
    """
    names = _names(state, refused)
    rows = state.table.rows_of(names) if names else np.flatnonzero(state.table.usable)
    if refused.unfiltered:
        rows = rows[sufficing(state, refused.pod, rows)]
    request = request_of(state, refused.pod, rows=rows)
    passing = np.zeros(state.table.shape[1], dtype=np.bool_)
    let = quotas.room(state, request)
    verdict = None if let == 0 else judge(state, request, rows, narrows=False)
    if verdict is None:
        return passing, 0
    if verdict.passing is None:
        passing[verdict.row] = True
        return passing, 1
    passing[rows[verdict.passing]] = True
    there = np.flatnonzero(passing)
    left = avail(state, request, there, own=request.owner != NO_DEMAND)
    most = max(1, int(min(slots_that_fit(left, request.need).sum(), MOST_REMEMBERED)))
    return passing, most if let is None else min(most, let)
