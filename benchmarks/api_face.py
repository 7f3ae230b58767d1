"""The large cluster's API server (fleet.py) as a process that speaks HTTP: the extender is one by itself.

Beside what an API server answers it can be told to let pods live, or nodes report, at some rate: POST
/bench/pods or /bench/nodes with a number of events a second.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs

import orjson
import uvloop

from adapters import api as resources
from adapters.api import LEASES, NODES, PODS, APIError, Resource, WatchEvent
from adapters.kubernetes.protobuf import events as protobuf
from adapters.memory import timestamp
from adapters.serving.addresses import listen
from adapters.serving.server import serve_until, server
from benchmarks import clusters, pod_messages
from benchmarks.clusters import Size
from benchmarks.fleet import Fleet
from benchmarks.loop_time import LoopTime
from benchmarks.serving import Connection, read, respond

TICK_SECONDS: Final = 0.002
BOOKMARK_SECONDS: Final = 10.0
_KINDS: Final = {
    (one.group, one.version, one.plural): one for one in vars(resources).values() if isinstance(one, Resource)
}
_LATER: Final = 1_000_000_000
"""Resource versions of what lives are above those that the cluster gives."""
_NAME: Final = "lives-" + "N" * 10
_VERSION: Final = "V" * len(str(_LATER))
_NODE: Final = clusters.node_name(0).replace("0", "M")


class Face:
    """ASGI: list, watch, get and the writes of an API server."""

    def __init__(self, api: Fleet) -> None:
        self._api = api
        self._rates = {"pods": 0.0, "nodes": 0.0}
        self._versions = itertools.count(_LATER)
        self._told = 0
        self._writes = 0

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """One request."""
        path, method = scope["path"], scope["method"]
        query = {name: values[0] for name, values in parse_qs(scope["query_string"].decode()).items()}
        body = await read(receive)
        if path.startswith("/bench/"):
            self._rates[path.removeprefix("/bench/")] = float(body)
            sent = self._told - self._api.unread()
            await respond(send, orjson.dumps({"sent": sent, "writes": self._writes}))
            return
        try:
            if query.get("watch") == "true":
                await self._watch(_parse(path)[0], query, send, dict(scope["headers"])[b"accept"])
            else:
                await respond(send, await self._answer(method, path, query, body))
        except APIError as error:
            said = {"code": error.status, "reason": error.reason, "message": error.message}
            await respond(send, orjson.dumps(said), error.status)

    async def _answer(self, method: str, path: str, query: dict[str, str], raw: bytes) -> bytes:
        resource, namespace, name, subresource = _parse(path)
        body = orjson.loads(raw) if raw else {}
        self._writes += method != "GET" and resource is not LEASES
        if not name and method == "GET":
            return await self._list(resource, namespace, query)
        if subresource == "binding":
            meta, target = body["metadata"], body["target"]
            noted = meta.get("annotations", {})
            await self._api.bind(namespace, name, meta["uid"], target["name"], noted)
            return b"{}"
        if method == "GET":
            return await self._api.get(resource, namespace, name, subresource=subresource)
        if method == "POST":
            return await self._api.create(resource, namespace, body)
        if method == "PUT":
            return await self._api.replace(resource, namespace, name, body)
        return await self._api.patch(resource, namespace, name, body, subresource=subresource)

    async def _list(self, resource: Resource, namespace: str, query: dict[str, str]) -> bytes:
        page = await self._api.list_page(
            resource,
            limit=int(query.get("limit", 0)),
            continue_token=query.get("continue", ""),
            namespace=namespace,
            field_selector=query.get("fieldSelector", ""),
        )
        meta = orjson.dumps({"resourceVersion": page.resource_version, "continue": page.continue_token})
        return b'{"metadata":%b,"items":[%b]}' % (meta, b",".join(page.items))

    async def _watch(self, resource: Resource, query: dict[str, str], send: Any, accept: bytes) -> None:
        """Pods in protobuf, all else in JSON."""
        if resource == PODS and protobuf.CONTENT_TYPE.encode() not in accept:
            raise APIError(406, "NotAcceptable", "pods are watched in protobuf here")
        kind, line_of = (protobuf.CONTENT_TYPE, _framed) if resource == PODS else ("application/json", _line)
        headers = [(b"content-type", kind.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        events = self._api.watch(
            resource,
            resource_version=query["resourceVersion"],
            field_selector=query.get("fieldSelector", ""),
        )
        async for event in events:
            await send({"type": "http.response.body", "body": line_of(event), "more_body": True})

    async def live(self) -> None:
        """Events at the rates that were told, and bookmarks, for ever."""
        sources = {"pods": (PODS, self._pods_live()), "nodes": (NODES, self._nodes_report())}
        owed = dict.fromkeys(sources, 0.0)
        last = bookmarked = time.monotonic()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = time.monotonic()
            for kind, (resource, events) in sources.items():
                owed[kind] += self._rates[kind] * (now - last)
                for event in itertools.islice(events, int(owed[kind])):
                    self._tell(resource, event)
                owed[kind] %= 1
            last = now
            if now - bookmarked > BOOKMARK_SECONDS:
                bookmarked = now
                self._api.bookmark()

    def _tell(self, resource: Resource, event: WatchEvent) -> None:
        self._told += 1
        for watcher in self._api._watchers:
            if watcher.resource == resource:
                watcher.push(event)

    def _pods_live(self) -> Iterator[WatchEvent]:
        """Pods that are made, bound by us, run, end and are gone: five events each, many lives at once."""
        names = clusters.node_names(self._api.size.nodes)
        stages = [
            ("ADDED", _template("")),
            ("MODIFIED", _template(_NODE, phase="Pending")),
            ("MODIFIED", _template(_NODE)),
            ("MODIFIED", _template(_NODE, phase="Succeeded")),
            ("DELETED", _template(_NODE, phase="Succeeded")),
        ]
        for number in itertools.count():
            # Each stage is some lives behind the one before it, so that hundreds of pods run at a time.
            for behind, (kind, template) in enumerate(stages):
                life = number - 100 * behind
                if life >= 0:
                    yield WatchEvent(kind, self._filled(template, life, names[life % len(names)]))

    def _nodes_report(self) -> Iterator[WatchEvent]:
        """What kubelet writes every five minutes where nothing has changed: the conditions' times."""
        for number in itertools.count():
            body = clusters.node_json(number % self._api.size.nodes)
            body["metadata"]["resourceVersion"] = str(next(self._versions))
            for condition in body["status"]["conditions"]:
                condition["lastHeartbeatTime"] = timestamp(time.time())
            yield WatchEvent("MODIFIED", orjson.dumps(body))

    def _filled(self, template: bytes, life: int, node: str) -> bytes:
        filled = template.replace(_NAME.encode(), b"lives-%010d" % life)
        filled = filled.replace(_VERSION.encode(), b"%d" % next(self._versions))
        return filled.replace(_NODE.encode(), node.encode())


