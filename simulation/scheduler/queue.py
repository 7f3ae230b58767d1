"""kube-scheduler's queue: active, backing off, unschedulable; which event makes which pod be tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from qos.cluster.objects import Pod
from simulation.scheduler.cache import AFFINITY, EXTENDER, FIT, SPREAD, TAINT

INITIAL_BACKOFF = 1.0
LONGEST_BACKOFF = 10.0
MOST_UNSCHEDULABLE_SECONDS = 300.0
"""podMaxInUnschedulablePodsDuration: then a pod is tried without any event."""

ROOM = frozenset({"pod-delete", "scale-down", "node-add", "node-update"})
"""Events after which a pod that the in-tree filters refused may fit."""


@dataclass(slots=True)
class Queued:
    """A pod that has no node. `rejectors`: who refused it in its latest attempt, nobody after an error.

    `gated`: its victims are being evicted; `missed`: an event came meanwhile. `shut`: it has
    schedulingGates, so no event moves it.
    """

    pod: Pod
    raw: bytes
    since: float
    rejectors: frozenset[str] = frozenset()
    refused: int = 0
    errors: int = 0
    gated: bool = False
    missed: bool = False
    shut: bool = False
    events: list[str] = field(default_factory=list)
    until: float = 0.0

    def back_off(self) -> None:
        """Its latest attempt failed: `until` then it backs off."""
        times = self.errors or self.refused
        self.until = self.since + min(LONGEST_BACKOFF, INITIAL_BACKOFF * 2 ** (times - 1))


class Queue:
    """Pods by UID, each in one of three places or in flight."""

    def __init__(self, clock: Callable[[], float], *, eager: bool) -> None:
        self._clock = clock
        self._eager = eager
        self.active: dict[str, Queued] = {}
        self.backoff: dict[str, Queued] = {}
        self.unschedulable: dict[str, Queued] = {}
        self.in_flight: dict[str, Queued] = {}
        self.news = asyncio.Event()

    def find(self, uid: str) -> Queued | None:
        """The pod, wherever it is."""
        places = (self.active, self.backoff, self.unschedulable, self.in_flight)
        return next((place[uid] for place in places if uid in place), None)

    def add(self, pod: Pod, raw: bytes, *, shut: bool = False) -> None:
        """A new pod."""
        place = self.unschedulable if shut else self.active
        place[pod.uid] = Queued(pod, raw, self._clock(), shut=shut)
        self.news.set()

    def remove(self, uid: str) -> None:
        """It has a node, or is gone; in flight it stays until its attempt is over."""
        for place in (self.active, self.backoff, self.unschedulable):
            place.pop(uid, None)

    def update(self, pod: Pod, raw: bytes, *, shut: bool = False) -> None:
        """A pod without a node has changed."""
        queued = self.find(pod.uid)
        if queued is None:
            self.add(pod, raw, shut=shut)
            return
        opened, queued.shut = queued.shut and not shut, shut
        if pod.uid in self.in_flight:
            queued.events.append("update")
            return
        less = any(pod.requests.get(name, 0) < amount for name, amount in queued.pod.requests.items())
        queued.pod, queued.raw = pod, raw
        if opened or (pod.uid in self.unschedulable and _worth(queued, "scale-down" if less else "update")):
            self._requeue(queued)

    def move(self, event: str, *, but: str = "", least: int | None = None) -> None:
        """Something happened in the cluster; `but` not for this pod, only for priorities up to `least`."""
        for queued in list(self.unschedulable.values()):
            if queued.pod.uid == but or (least is not None and queued.pod.priority > least):
                continue
            if _worth(queued, event):
                self._requeue(queued)
        for queued in self.in_flight.values():
            queued.events.append(event)

    def fail(self, queued: Queued, rejectors: frozenset[str]) -> None:
        """An attempt is over, without a node."""
        uid = queued.pod.uid
        self.in_flight.pop(uid, None)
        queued.rejectors, queued.since = rejectors, self._clock()
        if rejectors:
            queued.refused, queued.errors = queued.refused + 1, 0
        else:
            queued.errors += 1
        queued.back_off()
        events, queued.events = queued.events, []
        if rejectors and not any(_worth(queued, event) for event in events):
            self.unschedulable[uid] = queued
        else:
            self._requeue(queued)

    def done(self, uid: str) -> None:
        """An attempt is over, and the pod does not come back."""
        self.in_flight.pop(uid, None)

    def ungate(self, uid: str) -> None:
        """Its preemption has been carried out."""
        queued = self.find(uid)
        if queued is None:
            return
        queued.gated = False
        if queued.missed and uid in self.unschedulable:
            self._requeue(queued)
        queued.missed = False

    def _requeue(self, queued: Queued) -> None:
        uid = queued.pod.uid
        if queued.shut:
            return
        if queued.gated:
            self.unschedulable[uid] = queued
            queued.missed = True
            return
        self.unschedulable.pop(uid, None)
        place = self.backoff if queued.until > self._clock() else self.active
        place[uid] = queued
        self.news.set()

    def flush(self) -> None:
        """What has waited for too long is tried again."""
        for queued in list(self.unschedulable.values()):
            if self._clock() - queued.since > MOST_UNSCHEDULABLE_SECONDS:
                self._requeue(queued)

    def pop(self) -> Queued | None:
        """The next pod to try: highest priority, then longest waiting; one that backs off if no other is."""
        now = self._clock()
        for uid in [uid for uid, queued in self.backoff.items() if queued.until <= now]:
            self.active[uid] = self.backoff.pop(uid)
        queued = _first(self.active.values())
        if queued is None and self._eager:
            queued = _first(queued for queued in self.backoff.values() if not queued.errors)
        if queued is None:
            return None
        uid = queued.pod.uid
        self.active.pop(uid, None)
        self.backoff.pop(uid, None)
        self.in_flight[uid] = queued
        return queued

    def next_time(self) -> float | None:
        """When a pod that backs off after an error may be tried; None when none does."""
        return min((queued.until for queued in self.backoff.values()), default=None)


def _first(places: Iterable[Queued]) -> Queued | None:
    """The highest priority, then the longest waiting."""
    best: Queued | None = None
    most, since = 0, 0.0
    for queued in places:
        priority = queued.pod.priority
        if best is None or priority > most or (priority == most and queued.since < since):
            best, most, since = queued, priority, queued.since
    return best


def _worth(queued: Queued, event: str) -> bool:
    """Whether an event may help a pod (its rejectors' queueing hints)."""
    if not queued.rejectors or queued.rejectors & {EXTENDER, SPREAD}:
        return True
    if FIT in queued.rejectors and event in ROOM:
        return True
    return bool(queued.rejectors & {AFFINITY, TAINT}) and event in ("node-add", "node-update")
