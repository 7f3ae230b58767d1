"""One history, played: the world is set up, the steps happen, then it is quiet, and all is judged."""

from __future__ import annotations

import asyncio
import gc
import logging
from dataclasses import dataclass

from adapters.api import NODES, PRIORITY_CLASSES
from ledger.waiting import SAMPLED_SECONDS
from simulation import objects
from simulation.admission import Admission
from simulation.api import Client
from simulation.books import RECORDER
from simulation.chance import Chance
from simulation.cluster import Cluster
from simulation.extender import Extender
from simulation.history import History
from simulation.kubelets import Kubelets
from simulation.loop import Stuck, VirtualLoop
from simulation.placeholder_watcher import PlaceholderWatcher
from simulation.scheduler.extended import Extended
from simulation.scheduler.player import Scheduler
from simulation.store import EPOCH, Store
from simulation.watcher import Watcher
from simulation.watching import Broken

QUIET_SECONDS = 26.0
"""Longer than any back-off, and than the settle time that histories use, with the look after it."""
BOOKMARK_SECONDS = 30.0
BACK_OFF_SECONDS = 60.0
"""For pods that were tried late in the quiet, one after the other."""
DOUBT_SECONDS = 80.0
"""How much longer it may take to learn what became of a Binding."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a history came to: what was broken, in order; and how long it was."""

    broken: tuple[Broken, ...]
    story: tuple[str, ...]
    seconds: float
    changes: int
    binds: int

    @property
    def rules(self) -> frozenset[str]:
        """The names of what was broken."""
        return frozenset(one.rule for one in self.broken)


class Play:
    """The players of one history."""

    def __init__(self, history: History, *, story: bool = False) -> None:
        world = self.world = history.world
        self._history = history
        self.loop = VirtualLoop()
        clock = self.loop.time
        self.chance = Chance(world.seed)
        self.store = Store(clock, lambda: EPOCH + clock())
        self.watcher: Watcher | PlaceholderWatcher = (
            PlaceholderWatcher(world, self.store, clock)
            if world.standing
            else Watcher(world, self.store, clock)
        )
        if story:
            self.watcher.trace = []
        self.cluster = Cluster(self.store, self.loop, self.chance, world)
        self.extender_api = self._client("extender")
        self.scheduler_api = self._client("scheduler")
        self.extender = Extender(world, self.extender_api, self.loop)
        self.watcher.extender = self.extender
        self.extender.told = self.watcher
        self.scheduler = self._scheduler()

    def _scheduler(self) -> Scheduler:
        """As it comes, beside placeholders; else with the extender."""
        api, who, rest = self.scheduler_api, self.watcher, (self.loop, self.chance, self.cluster.evict)
        if isinstance(who, Watcher):
            return Extended(self.world, api, self.extender, who, *rest)
        self.extender_api.deleting = who.deletes
        if self.world.refuses:
            Kubelets(self.world, self.store, self.loop, self.chance, who)
        self.store.admit = Admission(self.store, self.extender.review).admit
        return Scheduler(self.world, api, who, *rest)

    def _client(self, name: str) -> Client:
        client = Client(name, self.store, self.loop, self.chance, latency=self.world.latency)
        client.lag = self.world.lag
        return client

    def run(self) -> Outcome:
        """Play it to the end."""
        RECORDER.bugs.clear()
        try:
            self.loop.run_until_complete(self._play())
        except Stuck as error:
            self.watcher.wrong("alive", str(error))
        finally:
            self.extender.kill()
            self.scheduler.kill()
            self._end()
        for bug in RECORDER.bugs:
            self.watcher.wrong("bug", bug)
        for death in self.loop.failed:
            self.watcher.wrong("bug", repr(death))
        return Outcome(
            tuple(self.watcher.found),
            tuple(self.watcher.trace or ()),
            self.loop.time(),
            self.store.version,
            self.watcher.binds,
        )

    def _end(self) -> None:
        """Nothing is left behind, whatever was under way."""
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.loop.close()

    async def _play(self) -> None:
        from simulation.actions import ACTIONS  # it needs Play

        for name, value in objects.PRIORITIES.items():
            self.store.write(PRIORITY_CLASSES, objects.priority_class(name, value))
        self.extender.start()
        self.scheduler.start()
        self._bookmark()
        await asyncio.sleep(0.2)
        for seconds, name, args in self._history.steps:
            await asyncio.sleep(seconds)
            self.watcher.disturbed()
            self.watcher.say(f"--- {name} {' '.join(map(str, args))}")
            ACTIONS[name](self, *args)
            self.watcher.look()
            if self.watcher.found:
                return
        await self._quiet()

    def _bookmark(self) -> None:
        self.extender_api.bookmark()
        self.scheduler_api.bookmark()
        self.loop.call_later(BOOKMARK_SECONDS, self._bookmark)

    async def _quiet(self) -> None:
        """Nothing is disturbed any more; let everybody finish."""
        self.watcher.say("--- quiet")
        for client in (self.extender_api, self.scheduler_api):
            client.faults.clear()
            client.latency = self.world.latency
            for stream in client.streams.values():
                stream.lag = self.world.lag
        self.watcher.disturbed()
        until = self.loop.time() + QUIET_SECONDS
        most = until + DOUBT_SECONDS
        while self.loop.time() < until or (self._binds and self.loop.time() < most):
            await asyncio.sleep(2.0)
            self.watcher.look()
            if self.watcher.found:
                return
        await self._wait_for_others()
        self.watcher.look_after_quiet(self.scheduler.waiting(), self.scheduler.uneven())

    @property
    def _binds(self) -> bool:
        """Whether Bindings are in doubt, or pods on their way: to be judged when that is over."""
        return self.extender.busy or self.scheduler.binds

    async def _wait_for_others(self) -> None:
        """A pod that preempts or is let in late in the quiet lets others back off beyond it. Who was shown
        some nodes only is woken for each sample, where others would do that it was not shown.
        """
        most = self.loop.time() + BACK_OFF_SECONDS
        if self.world.sample:
            nodes = len(list(self.store.entries(NODES)))
            most += SAMPLED_SECONDS * (1 + -(-nodes // self.world.sample))
        while self.loop.time() < most:
            if not self.watcher.waits_in_vain(self.scheduler.waiting()):
                return
            await asyncio.sleep(10.0)

    # --- restarts ---

    def restart_extender(self, away: float) -> None:
        """Kill it, and start another one after so many seconds."""
        self.extender.kill()
        self.watcher.restarted()
        self.watcher.blind(away)
        self.loop.call_later(away, self._start_extender)

    def _start_extender(self) -> None:
        if not self.extender.part.alive:
            self.extender.start()
            self.watcher.restarted()

    def restart_scheduler(self, away: float) -> None:
        """Kill it, and start another one after so many seconds."""
        self.scheduler.kill()
        self.watcher.blind(away)
        self.loop.call_later(away, self._start_scheduler)

    def _start_scheduler(self) -> None:
        if not self.scheduler.part.alive:
            self.watcher.scheduler_starts()
            self.scheduler.start()


def play(history: History, *, story: bool = False) -> Outcome:
    """What a history comes to; with `story`, told line by line."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    collects = gc.isenabled()
    gc.disable()
    try:
        return Play(history, story=story).run()
    finally:
        if collects:
            gc.enable()
        logging.disable(before)
