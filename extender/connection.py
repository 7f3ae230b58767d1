"""HTTP/1.1 as the verbs' port needs it: kube-scheduler's connections, their requests answered in turn.

A general server spent as long on a call of 100 names as the decision does: a task, three messages and two
writes a request. Here a decision is made where the last byte of its request arrives, and its answer is
written at once.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import Final, NamedTuple, cast

import httptools

from adapters.serving.server import DRAIN_SECONDS
from extender.verbs import Reply

KEEP_ALIVE_SECONDS: Final = 150.0
"""Above the 90 s that Go keeps idle connections: it does not replay a POST on one that we closed."""
MAX_BODY_BYTES: Final = 256 * 1024 * 1024
"""5,000 full nodes are about 50 MB; what is larger is no scheduler's."""
MAX_HEAD_BYTES: Final = 64 * 1024
"""Of a request's line and headers, beyond their first bytes; kube-scheduler's are below 1 KiB."""

Handler = Callable[[str, str, bytes], Reply | Awaitable[Reply]]
"""(method, path, body) -> the answer, at once where it needs no waiting. Never raises."""

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_MALFORMED: Final = Reply(400, b'{"Error":"not HTTP/1.1"}')
_TOO_LARGE: Final = Reply(413, b'{"Error":"the body is too large"}')
_HEAD_TOO_LARGE: Final = Reply(431, b'{"Error":"the headers are too large"}')


class _Request(NamedTuple):
    method: str
    path: str
    body: bytes
    keep_alive: bool


class Connection(asyncio.Protocol):
    """One connection; `closed` is done when it is.

    Requests that arrive while another waits for its answer wait in their order.
    """

    def __init__(self, handler: Handler, connections: set[Connection], keep_alive: float) -> None:
        self._handler = handler
        self._connections = connections
        self._keep_alive = keep_alive
        self._loop = asyncio.get_running_loop()
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        self.closed = self._loop.create_future()
        self._transport: asyncio.Transport
        self._pending: deque[_Request] = deque()
        self._answering: asyncio.Task[None] | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._url = b""
        self._expects = False
        self._receiving = False
        self._head: int | None = None
        self._ending = False
        self._used = self._loop.time()

    # asyncio's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        self._connections.add(self)
        self._watch = self._loop.call_later(self._keep_alive, self._close_if_idle)

    def connection_lost(self, _: Exception | None) -> None:
        """The client went away; what is under way ends all the same."""
        self._connections.discard(self)
        self._watch.cancel()
        self._pending.clear()
        self._parser = None  # it knows this connection: together they would be a ring
        self.closed.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Bytes of one request, or of several."""
        if self._parser is None:
            return
        if self._head is not None:
            self._head += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._refuse(_MALFORMED)
            return
        if self._head is not None and self._head > MAX_HEAD_BYTES:
            self._refuse(_HEAD_TOO_LARGE)

    def pause_writing(self) -> None:
        """The client does not read: neither do we."""
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """It reads again."""
        self._transport.resume_reading()

    def finish(self) -> None:
        """Close once what is under way is answered."""
        self._ending = True
        if self._answering is None and not self._receiving:
            self._transport.close()

    def abort(self) -> None:
        """Close now."""
        self._transport.abort()

    def _close_if_idle(self) -> None:
        left = self._used + self._keep_alive - self._loop.time()
        if left <= 0 and self._answering is None:
            self._transport.close()
        else:
            self._watch = self._loop.call_later(max(left, 1.0), self._close_if_idle)

    # The parser's side.

    def on_message_begin(self) -> None:
        """A request begins."""
        self._parts, self._size, self._url, self._expects = [], 0, b"", False
        self._receiving, self._head = True, 0

    def on_url(self, url: bytes) -> None:
        """Its path, or a part of it."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """The one header that wants an answer of its own."""
        if name.lower() == b"expect" and value.lower() == b"100-continue":
            self._expects = True

    def on_headers_complete(self) -> None:
        """The body follows."""
        self._head = None
        if self._expects and self._answering is None:
            self._transport.write(_CONTINUE)

    def on_body(self, part: bytes) -> None:
        """A part of the body."""
        self._size += len(part)
        if self._size <= MAX_BODY_BYTES:
            self._parts.append(part)
        elif not self._transport.is_closing():
            self._refuse(_TOO_LARGE)

    def on_message_complete(self) -> None:
        """The whole request is there."""
        self._receiving = False
        if self._parser is None or self._transport.is_closing():
            return
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts = []
        path = self._url.partition(b"?")[0].decode("latin-1")
        method = self._parser.get_method().decode("latin-1")
        request = _Request(method, path, body, self._parser.should_keep_alive())
        if self._answering is None:
            self._answer(request)
        else:
            self._pending.append(request)

    # Answers.

    def _answer(self, request: _Request) -> None:
        found = self._handler(request.method, request.path, request.body)
        if isinstance(found, Reply):
            self._send(found, request)
        else:
            self._answering = self._loop.create_task(self._later(found, request))

    async def _later(self, found: Awaitable[Reply], request: _Request) -> None:
        reply = await found
        self._answering = None
        self._send(reply, request)
        while self._pending and self._answering is None:
            self._answer(self._pending.popleft())

    def _send(self, reply: Reply, request: _Request) -> None:
        if self._transport.is_closing():
            return
        closing = self._ending or not request.keep_alive
        head = b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%b\r\n" % (
            reply.status,
            HTTPStatus(reply.status).phrase.encode(),
            len(reply.body),
            b"connection: close\r\n" if closing else b"",
        )
        self._transport.write(head if request.method == "HEAD" else head + reply.body)
        self._used = self._loop.time()
        if closing:
            self._transport.close()

    def _refuse(self, reply: Reply) -> None:
        self._pending.clear()
        self._send(reply, _Request("", "", b"", keep_alive=False))


class VerbsServer:
    """Serves connections until it is told to stop; then answers what is under way, for at most 20 s."""

    def __init__(
        self, handler: Handler, tls: ssl.SSLContext | None = None, *, keep_alive: float = KEEP_ALIVE_SECONDS
    ) -> None:
        self._handler = handler
        self._tls = tls
        self._keep_alive = keep_alive
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Accept no more."""
        self._stopping.set()

    async def serve(self, sockets: list[socket.socket]) -> None:
        """Until stop()."""
        connections: set[Connection] = set()
        loop = asyncio.get_running_loop()
        make = partial(Connection, self._handler, connections, self._keep_alive)
        servers = [await loop.create_server(make, sock=one, ssl=self._tls) for one in sockets]
        await self._stopping.wait()
        for server in servers:
            server.close()
        for connection in list(connections):
            connection.finish()
        if connections:
            await asyncio.wait([one.closed for one in connections], timeout=DRAIN_SECONDS)
        for connection in list(connections):
            connection.abort()
