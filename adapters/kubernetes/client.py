"""The real ClusterAPI: HTTP/1.1, connections kept, answers not compressed; watches, and what goes through a
proxy, with aiohttp.

Bodies stay bytes: lists are cut into their items and watches into their events, and nothing else is parsed
here.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias
from urllib.parse import urlencode, urlsplit

import aiohttp
import msgspec
import orjson
from yarl import URL

from adapters.api import (
    LEASES,
    PODS,
    APIError,
    NotTaken,
    Page,
    Resource,
    Unreachable,
    WatchEvent,
)
from adapters.kubernetes import credentials, streams
from adapters.kubernetes.calls import KEEP_ALIVE_SECONDS, Answer, Calls, CutError, NotSentError, Server
from adapters.kubernetes.credentials import Endpoint
from adapters.kubernetes.protobuf import events as protobuf
from adapters.kubernetes.watching import Stream, events_of, status_error

_MOST_BYTES: Final = 256 * 1024 * 1024
"""Largest answer taken: a page of 500 objects of half a MiB."""
_CONNECTIONS: Final = 256
_RENEW_SECONDS: Final = 60.0
"""Seconds between two looks for new tokens and certificates."""
_SHORTEST_RETRY: Final = 0.05
_READ_BUFFER: Final = 256 * 1024
_HEADERS: Final = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "j10ce-qos"}


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. `request`: a call in all, retries after 429 included. `page`: one page of a list. `watch`: how
    long until the server ends a stream. `silence`: without a byte, not even a bookmark (one a minute), a
    stream counts as cut.
    """

    request: float = 10.0
    page: float = 60.0
    watch: float = 300.0
    silence: float = 75.0


class _ListMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    remaining: int | None = msgspec.field(default=None, name="remainingItemCount")


class _List(msgspec.Struct):
    metadata: _ListMetadata
    items: list[msgspec.Raw] | None = None


_LIST = msgspec.json.Decoder(_List)


InProtobuf: TypeAlias = Mapping[Resource, Callable[[bytes], bytes]]


