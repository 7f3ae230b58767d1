"""A ClusterAPI in memory: what tests and simulations put in the API server's place, faults included.

It keeps what callers rely on: resourceVersions that rise, optimistic concurrency, merge patches, a status
subresource, the Binding's UID precondition, and watches
that resume, replay and expire. It validates nothing.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import orjson

from adapters.api import PODS, Conflict, EvictingAPI, Gone, NotFound, Page, Resource, Unreachable, WatchEvent
from adapters.faults import Fault
from adapters.field_selectors import as_watched, labelled, selects
from adapters.writes import merge_patch, require_bindable, require_uid, require_version

_Key = tuple[Resource, str, str]
_HISTORY: Final = 100_000
"""Events kept for watches that resume; older ones are Gone, as after etcd's compaction."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A Binding that took effect."""

    namespace: str
    name: str
    uid: str
    node: str
    annotations: Mapping[str, str]


@dataclass(slots=True)
class _Watcher:
    resource: Resource
    selector: str = ""
    pending: deque[WatchEvent | Exception | None] = field(default_factory=deque)
    awake: asyncio.Event = field(default_factory=asyncio.Event)

    def push(self, item: WatchEvent | Exception | None) -> None:
        self.pending.append(item)
        self.awake.set()

    def tell(self, event: WatchEvent, before: bytes | None) -> None:
        seen = as_watched(self.selector, event, before)
        if seen is not None:
            self.push(seen)


