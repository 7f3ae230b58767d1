"""Keeps one kind of object in step with the API server: list, watch, resume, list again when too old.

Nothing is dropped while the server is away: what was last seen stays, and `stale` says whether that has gone
on for too long.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from adapters.api import APIError, ClusterAPI, Resource, Unreachable, WatchEvent
from adapters.kubernetes.wire import DecodeError, Object, key_of, read

logger = logging.getLogger(__name__)

_OBJECT = msgspec.json.Decoder(Object)
_TURN_SECONDS: Final = 0.0005
"""Seconds for which one turn may decode before the verbs get the loop."""
_SUSPENDED_SECONDS: Final = 0.0001
_SHORTEST_WATCH_SECONDS: Final = 1.0
_RESUMES: Final = 8
"""How often in a row, for half a minute, a watch is resumed where it was; after that a list says where to go
on.
"""


class Turn:
    """How long this task has kept the loop; breathe() gives it up after half a millisecond. `waited`: whether
    the task was suspended before resumed() was called last.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = self._left = clock()
        self.waited = False

    def begin(self) -> float:
        """The task was suspended and has the loop again; returns now."""
        self._began = self._left = self._clock()
        return self._began

    def resumed(self) -> float:
        """The task may have been suspended: it was when more time went by than bookkeeping takes."""
        now = self._clock()
        self.waited = now - self._left > _SUSPENDED_SECONDS
        if self.waited:
            self._began = now
        return now

    async def yielded(self) -> None:
        """Let others run, before or after something that takes a while in one go."""
        await asyncio.sleep(0)
        self.begin()

    async def breathe(self) -> None:
        """Let others run when it is their turn."""
        self._left = self._clock()
        if self._left - self._began >= _TURN_SECONDS:
            await asyncio.sleep(0)
            self.begin()


@dataclass(slots=True)
class Backoff:
    """Growing pauses with jitter: `first` seconds, doubling up to `most`, each times 0.5 to 1.5."""

    first: float = 0.2
    most: float = 5.0
    failures: int = 0

    def pause(self, jitter: float) -> float:
        """The next pause in seconds; `jitter` in 0..1."""
        exponent = min(self.failures, 16)
        self.failures += 1
        return float(min(self.most, self.first * 2**exponent) * (0.5 + jitter))

    def reset(self) -> None:
        """Begin again with the first pause."""
        self.failures = 0