class KubernetesAPI:
    """An API server over HTTP; use as an async context manager, or aclose() it.

    APIError and its kinds are the server's own answers; everything that leaves the outcome open is
    Unreachable: 5xx, 429 to the end (NotTaken), a timeout, a cut connection.

    `in_protobuf`: the resources to watch in protobuf, each with what makes JSON of an object's message.
    """

    def __init__(
        self, endpoint: Endpoint, timeouts: Timeouts | None = None, in_protobuf: InProtobuf | None = None
    ) -> None:
        self._endpoint = endpoint
        self._timeouts = timeouts or Timeouts()
        self._in_protobuf = in_protobuf or {}
        self._session: aiohttp.ClientSession | None = None
        self._header = ""
        self._fresh_until = float("-inf")
        server = urlsplit(endpoint.server)
        self._origin, self._prefix = f"{server.scheme}://{server.netloc}", server.path.rstrip("/")
        self._tls = endpoint.tls
        if server.scheme == "https" and self._tls is None:
            self._tls = ssl.create_default_context()
        self._server = Server(endpoint.server, endpoint.tls_server_name)
        self._calls = Calls(self._server, _MOST_BYTES)
        # Behind a flood of binds a Lease would be lost: its calls wait behind no others.
        self._lease_calls = Calls(self._server, _MOST_BYTES)
        self._lease_path = f"{self._prefix}/apis/{LEASES.group}/"

    @classmethod
    def from_kubeconfig(
        cls,
        path: Path | None = None,
        context: str | None = None,
        timeouts: Timeouts | None = None,
        in_protobuf: InProtobuf | None = None,
    ) -> Self:
        """By a kubeconfig. CredentialsError."""
        return cls(credentials.from_kubeconfig(path, context), timeouts, in_protobuf)

    @classmethod
    def in_cluster(cls, timeouts: Timeouts | None = None, in_protobuf: InProtobuf | None = None) -> Self:
        """By the service account of the Pod this runs in. CredentialsError."""
        return cls(credentials.in_cluster(), timeouts, in_protobuf)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        self._calls.close()
        self._lease_calls.close()
        if self._session is not None:
            await self._session.close()
            self._session = None
            # One more turn of the loop, in which aborted transports close their sockets.
            await asyncio.sleep(0)

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
        """One page of a consistent list; limit 0: all of it."""
        asked = {
            "limit": str(limit or ""),
            "continue": continue_token,
            "fieldSelector": field_selector,
            "labelSelector": label_selector,
        }
        query = {name: value for name, value in asked.items() if value}
        path = self._path(resource, namespace)
        raw = await self._request("GET", path, query=query, seconds=self._timeouts.page)
        try:
            answer = _LIST.decode(raw)
        except msgspec.MsgspecError as error:
            raise Unreachable(f"GET {path}: not a list: {error}") from error
        meta = answer.metadata
        items = [bytes(item) for item in answer.items or ()]
        remaining = meta.remaining if meta.continue_ else 0
        return Page(items, meta.resource_version, meta.continue_, remaining)

    async def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        field_selector: str = "",
        opened: Callable[[], None] = lambda: None,
    ) -> AsyncIterator[WatchEvent]:
        """Events after resource_version, bookmarks included, until the server closes the stream."""
        # Jitter, so that streams opened together do not end together.
        seconds = self._timeouts.watch * (1 + random.random())  # noqa: S311
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(int(seconds)),
        } | ({"fieldSelector": field_selector} if field_selector else {})
        path, as_json = self._path(resource, ""), self._in_protobuf.get(resource)
        answered = self._streamed if self._endpoint.proxy is None else self._streamed_by_proxy
        try:
            headers = await self._headers() | ({} if as_json is None else {"Accept": protobuf.ACCEPT})
            async with answered(path, query, headers) as (stream, content_type):
                opened()
                if as_json is not None and content_type.startswith(protobuf.CONTENT_TYPE):
                    events = protobuf.events_of(stream, as_json)
                else:
                    events = events_of(stream)
                async for event in events:
                    yield event
        except (CutError, aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"watch {path}: {error!r}") from error

    @contextlib.asynccontextmanager
    async def _streamed(
        self, path: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> AsyncIterator[tuple[Stream, str]]:
        """An answer with status 200 and its Content-Type, on a connection of its own. CutError, TimeoutError,
        OSError.
        """
        asked = self._server.head("GET", f"{path}?{urlencode(query)}", headers)
        stream = await streams.ask(
            self._server, asked, self._tls, connect=self._timeouts.request, silence=self._timeouts.silence
        )
        try:
            if (status := await stream.status()) != 200:
                self._forget_credentials(status)
                raise _failure("GET", path, status, await _all(stream, f"GET {path}"))
            yield stream, stream.content_type
        finally:
            stream.abort()

    @contextlib.asynccontextmanager
    async def _streamed_by_proxy(
        self, path: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> AsyncIterator[tuple[Stream, str]]:
        """Likewise. ClientError, TimeoutError, OSError."""
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=self._timeouts.request, sock_read=self._timeouts.silence
        )
        url = self._url(path, query)
        async with self._open().get(url, headers=headers, timeout=timeout, **self._how()) as answer:
            if answer.status != 200:
                self._forget_credentials(answer.status)
                raise _failure("GET", path, answer.status, await _all(answer.content, f"GET {path}"))
            try:
                yield answer.content, answer.headers.get("Content-Type", "")
            finally:
                _abort(answer)

    async def get(self, resource: Resource, namespace: str, name: str, *, subresource: str = "") -> bytes:
        """One object, or its subresource, by a quorum read."""
        return await self._request("GET", self._path(resource, namespace, name, subresource))

    async def served(self, group: str, version: str) -> bytes:
        """The APIResourceList of a group's version; NotFound when it is not served."""
        root = f"apis/{_segment(group)}" if group else "api"
        return await self._request("GET", f"{self._prefix}/{root}/{_segment(version)}")

    async def create(self, resource: Resource, namespace: str, body: Mapping[str, Any]) -> bytes:
        """Create; Conflict when it exists."""
        return await self._request("POST", self._path(resource, namespace), body)

    async def replace(self, resource: Resource, namespace: str, name: str, body: Mapping[str, Any]) -> bytes:
        """PUT with the body's resourceVersion; Conflict when it is not the newest."""
        return await self._request("PUT", self._path(resource, namespace, name), body)

    async def patch(
        self, resource: Resource, namespace: str, name: str, body: Mapping[str, Any], *, subresource: str = ""
    ) -> bytes:
        """JSON merge patch; a resourceVersion in the body makes it conditional."""
        path = self._path(resource, namespace, name, subresource)
        return await self._request("PATCH", path, body, content_type="application/merge-patch+json")

    async def bind(
        self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]
    ) -> None:
        """Bind a pod if it still is the one with this UID (T03)."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": uid, "annotations": dict(annotations)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self._request("POST", self._path(PODS, namespace, name, "binding"), body)

    async def evict(self, namespace: str, name: str, uid: str, *, dry_run: bool = False) -> None:
        """Evict a pod if it still is the one with this UID; NotTaken where a budget does not allow it now."""
        options: dict[str, Any] = {"preconditions": {"uid": uid}} | ({"dryRun": ["All"]} if dry_run else {})
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": options,
        }
        await self._request("POST", self._path(PODS, namespace, name, "eviction"), body)

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        version: str = "",
        grace_seconds: int | None = None,
    ) -> None:
        """Delete; dependents go in the background. NotFound; Conflict when it has another UID than `uid`, or
        another resourceVersion than `version`.
        """
        body: dict[str, Any] = {"propagationPolicy": "Background"}
        named = {"uid": uid, "resourceVersion": version}
        if conditions := {name: value for name, value in named.items() if value}:
            body["preconditions"] = conditions
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        await self._request("DELETE", self._path(resource, namespace, name), body)

    async def _request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        seconds: float | None = None,
    ) -> bytes:
        """One call within its deadline; repeated only where the server did nothing: 429, and 401 once."""
        data = None if body is None else orjson.dumps(body)
        deadline = time.monotonic() + (seconds or self._timeouts.request)
        target = f"{path}?{urlencode(query)}" if query else path
        renewed = False
        while True:
            headers = await self._headers() | ({"Content-Type": content_type} if data else {})
            left = max(0.001, deadline - time.monotonic())
            status, retry_after, raw = await self._exchange(method, target, data, headers, left)
            if status == 401 and not renewed and (self._endpoint.authorization or self._endpoint.renew_tls):
                self._forget_credentials(status)
                renewed = True
            elif (
                status == 429 and not _is_eviction(path) and time.monotonic() + _pause(retry_after) < deadline
            ):
                await asyncio.sleep(_pause(retry_after))
            elif 200 <= status < 300:
                return raw
            else:
                raise _failure(method, path, status, raw)

    async def _exchange(
        self, method: str, target: str, data: bytes | None, headers: Mapping[str, str], seconds: float
    ) -> Answer:
        """Unreachable."""
        try:
            if self._endpoint.proxy is None:
                calls = self._lease_calls if target.startswith(self._lease_path) else self._calls
                return await calls.call(method, target, headers, data, tls=self._tls, seconds=seconds)
            return await self._by_proxy(method, target, data, headers, seconds)
        except (NotSentError, aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NotTaken(f"{method} {_path_of(target)}: {error!r}") from error
        except (CutError, aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"{method} {_path_of(target)}: {error!r}") from error

    async def _by_proxy(
        self, method: str, target: str, data: bytes | None, headers: Mapping[str, str], seconds: float
    ) -> Answer:
        timeout = aiohttp.ClientTimeout(total=seconds)
        url = self._url(target)
        async with self._open().request(
            method, url, data=data, headers=headers, timeout=timeout, **self._how()
        ) as answer:
            body = await _all(answer.content, f"{method} {_path_of(target)}")
            return Answer(answer.status, answer.headers.get("Retry-After", ""), body)

    def _open(self) -> aiohttp.ClientSession:
        """The session; made at first use, because it belongs to the loop that runs then."""
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=_CONNECTIONS, keepalive_timeout=KEEP_ALIVE_SECONDS)
            self._session = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), read_bufsize=_READ_BUFFER
            )
        return self._session

    def _how(self) -> dict[str, Any]:
        return {
            "allow_redirects": False,
            "proxy": self._endpoint.proxy,
            "server_hostname": self._endpoint.tls_server_name,
            # Connections are kept by it: with a new certificate, new ones are made.
            "ssl": self._tls or True,
        }

    async def _headers(self) -> dict[str, str]:
        if time.monotonic() >= self._fresh_until:
            try:
                await self._renew()
            except OSError as error:
                raise NotTaken(f"no token to authenticate with: {error}") from error
            self._fresh_until = time.monotonic() + _RENEW_SECONDS
        return {**_HEADERS, "Authorization": self._header} if self._header else dict(_HEADERS)

    async def _renew(self) -> None:
        if self._endpoint.renew_tls is not None:
            self._tls = await asyncio.to_thread(self._endpoint.renew_tls) or self._tls
        if self._endpoint.authorization is not None:
            self._header = await asyncio.to_thread(self._endpoint.authorization)

    def _forget_credentials(self, status: int) -> None:
        if status == 401:
            self._fresh_until = float("-inf")

    def _path(self, resource: Resource, namespace: str, name: str = "", subresource: str = "") -> str:
        root = f"apis/{resource.group}" if resource.group else "api"
        parts = [self._prefix, root, resource.version]
        if namespace and resource.namespaced:
            parts += ["namespaces", _segment(namespace)]
        parts.append(resource.plural)
        parts += [_segment(part) for part in (name, subresource) if part]
        return "/".join(parts)

    def _url(self, target: str, query: Mapping[str, str] | None = None) -> URL:
        url = URL(self._origin + target, encoded=True)
        return url.with_query(query) if query else url


def _segment(name: str) -> str:
    """A name as one segment of a path; the API server allows nothing in it that would need quoting."""
    if name in ("", ".", "..") or not all(c.isascii() and (c.isalnum() or c in "-._:") for c in name):
        raise ValueError(f"{name!r} cannot be the name of an object")
    return name


async def _all(stream: Stream, what: str) -> bytes:
    parts, size = [], 0
    while chunk := await stream.readany():
        size += len(chunk)
        if size > _MOST_BYTES:
            raise Unreachable(f"{what}: answer larger than {_MOST_BYTES} bytes")
        parts.append(chunk)
    return b"".join(parts)


def _abort(answer: aiohttp.ClientResponse) -> None:
    """Drop a stream's connection unless it is at its end: a TLS farewell would outlive us."""
    if answer.connection is not None and answer.connection.transport is not None:
        answer.connection.transport.abort()


def _is_eviction(path: str) -> bool:
    """There 429 is the word of a PodDisruptionBudget, and stays so for a while."""
    return path.endswith("/eviction")


def _pause(retry_after: str) -> float:
    """Seconds until another try, by the header Retry-After."""
    return max(_SHORTEST_RETRY, float(retry_after)) if retry_after.isdecimal() else 1.0


def _path_of(target: str) -> str:
    return target.partition("?")[0]


def _failure(method: str, path: str, status: int, raw: bytes) -> APIError | Unreachable:
    return status_error(status, protobuf.status_json(raw), f"{method} {path}")
