"""Keeps what was applied: repairs on events, checks everything now and then, gives up fights for a while."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final, Protocol

from agent.enforcement.enforcer import Enforcer
from agent.enforcement.fights import Fight
from agent.enforcement.index import Spot
from agent.enforcement.places import Place
from agent.enforcement.repair import Drift, Repairer
from agent.enforcement.watch import Watch, watch
from agent.enforcement.writers import ENDED, OTHER, RUNTIME, UNSEEN, UNTOLD, WRITERS

CHECK_SECONDS: Final = 60.0
JITTER: Final = 0.2
"""The part of the interval by which it varies, up or down: nodes that started together do not check together.
"""
SETTLE_SECONDS: Final = 0.01
"""From a write to its repair: a runtime writes its files one after the other, and some in an order."""
LEAST_PAUSE_SECONDS: Final = 1.0
"""Between two full checks, however many writes go unreported."""
SLICE_SECONDS: Final = 0.005
"""Seconds for which a full check or a repair works before others have their turn."""
EXPECTED_SECONDS: Final = 5.0
"""Seconds after an announced update in which a write without a known writer is taken for the runtime's."""

log = logging.getLogger(__name__)


class Told(Protocol):
    """Counts what the watch for drift finds and does."""

    def drifted(self, drift: Drift) -> None:
        """A file was changed by somebody else, and dealt with."""

    def escalated(self, place: Place) -> None:
        """Somebody keeps changing it back: it is left alone for a while."""

    def lost(self) -> None:
        """Some writes went unreported; everything is checked."""


class DriftWatch:
    """Repairs what others change in the enforcer's files.

    foreign: called with (cgroup's path, file, who) for each write of others, before it is repaired: what
    plans are made from may have changed; who: one of writers.WRITERS, ENDED or UNSEEN. announced: whether the
    runtime tells us of its writes before it does them (NRI is connected). check_seconds: between two full
    checks, on average.
    """

    def __init__(
        self,
        enforcer: Enforcer,
        told: Told,
        foreign: Callable[[str, str, str], None] = lambda _path, _file, _writer: None,
        *,
        proc: str = "/proc",
        check_seconds: float = CHECK_SECONDS,
        announced: Callable[[], bool] = lambda: False,
        source: Watch | None = None,
    ) -> None:
        self._enforcer = enforcer
        self._told = told
        self._foreign = foreign
        self._seconds = check_seconds
        self._announced = announced
        self._repairer = Repairer(enforcer, told.drifted, told.escalated)
        notes = enforcer.writing.notes
        self._source = source or watch(enforcer.writing.mounts, notes.index, proc)
        notes.untold = UNTOLD if self._source.tells_writers else UNSEEN
        self._writers: dict[str, dict[Spot, str]] = {}
        self._waiting: dict[str, float] = {}
        """Cgroup -> when to mend it, on the loop's clock, the first first."""
        self._expected: dict[str, float] = {}
        self._check_now = asyncio.Event()
        self.checked_at = 0.0
        """On the enforcer's clock: the end of the last full check."""

    @property
    def kind(self) -> str:
        """How writes are noticed: watch.FANOTIFY or watch.INOTIFY."""
        return self._source.kind

    def fights(self) -> tuple[Fight, ...]:
        """The files that somebody keeps changing back."""
        return self._enforcer.fights.going_on()

    def expect(self, cgroup: str) -> None:
        """The runtime is about to write the files of this container (NRI UpdateContainer)."""
        now = self._enforcer.clock()
        self._expected = {path: until for path, until in self._expected.items() if until > now}
        self._expected[cgroup] = now + EXPECTED_SECONDS

    async def run(self) -> None:
        """Until cancelled. Nothing is undone then."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._source.run(self._changed, self._lost))
            tasks.create_task(self._check_for_ever())

    async def check(self) -> None:
        """Look at everything, once; others have their turn between."""
        loop = asyncio.get_running_loop()
        turn = loop.time()
        for path in self._repairer.check():
            if path:  # if an event of it is still in the queue it will say who wrote
                self._mend_soon(path)
            if loop.time() - turn > SLICE_SECONDS:
                await asyncio.sleep(0)
                turn = loop.time()
        self.checked_at = self._enforcer.clock()

    async def _check_for_ever(self) -> None:
        while True:
            pause = self._seconds * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - no secret
            try:
                async with asyncio.timeout(pause):
                    await self._check_now.wait()
            except TimeoutError:
                pass
            self._check_now.clear()
            try:
                await self.check()
            except Exception:
                log.exception("full check failed")
            await asyncio.sleep(min(LEAST_PAUSE_SECONDS, self._seconds))

    def _changed(self, spot: Spot, writer: str) -> None:
        """Repair soon: more writes of the same hand are on their way."""
        path, file = spot
        if writer not in WRITERS and self._expected.get(path, 0.0) > self._enforcer.clock():
            writer = RUNTIME
        elif writer == ENDED and self._announced():
            writer = OTHER  # a runtime would have told
        self._foreign(path, file, writer)
        self._writers.setdefault(path, {})[spot] = writer
        self._mend_soon(path)

    def _mend_soon(self, path: str) -> None:
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_later(SETTLE_SECONDS, self._mend_due, loop)
        self._waiting.setdefault(path, loop.time() + SETTLE_SECONDS)

    def _mend_due(self, loop: asyncio.AbstractEventLoop) -> None:
        """One program that writes everything (systemctl daemon-reload) must hold up nobody else here."""
        turn = loop.time()
        while self._waiting:
            path, due = next(iter(self._waiting.items()))
            if due > turn:
                loop.call_at(due, self._mend_due, loop)
                return
            self._mend(path)
            del self._waiting[path]
            if self._waiting and loop.time() - turn > SLICE_SECONDS:
                loop.call_soon(self._mend_due, loop)
                return

    def _mend(self, path: str) -> None:
        try:
            self._repairer.mend(path, self._writers.pop(path, {}))
        except Exception:
            log.exception("repair failed cgroup=%s", path)

    def _lost(self) -> None:
        self._told.lost()
        self._check_now.set()
