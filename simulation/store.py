"""What the API server keeps: objects as they are, every change in order, and who is told of it.

Objects are dicts that nobody changes in place; each is encoded once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import orjson

from adapters.api import Conflict, NotFound, Resource

Body = dict[str, Any]

EPOCH: Final = 1_780_000_000.0
"""What the wall clock says when virtual time begins: seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One change: its resourceVersion, what it was, the object after it, and when."""

    version: int
    type: str
    raw: bytes
    body: Body
    at: float


Listener = Callable[[Resource, Entry, Body | None], None]
"""Called at once with each change and the object before it."""


class Store:
    """Objects by kind and name; `log` holds every change of a kind. `wall`: seconds since the epoch."""

    def __init__(self, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self._clock, self._wall = clock, wall
        self.version = 0
        self._uids = 0
        self._objects: dict[str, dict[str, Entry]] = {}
        self.log: dict[str, list[Entry]] = {}
        self.compacted: dict[str, int] = {}
        self.listeners: list[Listener] = []
        self.admit: Callable[[Resource, Mapping[str, Any]], Mapping[str, Any]] = lambda _kind, body: body
        """What admission makes of an object that is created; APIError."""

    def entries(self, resource: Resource) -> Iterator[Entry]:
        """The newest state of each object, by namespace and name."""
        objects = self._objects.get(resource.plural, {})
        return (objects[key] for key in sorted(objects))

    def bodies(self, resource: Resource) -> Iterator[Body]:
        """The objects, by namespace and name."""
        return (entry.body for entry in self.entries(resource))

    def find(self, resource: Resource, namespace: str, name: str) -> Body | None:
        """An object, None when it is not there."""
        entry = self._objects.get(resource.plural, {}).get(_key(resource, namespace, name))
        return entry.body if entry is not None else None

    def get(self, resource: Resource, namespace: str, name: str) -> Body:
        """An object; NotFound."""
        body = self.find(resource, namespace, name)
        if body is None:
            raise NotFound(404, "NotFound", f"{resource.plural} {name!r} not found")
        return body

    def raw(self, resource: Resource, namespace: str, name: str) -> bytes:
        """An object's bytes; NotFound."""
        self.get(resource, namespace, name)
        return self._objects[resource.plural][_key(resource, namespace, name)].raw

    def create(self, resource: Resource, body: Mapping[str, Any]) -> bytes:
        """Add an object; Conflict when it is there."""
        meta = body["metadata"]
        if self.find(resource, meta.get("namespace", ""), meta["name"]) is not None:
            raise Conflict(409, "AlreadyExists", f"{resource.plural} {meta['name']!r} already exists")
        return self.write(resource, self.admit(resource, body))

    def write(self, resource: Resource, body: Mapping[str, Any]) -> bytes:
        """Add or overwrite an object, with the metadata that the API server fills in; returns its bytes."""
        meta = dict(body["metadata"])
        if resource.namespaced:
            meta.setdefault("namespace", "default")
        before = self.find(resource, meta.get("namespace", ""), meta["name"])
        self.version += 1
        self._fill_in(meta, body, before)
        new = {**body, "metadata": meta}
        entry = Entry(self.version, "MODIFIED" if before else "ADDED", orjson.dumps(new), new, self._clock())
        self._objects.setdefault(resource.plural, {})[
            _key(resource, meta.get("namespace", ""), meta["name"])
        ] = entry
        self._publish(resource, entry, before)
        return entry.raw

    def _fill_in(self, meta: Body, body: Mapping[str, Any], before: Body | None) -> None:
        old = before["metadata"] if before else {}
        if "uid" not in meta:
            self._uids += 1
            meta["uid"] = old.get("uid") or f"u{self._uids}"
        if "creationTimestamp" not in meta:
            meta["creationTimestamp"] = old.get("creationTimestamp") or timestamp(self._wall())
        changed = before is None or before.get("spec") != body.get("spec")
        meta["generation"] = old.get("generation", 0) + changed
        meta["resourceVersion"] = str(self.version)

    def remove(self, resource: Resource, namespace: str, name: str) -> None:
        """Delete at once; NotFound."""
        before = self.get(resource, namespace, name)
        del self._objects[resource.plural][_key(resource, namespace, name)]
        self.version += 1
        body = {**before, "metadata": {**before["metadata"], "resourceVersion": str(self.version)}}
        entry = Entry(self.version, "DELETED", orjson.dumps(body), body, self._clock())
        self._publish(resource, entry, before)

    def now(self) -> str:
        """The time, as the API server writes it."""
        return timestamp(self._wall())

    def _publish(self, resource: Resource, entry: Entry, before: Body | None) -> None:
        self.log.setdefault(resource.plural, []).append(entry)
        for listener in self.listeners:
            listener(resource, entry, before)


def _key(resource: Resource, namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if resource.namespaced else name


def timestamp(seconds: float) -> str:
    """RFC 3339 with whole seconds, as metav1.Time."""
    return _timestamp(int(seconds))


@lru_cache(maxsize=4096)
def _timestamp(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