class MemoryAPI:
    """The API server, played from memory.

    Drive it synchronously with put, remove and the faults; read what happened in `bindings` and `calls`.
    Verbs that faults name: list_page, watch, get, create, replace, patch, delete, bind, evict, evict dry.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self.bindings: list[Binding] = []
        self.calls: list[tuple[str, Resource, str]] = []
        self.kinds: dict[Resource, bool] = {}
        """Custom kinds that are served, and whether they have a scale subresource."""
        self._clock = clock
        self._version = 0
        self._oldest = 0
        self._uids = itertools.count(1)
        self._objects: dict[_Key, bytes] = {}
        self._history: list[tuple[int, Resource, WatchEvent, bytes | None]] = []
        self._watchers: list[_Watcher] = []
        self._faults: list[Fault] = []
        self._snapshots: dict[str, tuple[str, list[bytes]]] = {}

    # --- the world, as a test or a simulation changes it ---

    def put(self, resource: Resource, obj: Mapping[str, Any]) -> dict[str, Any]:
        """Create or overwrite; fills in the metadata that the API server would. Returns what is stored."""
        body = copy.deepcopy(dict(obj))
        meta = body.setdefault("metadata", {})
        if resource.namespaced:
            meta.setdefault("namespace", "default")
        before = self._find(resource, meta.get("namespace", ""), meta["name"])
        return self._store(resource, body, before)

    def remove(self, resource: Resource, namespace: str, name: str) -> None:
        """Delete at once; NotFound when it is not there."""
        raw = self._objects.pop((resource, namespace if resource.namespaced else "", name), None)
        if raw is None:
            raise NotFound(404, "NotFound", f"{resource.plural} {name!r} not found")
        self._version += 1
        body = orjson.loads(raw)
        body["metadata"]["resourceVersion"] = str(self._version)
        self._publish(resource, WatchEvent("DELETED", orjson.dumps(body)), raw)

    def get_object(self, resource: Resource, namespace: str, name: str) -> dict[str, Any]:
        """What is stored, as a dict of the caller's own; NotFound when it is not there."""
        return self._existing(resource, namespace, name)

    def objects(self, resource: Resource) -> list[dict[str, Any]]:
        """All objects of a kind."""
        return [orjson.loads(raw) for key, raw in self._objects.items() if key[0] == resource]

    def watchers(self, resource: Resource) -> int:
        """The number of open watches of a kind."""
        return sum(watcher.resource == resource for watcher in self._watchers)

    def unread(self) -> int:
        """Events that open watches have not taken yet."""
        return sum(len(watcher.pending) for watcher in self._watchers)

    # --- faults ---

    def fail(
        self,
        verb: str,
        error: Exception | None = None,
        *,
        resource: Resource | None = None,
        times: int = 1,
        applied: bool = False,
        after: int = 0,
    ) -> None:
        """Make the next `times` calls of a verb raise `error` (Unreachable unless given); `after` pass first.

        `applied`: the write takes effect all the same: the outcome that a caller must not guess.
        """
        error = error or Unreachable("cut by the test")
        self._faults.append(Fault(verb, resource, error, times, applied, None, after))

    def hang(
        self, verb: str, *, resource: Resource | None = None, times: int = 1, after: int = 0
    ) -> asyncio.Event:
        """Make the next calls of a verb wait until the event that is returned is set; `after` pass first."""
        gate = asyncio.Event()
        self._faults.append(Fault(verb, resource, None, times, False, gate, after))
        return gate

    def cut(self, resource: Resource | None = None) -> None:
        """Cut the open watches as a lost connection does; what happens meanwhile is replayed on resuming."""
        self._interrupt(resource, Unreachable("connection lost"))

    def close_watches(self, resource: Resource | None = None) -> None:
        """End the open watches as the server does at timeoutSeconds."""
        self._interrupt(resource, None)

    def expire(self, resource: Resource | None = None) -> None:
        """Forget the history (etcd compaction): open watches end with 410 Gone, and so does resuming them."""
        self._history.clear()
        self._version += 1
        self._oldest = self._version
        self._snapshots.clear()
        self._interrupt(resource, _gone())

    def bookmark(self) -> None:
        """Send a bookmark down every open watch."""
        for watcher in self._watchers:
            body = {"kind": watcher.resource.kind, "metadata": {"resourceVersion": str(self._version)}}
            watcher.push(WatchEvent("BOOKMARK", orjson.dumps(body)))

    # --- ClusterAPI ---

    async def list_page(
        self,
        resource: Resource,
        *,
        limit: int = 500,
        continue_token: str = "",
        namespace: str = "",
        field_selector: str = "",
        label_selector: str = "",
    ) -> Page:
        """A page of a consistent snapshot; Gone for a token that expired."""
        await self._reach("list_page", resource, "")
        if continue_token:
            version, items = self._snapshots.pop(continue_token, ("", []))
            if not version:
                raise _gone()
        else:
            version = str(self._version)
            items = [
                raw
                for key, raw in sorted(self._objects.items(), key=lambda item: item[0][1:])
                if key[0] == resource
                and namespace in ("", key[1])
                and selects(field_selector, raw)
                and labelled(label_selector, raw)
            ]
        limit = limit or len(items)
        rest, token = items[limit:], ""
        if rest:
            token = f"{version}:{next(self._uids)}"
            self._snapshots[token] = (version, rest)
        return Page(items[:limit], version, token, len(rest))

    async def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        field_selector: str = "",
        opened: Callable[[], None] = lambda: None,
    ) -> AsyncIterator[WatchEvent]:
        """Events after resource_version: the missed ones first, then as they happen."""
        await self._reach("watch", resource, "")
        since = int(resource_version)
        if since < self._oldest:
            raise _gone()
        opened()
        watcher = _Watcher(resource, field_selector)
        for version, kind, event, before in self._history:
            if version > since and kind == resource:
                watcher.tell(event, before)
        self._watchers.append(watcher)
        try:
            async for event in _drain(watcher):
                yield event
        finally:
            if watcher in self._watchers:
                self._watchers.remove(watcher)

    async def get(self, resource: Resource, namespace: str, name: str, *, subresource: str = "") -> bytes:
        """One object, or its Scale: spec.replicas, and status.selector as its own status has it."""
        await self._reach(f"get {subresource}".rstrip(), resource, name)
        body = self._existing(resource, namespace, name)
        if subresource == "scale":
            selector = body.get("status", {}).get("selector", "")
            body |= {"spec": {"replicas": body["spec"]["replicas"]}, "status": {"selector": selector}}
        return orjson.dumps(body)

    async def served(self, group: str, version: str) -> bytes:
        """What `kinds` has of a group's version; NotFound without any."""
        there = [one for one in self.kinds if (one.group, one.version) == (group, version)]
        if not there:
            raise NotFound(404, "NotFound", f"{group}/{version} is not served")
        named = [{"name": one.plural, "kind": one.kind, "namespaced": one.namespaced} for one in there]
        scales = [{"name": f"{one.plural}/scale", "kind": "Scale"} for one in there if self.kinds[one]]
        return orjson.dumps({"resources": [*named, *scales]})

    async def create(self, resource: Resource, namespace: str, body: Mapping[str, Any]) -> bytes:
        """Create; generateName is honoured."""
        new = copy.deepcopy(dict(body))
        meta = new.setdefault("metadata", {})
        if "name" not in meta:
            meta["name"] = f"{meta['generateName']}{next(self._uids):05d}"
        if resource.namespaced:
            meta["namespace"] = namespace

        def write() -> bytes:
            if self._find(resource, namespace, meta["name"]) is not None:
                raise Conflict(409, "AlreadyExists", f"{resource.plural} {meta['name']!r} already exists")
            return orjson.dumps(self._store(resource, new, None))

        return await self._write("create", resource, meta["name"], write)

    async def replace(self, resource: Resource, namespace: str, name: str, body: Mapping[str, Any]) -> bytes:
        """PUT; Conflict unless the body's resourceVersion is the newest."""

        def write() -> bytes:
            before = self._existing(resource, namespace, name)
            require_version(before, body)
            return orjson.dumps(self._store(resource, copy.deepcopy(dict(body)), before))

        return await self._write("replace", resource, name, write)

    async def patch(
        self, resource: Resource, namespace: str, name: str, body: Mapping[str, Any], *, subresource: str = ""
    ) -> bytes:
        """JSON merge patch; `subresource` status changes the status only."""

        def write() -> bytes:
            before = self._existing(resource, namespace, name)
            require_version(before, body)
            change = {"status": body.get("status", {})} if subresource == "status" else dict(body)
            return orjson.dumps(self._store(resource, merge_patch(before, change), before))

        return await self._write("patch", resource, name, write)

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        version: str = "",
        grace_seconds: int | None = None,  # noqa: ARG002 - everything is gone at once here
    ) -> None:
        """Delete: NotFound, Conflict for another UID or resourceVersion."""

        def write() -> bytes:
            there = self._existing(resource, namespace, name)
            require_uid(there["metadata"], uid)
            require_version(there, {"metadata": {"resourceVersion": version}})
            self.remove(resource, namespace, name)
            return b""

        await self._write("delete", resource, name, write)

    async def bind(
        self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]
    ) -> None:
        """Bind: NotFound for no such pod, Conflict for another UID or a pod that has a node."""

        def write() -> bytes:
            before = self._existing(PODS, namespace, name)
            require_bindable(before, uid)
            self._store(PODS, self._bound(before, node, annotations), before)
            self.bindings.append(Binding(namespace, name, uid, node, dict(annotations)))
            return b""

        await self._write("bind", PODS, name, write)

    async def evict(self, namespace: str, name: str, uid: str, *, dry_run: bool = False) -> None:
        """Evict: as delete; a test plays a budget by a fault."""

        def write() -> bytes:
            require_uid(self._existing(PODS, namespace, name)["metadata"], uid)
            if not dry_run:
                self.remove(PODS, namespace, name)
            return b""

        await self._write("evict dry" if dry_run else "evict", PODS, name, write)

    # --- inside ---

    async def _reach(self, verb: str, resource: Resource, name: str) -> Fault | None:
        """Record the call and meet its fault: wait, raise, or return one that raises after the write."""
        self.calls.append((verb, resource, name))
        fault = next((f for f in self._faults if f.strikes(verb, resource)), None)
        if fault is None:
            return None
        if fault.gate is not None:
            await fault.gate.wait()
            return None
        if fault.applied:
            return fault
        if fault.error is not None:
            raise fault.error
        return None

    async def _write(self, verb: str, resource: Resource, name: str, write: Callable[[], bytes]) -> bytes:
        fault = await self._reach(verb, resource, name)
        answer = write()
        if fault is not None and fault.error is not None:
            raise fault.error
        return answer

    def _find(self, resource: Resource, namespace: str, name: str) -> dict[str, Any] | None:
        raw = self._objects.get((resource, namespace if resource.namespaced else "", name))
        found: dict[str, Any] | None = orjson.loads(raw) if raw is not None else None
        return found

    def _existing(self, resource: Resource, namespace: str, name: str) -> dict[str, Any]:
        found = self._find(resource, namespace, name)
        if found is None:
            raise NotFound(404, "NotFound", f"{resource.plural} {name!r} not found")
        return found

    def _store(
        self, resource: Resource, body: dict[str, Any], before: dict[str, Any] | None
    ) -> dict[str, Any]:
        self._version += 1
        old = before["metadata"] if before is not None else {}
        meta = body["metadata"]
        meta.setdefault("uid", old.get("uid") or f"00000000-0000-4000-8000-{next(self._uids):012d}")
        meta.setdefault("creationTimestamp", old.get("creationTimestamp") or timestamp(self._clock()))
        meta["generation"] = old.get("generation", 0) + (
            before is None or before.get("spec") != body.get("spec")
        )
        meta["resourceVersion"] = str(self._version)
        raw = orjson.dumps(body)
        key = (resource, meta.get("namespace", ""), meta["name"])
        old_raw, self._objects[key] = self._objects.get(key), raw
        self._publish(resource, WatchEvent("ADDED" if before is None else "MODIFIED", raw), old_raw)
        stored: dict[str, Any] = orjson.loads(raw)
        return stored

    def _publish(self, resource: Resource, event: WatchEvent, before: bytes | None) -> None:
        self._history.append((self._version, resource, event, before))
        if len(self._history) > _HISTORY:
            self._oldest = self._history[_HISTORY // 2][0]
            del self._history[: _HISTORY // 2 + 1]
        for watcher in self._watchers:
            if watcher.resource == resource:
                watcher.tell(event, before)

    def _interrupt(self, resource: Resource | None, how: Exception | None) -> None:
        for watcher in [w for w in self._watchers if resource in (None, w.resource)]:
            self._watchers.remove(watcher)
            watcher.push(how)

    def _bound(self, pod: dict[str, Any], node: str, annotations: Mapping[str, str]) -> dict[str, Any]:
        scheduled = {
            "type": "PodScheduled",
            "status": "True",
            "lastTransitionTime": timestamp(self._clock()),
        }
        others = [c for c in pod.get("status", {}).get("conditions", []) if c["type"] != "PodScheduled"]
        change = {
            "metadata": {"annotations": dict(annotations)},
            "spec": {"nodeName": node},
            "status": {"conditions": [*others, scheduled]},
        }
        return merge_patch(pod, change)


async def _drain(watcher: _Watcher) -> AsyncIterator[WatchEvent]:
    while True:
        while watcher.pending:
            item = watcher.pending.popleft()
            if item is None:
                return
            if isinstance(item, Exception):
                raise item
            yield item
        watcher.awake.clear()
        await watcher.awake.wait()


def timestamp(seconds: float) -> str:
    """RFC 3339 with whole seconds, as the API server writes metav1.Time."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _gone() -> Gone:
    return Gone(410, "Expired", "too old resource version")


if TYPE_CHECKING:
    _plays_the_interface: EvictingAPI = MemoryAPI()