class Reflector:
    """One resource, listed and watched until run() is cancelled.

    `on_set(raw)` takes an object that is new or changed and returns the key it keeps it under: its UID, or
    its name (namespace/name where there is a namespace), or None when it does not keep it. A DecodeError from
    it is logged and counted in `rejected`, and the last good state stays. `on_remove(key)`: it is gone.
    Both run on the loop, never concurrently, and must not block. A relist calls on_set for everything, then
    on_remove for what is no longer there, then `on_listed(began)`, by `clock`: whatever was there when the
    list began, and was not handed over, is gone. `on_refused(error)`: it answered 403 or 404.

    `field_selector`: only these objects (spec.nodeName=NODE). `page_size` 0: the list in one piece, which the
    API server answers from memory, whatever its version; pages it may read from etcd, with all objects of
    all nodes. `most_wait`: seconds between two tries, at most. `rest`: returns when what comes after an event
    that had to be waited for may be looked at (adapters.pace.Rests).

    `synced` is set after the first complete list. `last_contact` is when the server last said anything, by
    `clock`. `relists` counts the lists begun. `answered` is set, and `last_answer` moves, also when the
    server says that there is no such resource (404) or that it is not for us (403); it is asked again.
    """

    def __init__(
        self,
        api: ClusterAPI,
        resource: Resource,
        on_set: Callable[[bytes], str | None],
        on_remove: Callable[[str], None],
        *,
        on_listed: Callable[[float], None] = lambda _began: None,
        on_refused: Callable[[APIError], None] = lambda _error: None,
        field_selector: str = "",
        page_size: int = 500,
        most_wait: float = 5.0,
        stale_after: float = 120.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rest: Callable[[], Awaitable[None]] | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.resource = resource
        self.synced = asyncio.Event()
        self.answered = asyncio.Event()
        self.last_contact = clock()
        self.rejected = 0
        self.relists = 0
        self._api = api
        self._on_set = on_set
        self._on_remove = on_remove
        self._on_listed = on_listed
        self._on_refused = on_refused
        self._selector = field_selector
        self._page_size = page_size
        self._stale_after = stale_after
        self._clock = clock
        self._sleep = sleep
        self._rest = rest
        self._jitter = jitter
        self._backoff = Backoff(most=most_wait)
        self._known: set[str] = set()
        self._version = ""
        self._last_event = b""
        self._refused_at = float("-inf")
        self._failure = ""
        self._turn = Turn(clock)

    def stale(self, now: float) -> bool:
        """True when the server has said nothing for over `stale_after` seconds; `now` by the same clock.

        A healthy watch is never silent that long: bookmarks come about once a minute, or, where there are
        none because the resource has not changed since the server started, the watch is opened again.
        """
        return now - self.last_contact > self._stale_after

    @property
    def last_answer(self) -> float:
        """last_contact, or a later refusal."""
        return max(self.last_contact, self._refused_at)

    async def run(self) -> None:
        """List and watch until cancelled; a failure is waited out and tried again, and logged if new."""
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except (APIError, DecodeError) as error:
                self._version = ""
                self._note_refusal(error)
                await self._wait("list again", error)
            except Unreachable as error:
                if self._backoff.failures >= _RESUMES:
                    self._version = ""
                await self._wait("resume" if self._version else "list again", error)

    async def _wait(self, then: str, error: Exception) -> None:
        seconds = self._backoff.pause(self._jitter())
        level = logging.DEBUG if str(error) == self._failure else logging.WARNING
        self._failure = str(error)
        logger.log(
            level,
            "watch=%s error=%r then=%r wait_seconds=%.1f",
            self.resource.plural,
            self._failure,
            then,
            seconds,
        )
        await self._sleep(seconds)

    def _note_refusal(self, error: APIError | DecodeError) -> None:
        if isinstance(error, APIError) and error.status in (403, 404):
            self._refused_at = self._clock()
            self.answered.set()
            self._on_refused(error)

    def _works(self) -> None:
        self._backoff.reset()
        self._failure = ""

    async def _list(self) -> None:
        """Take over the server's state, page by page of one snapshot."""
        self.relists += 1
        listed: set[str] = set()
        began, token = self._clock(), ""
        while True:
            page = await self._api.list_page(
                self.resource, limit=self._page_size, continue_token=token, field_selector=self._selector
            )
            self.last_contact = self._turn.begin()
            for raw in page.items:
                key = self._set(raw)
                if key is not None:
                    listed.add(key)
                await self._turn.breathe()
            token = page.continue_token
            if not token:
                break
        for key in self._known - listed:
            self._on_remove(key)
            await self._turn.breathe()
        self._on_listed(began)
        self._known = listed
        self._version = page.resource_version
        self._works()
        self.synced.set()
        self.answered.set()

    async def _watch(self) -> None:
        """Follow one stream until the server closes it; raises when it is cut, too old, or closed at once."""
        opened, events = self._clock(), 0
        stream = self._api.watch(
            self.resource,
            resource_version=self._version,
            field_selector=self._selector,
            opened=self._note_contact,
        )
        try:
            async for event in stream:
                self.last_contact = self._turn.resumed()
                self._apply(event)
                events += 1
                if self._rest is not None and self._turn.waited:
                    await self._rest()
                    self._turn.begin()
                await self._turn.breathe()
        finally:
            await _close(stream)
            self._remember_version()
            if events:
                self._works()
        self.last_contact = self._clock()
        if not events and self.last_contact - opened < _SHORTEST_WATCH_SECONDS:
            raise Unreachable("the server closed the watch at once")

    def _note_contact(self) -> None:
        self.last_contact = self._clock()

    def _apply(self, event: WatchEvent) -> None:
        if event.type == "DELETED":
            key = self._known_as(event.object)
            if key is not None:
                self._known.discard(key)
                self._on_remove(key)
        elif event.type != "BOOKMARK":
            self._set(event.object)
        self._last_event = event.object

    def _set(self, raw: bytes) -> str | None:
        """Hand an object over; the key under which it is known now."""
        try:
            key = self._on_set(raw)
        except DecodeError as error:
            self.rejected += 1
            logger.error("object=%s rejected=%r", self.resource.plural, str(error))
            return self._known_as(raw)
        if key is not None:
            self._known.add(key)
        return key

    def _known_as(self, raw: bytes) -> str | None:
        metadata = read(_OBJECT, self.resource.kind, raw).metadata
        return next((key for key in (metadata.uid, key_of(metadata)) if key in self._known), None)

    def _remember_version(self) -> None:
        """Where to resume: read once a stream, not once an event."""
        if self._last_event:
            self._version = read(_OBJECT, self.resource.kind, self._last_event).metadata.resource_version
            self._last_event = b""


async def _close(stream: AsyncIterator[WatchEvent]) -> None:
    """Give the connection back now, not when the garbage collector comes by."""
    if isinstance(stream, AsyncGenerator):
        await stream.aclose()
