"""Starts gangs: all of a gang's pods have a place, or none of them is let go to kube-scheduler.

Places are claimed in the ledger, which keeps others out; then every pod is nominated to its own, which
survives us; then all gates are lifted. A gate cannot be put back, so a place is kept until its pod is bound,
or the gang's waiting time is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from adapters.kubernetes.events import EventWriter
from adapters.loops import Changes, last_of
from extender.gang_book import GangBook
from extender.gang_calls import GangCalls
from extender.gang_look import CHANGED, NODES, GangLook
from extender.metrics import Metrics
from extender.view import View
from ledger.ledger import Ledger
from qos.cluster.gangs import EVERYWHERE, Band, Line, Member
from qos.cluster.objects import NodePredicate, Pod

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.5
"""Between two looks at gangs that wait for room, at the least."""
_FAILED_SECONDS: Final = 5.0
"""How long a gang waits whose pods could not be nominated, or that had no places although there was room."""
_LONGEST_PAUSE: Final = 60.0
_SETTLES_SECONDS: Final = 1.0
"""Before the first reason is told: pods of a gang come one after the other."""
_TOLD_SECONDS: Final = 10.0
"""Between two reasons that are told of one gang."""
_TOLD_A_SECOND: Final = 1.0
"""Further reasons, of all gangs: other Events would be lost behind so many."""


@dataclass(slots=True)
class _Start:
    """A band whose pods have places. `places`: of those not bound yet, by UID: the pod, its node."""

    band: Band
    places: dict[str, tuple[Pod, str]]
    where: dict[str, NodePredicate]
    since: float
    task: asyncio.Task[None] | None = None


@dataclass(slots=True)
class _Wait:
    """A band without places: since when, what was told last and when, until when it is not tried again, and
    how often that was in vain.
    """

    since: float
    told: str = ""
    at: float = float("-inf")
    until: float = float("-inf")
    vain: int = 0


class Gangs:
    """Looks at gangs as pods, nodes and quotas change, by turns. `clock`: seconds, monotonic."""

    def __init__(
        self,
        calls: GangCalls,
        ledger: Ledger,
        book: GangBook,
        changes: Changes,
        view: View,
        events: EventWriter,
        metrics: Metrics,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._calls, self._ledger, self._book, self._changes = calls, ledger, book, changes
        self._view, self._events, self._metrics = view, events, metrics
        self._clock = clock
        self._look = GangLook(ledger, lambda uid: uid in book.gated, clock)
        self._starts: dict[tuple[str, ...], _Start] = {}
        self._waits: dict[tuple[str, ...], _Wait] = {}
        self._lifting: dict[str, asyncio.Task[None]] = {}
        self._seen: object = None
        self._looked = float("-inf")
        self._line = Line()
        self._closed: dict[str, Band] = {}
        self._untold = False

    @property
    def waiting(self) -> int:
        """How many gangs, or groups of them, have no places."""
        return len(self._waits)

    def starting(self, gang: str) -> bool:
        """Whether it has places, and not all of its pods are bound."""
        return any(gang in key for key in self._starts)

    async def run_once(self) -> None:
        """Follow those that have places, let go who need not wait, give places to who can have them all."""
        await self._changes.wait()
        for one in list(self._book.strangers.values()):
            self._lift_alone(one)
        if not (self._book.gated or self._starts or self._waits):
            return
        await self._follow()
        now = self._clock()
        # Time itself opens and closes the line, ends pauses, and lets reasons be told.
        seen = self._ledger.gangs.stamp, now // (_SETTLES_SECONDS if self._untold else _FAILED_SECONDS)
        if now - self._looked >= LOOK_SECONDS and (self._book.stale or seen != self._seen):
            self._looked, self._seen = now, seen
            self._book.stale.clear()
            await self._serve()
        elif self._book.stale:
            self._changes.note()

    async def drain(self) -> None:
        """Finish what is under way."""
        tasks = [start.task for start in self._starts.values() if start.task is not None]
        await asyncio.gather(*tasks, *self._lifting.values(), return_exceptions=True)

    def _lift_alone(self, one: Member) -> None:
        """It need not wait: it is an ordinary pod."""
        uid = one.pod.uid
        if uid not in self._lifting:
            task = self._lifting[uid] = asyncio.create_task(self._lifted([one]))
            task.add_done_callback(partial(self._done, uid))

    async def _lifted(self, members: Iterable[Member]) -> None:
        if not await self._calls.lift(members):
            self._metrics.gang("failed")

    async def _serve(self) -> None:
        """In order; a band that has waited for long may keep those behind it waiting (Line)."""
        bands = sorted(await last_of(self._book.gather_bands()), key=lambda band: band.order)
        self._waits = {band.key: self._waits[band.key] for band in bands if band.key in self._waits}
        self._look.begin(bands)
        self._line.keep(self._waits)
        self._closed, self._untold = {}, False
        for band in bands:
            self._let_go_others(band)
            if band.key not in self._starts:
                await self._serve_one(band)
            await asyncio.sleep(0)

    def _let_go_others(self, band: Band) -> None:
        """Of gangs that run, or have places: who comes beside these is an ordinary pod."""
        start = self._starts.get(band.key)
        for one in band.musters if start is None or start.task is None else ():
            for member in one.gated if not one.lacks else ():
                if start is None or member.pod.uid not in start.places:
                    self._lift_alone(member)

    async def _serve_one(self, band: Band) -> None:
        if not any(one.lacks for one in band.musters):
            self._waits.pop(band.key, None)
            return
        now = self._clock()
        wait = self._waits.setdefault(band.key, _Wait(now, at=now - _TOLD_SECONDS + _SETTLES_SECONDS))
        if why := band.obstacle:
            wait.since = now  # it is not its turn yet
            self._tell(band, wait, why)
            return
        if (first := self._served_first(band)) is not None:
            self._tell(band, wait, f"gang {first.key[0]} has waited for long, and is served first")
            return
        why, scope = self._look.obstacle(band)
        if not why and wait.until <= now:
            why = await self._start(band, wait)
        if why:
            self._tell(band, wait, why)
            self._dismiss(band)
            if not self._look.hopeless(band) and self._line.closes(
                scope, band.key, wait.since, band.patience, now
            ):
                self._closed.setdefault(scope, band)

    def _dismiss(self, band: Band) -> None:
        """An earlier process nominated them, and the places are gone: what is left is kept for nobody."""
        for pod in () if band.begun else (pod for one in band.musters for pod in one.nominated):
            if pod.uid not in self._lifting:
                task = self._lifting[pod.uid] = asyncio.create_task(self._calls.dismiss([pod]))
                task.add_done_callback(partial(self._done, pod.uid))

    def _done(self, uid: str, _task: asyncio.Task[None]) -> None:
        self._lifting.pop(uid, None)

    def _served_first(self, band: Band) -> Band | None:
        """Who keeps it from starting: one that waits for nodes, or for room in the same quota."""
        scopes = {NODES} | (self._look.quotas(band) if self._closed else set())
        return next((first for scope, first in self._closed.items() if scope in scopes), None)

    async def _start(self, band: Band, wait: _Wait) -> str:
        places, why = await self._look.claim(band)
        now = self._clock()
        if not places:
            if why == CHANGED:
                self._changes.note()
                return ""
            wait.vain += 1
            wait.until = now + min(_LONGEST_PAUSE, 2.0 ** (wait.vain - 1))
            return why
        self._look.room_taken()
        where = {one.pod.uid: one.where for one in band.chosen}
        start = self._starts[band.key] = _Start(band, places, where, now)
        start.task = asyncio.create_task(self._carry_out(start, dict(places)))
        return ""

    async def _carry_out(self, start: _Start, places: dict[str, tuple[Pod, str]]) -> None:
        band = start.band
        try:
            if not await self._calls.nominate(places):
                await self._back_out(start, places)
                return
            await self._calls.lift(band.chosen)  # whom this did not reach: _follow
            for one in band.musters:
                self._book.satisfy(one.key)
        finally:
            start.task = None
            self._changes.note()
        self._waits.pop(band.key, None)
        self._metrics.gang("started")
        note = f"{len(places)} pods have places, and are let go together"
        log.info("gang starts gang=%r pods=%d", band.key[0], len(places))
        self._say(band, "Normal", "GangStarts", note)

    async def _back_out(self, start: _Start, places: dict[str, tuple[Pod, str]]) -> None:
        """Not all could be nominated: one is gone, or the API server does not answer. All are gated yet."""
        self._look.give_up(places)
        self._starts.pop(start.band.key, None)
        self._metrics.gang("failed")
        if (wait := self._waits.get(start.band.key)) is not None:
            wait.until = self._clock() + _FAILED_SECONDS
        await self._calls.dismiss(pod for pod, _ in places.values() if pod.uid in self._book.gated)

    async def _follow(self) -> None:
        """Keep the places of those that started, until their pods are bound or their time is over."""
        for key, start in list(self._starts.items()):
            if start.task is not None:
                continue
            over = self._clock() - start.since > start.band.patience
            gated = [self._book.gated[uid] for uid in start.places if uid in self._book.gated]
            if gated and not over:
                start.task = asyncio.create_task(self._lift_again(start, gated))
                continue
            for uid, (_, node) in list(start.places.items()):
                self._follow_one(start, uid, node)
            if not start.places:
                del self._starts[key]
            elif over:
                self._end(key, start)
            await asyncio.sleep(0)

    async def _lift_again(self, start: _Start, gated: Iterable[Member]) -> None:
        try:
            await self._calls.lift(gated)
            await asyncio.sleep(LOOK_SECONDS)  # until the watch shows it
        finally:
            start.task = None

    def _follow_one(self, start: _Start, uid: str, node: str) -> None:
        pod = self._ledger.known(uid)
        if pod is None or pod.node_name or pod.terminal or pod.deleting:
            del start.places[uid]
            return
        now, there = self._clock(), self._view.nodes.get(node)
        if there is None or not there.ready:
            self._ledger.release(uid)  # another one, if there is any
        found = self._ledger.gangs.place(pod, start.where.get(uid, EVERYWHERE), now, node)
        if found.node and found.node != node:
            start.places[uid] = pod, found.node
            log.info("pod of a gang has another place pod=%s node=%s", pod.key, found.node)
        unaware = pod.unschedulable_since and pod.nominated_node_name != found.node
        if found.node and (found.node != node or unaware) and uid not in self._lifting:
            task = self._lifting[uid] = asyncio.create_task(self._renominate(pod, found.node))
            task.add_done_callback(partial(self._done, uid))

    async def _renominate(self, pod: Pod, node: str) -> None:
        """kube-scheduler takes a nomination back when it tries in vain."""
        await self._calls.nominate({pod.uid: (pod, node)})
        await asyncio.sleep(LOOK_SECONDS)

    def _end(self, key: tuple[str, ...], start: _Start) -> None:
        """kube-scheduler has a reason against the places that is not known here."""
        del self._starts[key]
        self._look.give_up(start.places)
        self._metrics.gang("late")
        note = (
            f"{len(start.places)} of its pods were not bound within {start.band.patience:g} seconds: their "
            "places are free for others, kube-scheduler's Events of these pods say why"
        )
        log.warning("gang is not whole gang=%r pods=%d", key[0], len(start.places))
        self._say(start.band, "Warning", "GangIncomplete", note)

    def _tell(self, band: Band, wait: _Wait, why: str) -> None:
        """Once, until it is another reason."""
        now = self._clock()
        if why == wait.told:
            return
        pause = max(_TOLD_SECONDS, len(self._waits) / _TOLD_A_SECOND) if wait.told else _TOLD_SECONDS
        if now - wait.at < pause:
            self._untold = True
            return
        wait.told, wait.at = why, now
        log.info("gang waits gang=%r why=%r", band.key[0], why)
        self._say(band, "Warning", "GangWaits", f"none of its pods is let go yet: {why}")

    def _say(self, band: Band, kind: str, reason: str, note: str) -> None:
        for gang in band.key:
            if (about := self._book.regarding(gang)) is not None:
                self._events.say(about, kind, reason, note)
