"""The lab's own watch of a cluster: every change of every object that matters, none left out.

Transport and decoding are adapters.kubernetes'; the list-and-watch is simpler than the extender's on
purpose: where it would have to list again it gives up, because the checker then can no longer vouch for what
happened in between.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from adapters.api import (
    AUTOSCALERS,
    BUDGETS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    POLICIES,
    PRIORITY_CLASSES,
    PROFILES,
    REPLICA_SETS,
    RESERVATIONS,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    VOLUME_CLAIMS,
    VOLUMES,
    APIError,
    ClusterAPI,
    Resource,
    Unreachable,
)
from adapters.kubernetes import decode
from adapters.kubernetes.reserving import reservation
from adapters.kubernetes.templates import autoscaler
from adapters.kubernetes.volumes import storage_class, volume, volume_claim
from lab import placeholders
from lab.changes import Change, Namespace, PriorityClass, Watched
from qos import keys

_DECODE: dict[Resource, Callable[[bytes], Watched]] = {
    NODES: decode.node,
    PODS: decode.pod,
    POLICIES: decode.policy,
    PROFILES: decode.profile,
    BUDGETS: decode.budget,
    NAMESPACES: lambda raw: Namespace(*decode.namespace(raw)),
    PRIORITY_CLASSES: lambda raw: PriorityClass(*decode.priority_class(raw)),
    DEPLOYMENTS: lambda raw: decode.workload(DEPLOYMENTS, raw),
    STATEFUL_SETS: lambda raw: decode.workload(STATEFUL_SETS, raw),
    REPLICA_SETS: lambda raw: decode.workload(REPLICA_SETS, raw),
    DAEMON_SETS: decode.daemon_set,
    AUTOSCALERS: autoscaler,
    VOLUME_CLAIMS: volume_claim,
    VOLUMES: volume,
    STORAGE_CLASSES: storage_class,
    RESERVATIONS: reservation,
}
_TRIES = 20
_PAUSE_SECONDS = 0.25


class RecordingLostError(Exception):
    """A watch lost events: what happened meanwhile is not known."""


class Observer(Protocol):
    """A listener that wants to see raw objects as they arrive."""

    def see(self, resource: Resource, raw: bytes, at: float, *, deleted: bool) -> None:
        """An object as it became, or its last state when it is gone."""
        ...


def _is_placeholder(raw: bytes) -> bool:
    meta = decode.metadata(raw)
    return meta.namespace == placeholders.NAMESPACE and keys.PLACEHOLDER_LABEL in (meta.labels or {})


class Recorder:
    """Watches all kinds from start() on and keeps each change. `synced`: everything was listed once.

    reservations: Koordinator's too, whose definition is there.
    """

    def __init__(
        self,
        api: ClusterAPI,
        observer: Observer,
        *,
        reservations: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.changes: list[Change] = []
        self.synced = asyncio.Event()
        self._api = api
        self._observer = observer
        self._clock = clock
        self._unlisted = {*_DECODE, EVENTS} - (set() if reservations else {RESERVATIONS})

    async def run(self) -> None:
        """Watch until cancelled. RecordingLostError."""
        async with asyncio.TaskGroup() as group:
            for resource in list(self._unlisted):
                group.create_task(self._follow(resource))

    async def _follow(self, resource: Resource) -> None:
        version = await self._list(resource)
        failures = 0
        while True:
            try:
                async for event in self._api.watch(resource, resource_version=version):
                    version = decode.metadata(event.object).resource_version
                    failures = 0
                    if event.type != "BOOKMARK":
                        self._take(resource, event.object, deleted=event.type == "DELETED", listed=False)
            except (APIError, Unreachable) as error:
                failures += 1
                if isinstance(error, APIError) or failures > _TRIES:
                    text = f"the watch of {resource.plural} lost events: {error}"
                    raise RecordingLostError(text) from error
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _list(self, resource: Resource) -> str:
        token = ""
        while True:
            page = await self._api.list_page(resource, continue_token=token)
            for raw in page.items:
                self._take(resource, raw, deleted=False, listed=True)
            token = page.continue_token
            if not token:
                break
        self._unlisted.discard(resource)
        if not self._unlisted:
            self.synced.set()
        return page.resource_version

    def _take(self, resource: Resource, raw: bytes, *, deleted: bool, listed: bool) -> None:
        at = self._clock()
        if resource is PODS and _is_placeholder(raw):
            return  # a hold, no pod of anybody's
        if resource in _DECODE:
            revision = int(decode.metadata(raw).resource_version)
            self.changes.append(Change(revision, at, _DECODE[resource](raw), deleted, listed))
        self._observer.see(resource, raw, at, deleted=deleted)
