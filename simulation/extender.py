"""One extender, put together from the real parts as extender.program does, on virtual time.

Left out is what the simulation has none of: sockets, the Lease (it always leads), nodes' agents.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from adapters.api import RESERVATIONS
from adapters.kubernetes.reflector import Reflector
from adapters.loops import Changes, forever, only_while, when_due
from adapters.serving.readiness import Readiness
from extender import program
from extender.binder import Binder
from extender.expiry import Expiry
from extender.ingest import Ingest
from extender.policy_status import PolicyStatus
from extender.reservation_status import ReservationStatus
from extender.server import VerbsApp
from extender.waking import Waker
from qos.cluster.objects import Demand
from qos.cluster.placeholders import form_of, priority_of
from simulation.api import Client
from simulation.books import RECORDER, SCHEDULER, WATCHED, Told, config_of, opened
from simulation.history import World
from simulation.loop import Part, VirtualLoop
from simulation.scheduler.player import Refused
from simulation.store import EPOCH

WAKE_SECONDS = 0.25
"""Rarer than in production, which looks ten times a second: a simulated second has to be cheap."""


class Extender:
    """A process that can be killed and started again, with nothing of what it knew."""

    def __init__(self, world: World, api: Client, loop: VirtualLoop) -> None:
        self._world, self._api, self._loop = world, api, loop
        self._config = config_of(world)
        self.jump = 0.0
        """By how much the wall clock is off."""
        self.hung_until = 0.0
        self.leads_from = 0.0
        """Before that it is not the leader."""
        self.started = 0
        """How often it was started."""
        self.opened_at = 0.0
        self.told = Told()
        self.part = Part(loop)
        self.part.alive = False

    @property
    def ready(self) -> bool:
        """Whether the verbs answer."""
        return self.part.alive and not self.readiness.problem()

    @property
    def busy(self) -> bool:
        """Whether Bindings are under way, in doubt, or not shown yet."""
        return self.ledger.awaits

    @property
    def api(self) -> Client:
        """Its API server."""
        return self._api

    def form_of(self, demand: Demand) -> str:
        """What the placeholders of a demand must be like."""
        return form_of(demand, priority_of(demand))

    def behind(self, seconds: float) -> bool:
        """Whether something that happened longer ago than so many seconds has not been shown to it."""
        return self._api.behind([resource.plural for resource in WATCHED], seconds)

    def wall(self) -> float:
        """Its wall clock."""
        return EPOCH + self._loop.time() + self.jump

    def start(self) -> None:
        """Begin with nothing, list and watch."""
        self.part = self._api.part = Part(self._loop)
        self._api.streams.clear()
        self.started += 1
        self.part.call(self._assemble)

    def kill(self) -> None:
        """The process ends; what it has sent and the server has not served is lost."""
        self.part.kill()

    @property
    def leads(self) -> bool:
        """Whether it writes: it is the leader, and its account is complete."""
        return self.ready and self._loop.time() >= self.leads_from

    def review(self, body: bytes) -> bytes | None:
        """The webhook's answer to an AdmissionReview; None when there is none within its timeout."""
        keeper = self.books.keeper if self.part.alive else None
        if keeper is None or self.hung_until > self._loop.time():
            return None
        return keeper.gate.review(body)

    def _assemble(self) -> None:
        clock = self._loop.time
        changes = self._changes = Changes(program.IDLE_SECONDS)
        books = self.books = opened(
            self._world, self._api, clock, self.wall, changes.note, lambda: self.leads
        )
        self._note = changes.note if books.keeper is None else books.keeper.note
        self.ledger = books.ledger
        self.ledger.told = self.told
        self.writer = PolicyStatus(
            self._api,
            books.ledger,
            books.catalog,
            books.view,
            books.guarding,
            books.events,
            RECORDER,
            reports=books.reports,
            awaiting=books.awaiting,
            owner_wait=self._config.owner_wait_seconds,
            clock=clock,
            wall=self.wall,
        )
        self.reservation_status: ReservationStatus | None = None
        if books.reservations is not None:
            self.reservation_status = ReservationStatus(
                self._api,
                books.ledger,
                books.reservations,
                books.view,
                books.events,
                RECORDER,
                clock=clock,
                wall=self.wall,
            )
        self._serve_verbs()
        self._run(books.ingest(self._note, self._forget))

    def _forget(self, key: str) -> None:
        """A policy or a Reservation is gone."""
        self.writer.forget(key)
        if self.reservation_status is not None:
            self.reservation_status.forget(key)

    def _serve_verbs(self) -> None:
        clock = self._loop.time
        self.binder = Binder(
            self._api,
            self.ledger,
            RECORDER,
            identity=self._config.identity,
            deadline=self._config.bind_deadline_seconds,
            clock=clock,
        )
        self.waker = Waker(self._api, self.ledger, RECORDER, clock=clock, wall=self.wall, timer=clock)

    def _run(self, ingest: Ingest) -> None:
        clock = self._loop.time
        handlers = {one.resource.plural: one for one in ingest.handlers()}
        rest = None if self.books.keeper is None else self.books.keeper.rest
        reflectors = {
            resource.plural: Reflector(
                self._api,
                resource,
                handlers[resource.plural].set,
                handlers[resource.plural].remove,
                on_listed=handlers[resource.plural].listed,
                stale_after=self._config.stale_seconds,
                clock=clock,
                rest=rest,
                jitter=lambda: 0.5,
            )
            for resource in WATCHED
            if resource.plural in handlers
        }
        self._reserving = reflectors.get(RESERVATIONS.plural)
        needed = {name: one for name, one in reflectors.items() if one is not self._reserving}
        self.readiness = Readiness(needed, clock)
        self.verbs = VerbsApp(self.ledger, self.binder, self.readiness, RECORDER, clock)
        for name, reflector in reflectors.items():
            self._loop_of(f"watch {name}", 1.0, reflector.run)
        tend = when_due(self._due, program.LOOK_SECONDS, self._tend, clock)
        if self.books.keeper is None:
            wake = when_due(lambda: self.waker.due, program.LOOK_SECONDS, self.waker.run_once, clock)
            self._loop_of("wake", WAKE_SECONDS, wake)
        else:
            self._loop_of("holds", program.HOLDS_SECONDS, tend)
            for name, seconds, once in self.books.keeper.loops():
                self._loop_of(name, seconds, only_while(lambda: self.leads, once))
        self._loop_of("references", 1.0, self._expire)
        expiry = Expiry(self._api, self.ledger, settles=self.binder.settles, clock=clock)
        self._loop_of("expiry", program.EXPIRY_SECONDS, expiry.run_once)
        if self._world.reservations:
            self._loop_of("holds", WAKE_SECONDS, tend)
        if self._world.status or self._world.standing:  # from it follows for which slots placeholders wait
            self._loop_of("status", program.STATUS_SECONDS, self._status)
        self.part.start(self._open(), "start")

    def _loop_of(self, name: str, seconds: float, once: Callable[[], Awaitable[object]]) -> None:
        self.part.start(forever(name, seconds, once, RECORDER.loop_error), name)

    async def _status(self) -> None:
        if self._loop.time() < self.leads_from:
            return
        await self._changes.wait()
        if self.readiness.problem():
            return
        if self.reservation_status is not None:
            await self._tend()
        waiting = await self.writer.run_once()
        if self.reservation_status is not None:
            waiting += await self.reservation_status.run_once()
        if waiting:
            self._changes.note()

    def _due(self) -> bool:
        """As extender.program asks ten times a second."""
        self.ledger.advance(self._loop.time())
        reservations = self.books.reservations
        due = self.books.catalog.due or (reservations is not None and reservations.due)
        return due or self.ledger.unsettled

    async def _tend(self) -> None:
        """As extender.program does when something is due."""
        for _ in self.books.catalog.catch_up():
            await asyncio.sleep(0)
        if self.books.reservations is not None:
            for _ in self.books.reservations.catch_up():
                await asyncio.sleep(0)
        if not self.readiness.problem():
            for _ in iter(self.ledger.tend, False):
                await asyncio.sleep(0)

    async def _expire(self) -> None:
        self.books.catalog.expire()
        self.books.catalog.follow_owners()
        for _ in self.books.catalog.catch_up():
            await asyncio.sleep(0)

    async def _open(self) -> None:
        await self.readiness.wait_synced()
        if self._reserving is not None:
            await self._reserving.answered.wait()
        if self.books.keeper is not None:  # with the other one, its verbs do that
            for _ in iter(self.ledger.tend, False):
                await asyncio.sleep(0)
        self.books.catalog.open()
        for _ in self.books.reservations.open_in_steps() if self.books.reservations is not None else ():
            await asyncio.sleep(0)
        if self.books.keeper is not None:
            for _ in iter(self.ledger.tend, False):
                await asyncio.sleep(0)
        self.readiness.open()
        self.opened_at = self._loop.time()
        ours = (pod for pod in self.books.view.unschedulable.values() if pod.scheduler_name == SCHEDULER)
        self.waker.add(ours)

    # --- as kube-scheduler calls it ---

    async def call(self, verb: str, body: bytes, timeout: float) -> bytes:  # noqa: ASYNC109 - the scheduler's
        """POST a verb. Refused for anything but 200 within `timeout` seconds."""
        if not self.part.alive:
            raise Refused("connection refused")
        wait = self.hung_until - self._loop.time()
        if wait > 0:
            await asyncio.sleep(min(wait, timeout))
            if wait > timeout:
                return await self._late(verb, body, wait - timeout)
        if verb != "bind":
            return _checked(verb, *await self._answer(verb, body))
        reply: asyncio.Future[tuple[int, bytes]] = self._loop.create_future()
        self.part.start(self._serve(verb, body, reply))
        await asyncio.wait([reply], timeout=timeout)
        if not reply.done() or reply.cancelled():
            raise Refused(f"{verb}: no answer")
        return _checked(verb, *reply.result())

    async def _late(self, verb: str, body: bytes, seconds: float) -> bytes:
        """It hung longer than the scheduler waits; what was asked is answered to nobody."""
        reply: asyncio.Future[tuple[int, bytes]] = self._loop.create_future()
        part, started = self.part, self.started

        def serve() -> None:
            if part.alive and self.started == started:
                part.start(self._serve(verb, body, reply))

        self._loop.call_later(seconds, serve)
        raise Refused(f"{verb}: no answer")

    async def _serve(self, verb: str, body: bytes, reply: asyncio.Future[tuple[int, bytes]]) -> None:
        try:
            answer = await self._answer(verb, body)
        except asyncio.CancelledError:
            reply.cancel()
            raise
        if not reply.done():
            reply.set_result(answer)

    async def _answer(self, verb: str, body: bytes) -> tuple[int, bytes]:
        """Status and body; only bind is ever suspended."""
        reply = await self.verbs.ask(f"/{verb}", body)
        return reply.status, reply.body


def _checked(verb: str, status: int, answer: bytes) -> bytes:
    if status != 200:
        raise Refused(f"{verb}: {status}")
    return answer
