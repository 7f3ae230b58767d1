"""Writes the status of objects of one kind: only what changed, and not too often. The leader calls it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from adapters.api import APIError, ClusterAPI, Conflict, NotFound, Resource, Unreachable
from adapters.kubernetes.conditions import Notice
from adapters.kubernetes.decode import DecodeError
from adapters.kubernetes.events import EventWriter, Regarding
from adapters.pace import Pace

log = logging.getLogger(__name__)

OBJECT_INTERVAL: Final = 0.5
"""Seconds between two writes of one object's status: at most 2 a second."""
ALL_RATE: Final = 7
ALL_BURST: Final = 3
"""Burst and rate together: at most 10 writes in any second, of all objects of the kind."""
RETRY_SECONDS: Final = 2.0
ROUND_SECONDS: Final = 2.0
"""After that a round ends: where each write is slow, what is due goes stale, and other kinds wait."""
_AT_ONCE: Final = 20
"""Objects looked at before others may run: a millisecond or two."""


class Written(Protocol):
    """An object that has a status, a frozen dataclass; `key` names it among its kind."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def key(self) -> str:
        """namespace/name, or the name of what is in no namespace."""
        ...

    @property
    def namespace(self) -> str:
        """Empty where it is cluster-scoped."""
        ...

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def uid(self) -> str:
        """Its uid."""
        ...

    @property
    def resource_version(self) -> str:
        """That of the state that was read."""
        ...

    @property
    def status(self) -> Mapping[str, Any]:
        """Its status as it was read, {} without one."""
        ...


T = TypeVar("T", bound=Written)
Compute = Callable[[float], Mapping[str, Any]]
"""now, in seconds since the epoch -> the whole status."""


class StatusWriter(Generic[T]):
    """Compares what is with what the status says, and patches with its resourceVersion (trap T13).

    read: an object from its JSON; DecodeError. watched: an object as the watch has it, by key; None when it
    is gone. notices: the Events for a change from one status to another. count(outcome) hears of each write:
    written, conflict, gone or failed. `clock`: monotonic, for rates; `wall`: for what is written.
    """

    def __init__(
        self,
        api: ClusterAPI,
        resource: Resource,
        *,
        read: Callable[[bytes], T],
        watched: Callable[[str], T | None],
        events: EventWriter,
        notices: Callable[[Mapping[str, Any], Mapping[str, Any]], Iterable[Notice]],
        count: Callable[[str], None],
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._api = api
        self._resource = resource
        self._read = read
        self._watched = watched
        self._events = events
        self._notices = notices
        self._count = count
        self._clock, self._wall = clock, wall
        self._pace = Pace(ALL_RATE, ALL_BURST, clock)
        self._not_before: dict[str, float] = {}
        self._newest: dict[str, tuple[str, T]] = {}

    def newest(self, seen: T) -> T:
        """The object as the watch has it, or as our last write left it while the watch has not shown that."""
        was, written = self._newest.get(seen.key, ("", seen))
        if was == seen.resource_version:
            return written
        self._newest.pop(seen.key, None)
        return seen

    async def run_once(self, due: Iterable[tuple[T, Compute]]) -> int:
        """Write what differs; the number of objects that have to wait for a later call.

        due: every object, as `newest` has it, and what computes its status.
        """
        waiting, until = 0, self._clock() + ROUND_SECONDS
        # Those that have waited longest first: a busy object must not starve the others.
        ordered = sorted(due, key=lambda one: self._not_before.get(one[0].key, 0.0))
        for done, (one, compute) in enumerate(ordered):
            if done % _AT_ONCE == 0:
                await asyncio.sleep(0)
            now = self._clock()
            if now >= until:
                return waiting + len(ordered) - done
            try:
                computed = compute(self._wall())
            except Exception:  # a bug of ours: it must not keep the others' status from being written
                self._failed(one.key)
                log.exception("status not computed kind=%s object=%s", self._resource.kind, one.key)
                continue
            if all(one.status.get(name) == value for name, value in computed.items()):
                continue
            if now < self._not_before.get(one.key, 0.0) or not self._pace.take():
                waiting += 1
                continue
            self._not_before[one.key] = now + OBJECT_INTERVAL
            await self._write(one, computed)
        return waiting

    async def _write(self, one: T, computed: Mapping[str, Any]) -> None:
        body = {"metadata": {"resourceVersion": one.resource_version}, "status": computed}
        was = self._version(one.key)
        try:
            raw = await self._api.patch(self._resource, one.namespace, one.name, body, subresource="status")
        except Conflict:
            self._count("conflict")
            await self._refresh(one)
            return
        except NotFound:
            self._count("gone")
            return
        except (APIError, Unreachable) as error:
            self._failed(one.key)
            log.warning("status not written kind=%s object=%s error=%s", self._resource.kind, one.key, error)
            return
        self._count("written")
        self._remember(one.key, raw, was, computed)
        group, version, kind = self._resource.group, self._resource.version, self._resource.kind
        about = Regarding(f"{group}/{version}", kind, one.namespace, one.name, one.uid)
        for notice in self._notices(one.status, computed):
            self._events.say(about, *notice)

    def _failed(self, key: str) -> None:
        self._count("failed")
        self._not_before[key] = self._clock() + RETRY_SECONDS

    async def _refresh(self, one: T) -> None:
        """Another resourceVersion than ours: read it, the next call tries again."""
        was = self._version(one.key)
        try:
            self._remember(one.key, await self._api.get(self._resource, one.namespace, one.name), was)
        except (APIError, Unreachable) as error:
            log.info("object not read kind=%s object=%s error=%s", self._resource.kind, one.key, error)

    def _version(self, key: str) -> str:
        """The resourceVersion that the watch has shown; empty when the object is gone."""
        seen = self._watched(key)
        return seen.resource_version if seen is not None else ""

    def _remember(
        self, key: str, raw: bytes, was: str, computed: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        """Take the answer to a call; `was` is what the watch had shown before it.

        What was written counts as there: an older CRD drops fields that it does not know, at each try.
        """
        if self._version(key) != was:
            return  # it has moved on during the call, perhaps past this answer
        try:
            answered = self._read(raw)
        except DecodeError as error:
            log.warning("object not readable kind=%s object=%s error=%s", self._resource.kind, key, error)
        else:
            self._newest[key] = was, replace(answered, status={**answered.status, **computed})

    def forget(self, key: str) -> None:
        """The object is gone."""
        self._newest.pop(key, None)
        self._not_before.pop(key, None)