def _template(node: str, phase: str = "") -> bytes:
    """A pod's message, whose marks are as long as what takes their place."""
    body = clusters.new_pod(_NAME, 0.5, node, phase=phase)
    body["metadata"]["resourceVersion"] = _VERSION
    return pod_messages.pod(body)


def _line(event: WatchEvent) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (event.type.encode(), event.object)


def _framed(event: WatchEvent) -> bytes:
    """Pods are messages (fleet.py), bookmarks are not."""
    bookmark = event.type == "BOOKMARK"
    message = pod_messages.pod(orjson.loads(event.object)) if bookmark else event.object
    return pod_messages.frame(event.type, message)


def _parse(path: str) -> tuple[Resource, str, str, str]:
    """The resource, the namespace, the object and its subresource of a path, "" where it names none."""
    parts = path.strip("/").split("/")
    group, rest = ("", parts[1:]) if parts[0] == "api" else (parts[1], parts[2:])
    version, *rest = rest
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = [*rest, "", "", ""][:3]
    resource = _KINDS.get((group, version, plural)) if rest else None
    if resource is None:
        raise APIError(404, "NotFound", f"{path} is not served here")
    return resource, namespace, name, subresource


def serve(size: Size, ports: Any) -> None:
    """Until the process is ended."""
    uvloop.run(_serve(size, ports))


async def _serve(size: Size, ports: Any) -> None:
    face = Face(Fleet(size, LoopTime()))
    opened = listen("127.0.0.1:0")
    living = asyncio.create_task(face.live())
    ports.put([opened.getsockname()[1]])
    await serve_until(asyncio.Event(), [(server(face), opened)], draining=lambda: None)
    living.cancel()


class Told(NamedTuple):
    """Since the start: events that the watches have taken, writes other than of Leases."""

    sent: int
    writes: int


def tell(port: int, kind: str, events_a_second: float) -> Told:
    """Let pods live, or nodes report, at this rate from now on."""
    to = Connection(port)
    said = orjson.loads(to.call(f"/bench/{kind}", b"%f" % events_a_second))
    to.close()
    return Told(**said)
