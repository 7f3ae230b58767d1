"""Short calls over HTTP/1.1, on connections of our own that are kept.

A Binding is one small request and one small answer. A general client took longer for it than the decision
did: a dozen objects and tasks a call, where here one buffer is written and one answer is waited for.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias, TypeVar, cast
from urllib.parse import urlsplit

import aiohappyeyeballs
import httptools

from adapters.kubernetes.lanes import Lanes

KEEP_ALIVE_SECONDS: Final = 60.0
"""Below the API server's 90 s: a POST on a connection that it just closed has an unknown outcome."""
OPENED_AT_ONCE: Final = 2
"""A server short of CPU would be busy with handshakes alone, and their calls too late when they are done. Or
half as many as there are, so that a distant server's are soon enough.
"""
_WAITING_SHARE: Final = 0.5
"""Of its seconds that a call may wait for a connection. Whoever is sent later is cut off before the answer,
and the connection with it: a server that is slow once would never get through what waits for it.
"""
PATIENCE_SECONDS: Final = 1.0
"""A call that is given up after as long without an answer casts doubt on the idle connections."""
_OPEN_SECONDS: Final = 10.0
_NEXT_ADDRESS_SECONDS: Final = 0.25
"""Until the next address of the server's name is tried as well: a machine that is gone says nothing."""
LARGEST_HEAD: Final = 64 * 1024
_FINAL: Final = 200
"""Statuses below are said on the way."""


ProtocolT = TypeVar("ProtocolT", bound=asyncio.Protocol)


class NotSentError(Exception):
    """Nothing of the request has left this process."""


class CutError(Exception):
    """The connection ended before the answer did, or what came is no answer."""


class Answer(NamedTuple):
    """Status, the header Retry-After ("" where there is none), body."""

    status: int
    retry_after: str
    body: bytes


class _Connection(asyncio.Protocol):
    """One connection; one exchange at a time."""

    def __init__(self, tls: ssl.SSLContext | None, most: int) -> None:
        self.tls = tls
        self._loop = asyncio.get_running_loop()
        self._most = most
        self._transport: asyncio.Transport
        self._parser: httptools.HttpResponseParser | None = None
        self._answer: asyncio.Future[Answer] | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._head: int | None = None
        self._retry_after = ""
        self.used = self._loop.time()
        self.open = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(f"connection lost: {error or 'closed by the server'}")

    def data_received(self, data: bytes) -> None:
        if self._parser is None or self._answer is None or self._answer.done():
            self.abort()  # nobody asked
            return
        if self._head is not None:
            self._head += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(f"not HTTP: {error!r}")
        if self._head is not None and self._head > LARGEST_HEAD:
            self._fail("the answer's headers are too large")

    def on_message_begin(self) -> None:
        if self._answer is None or self._answer.done():
            self.open = False  # nobody asked for another one, whose rest would come as the next answer

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"retry-after":
            self._retry_after = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._head = None

    def on_body(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._most:
            self._fail(f"answer larger than {self._most} bytes")
        else:
            self._parts.append(part)

    def on_message_complete(self) -> None:
        parser = self._parser
        if parser is None or self._answer is None or self._answer.done():
            return
        status = parser.get_status_code()
        if status < _FINAL:
            return
        self.used = self._loop.time()
        self.open = self.open and parser.should_keep_alive()
        self._answer.set_result(Answer(status, self._retry_after, b"".join(self._parts)))

    async def exchange(self, request: bytes) -> Answer:
        """Send, and wait for the answer; whoever does not wait for its end ends the connection. CutError."""
        self._parser = httptools.HttpResponseParser(self)
        self._parts, self._size, self._head, self._retry_after = [], 0, 0, ""
        self._answer = self._loop.create_future()
        self._transport.write(request)
        try:
            return await self._answer
        except BaseException:
            self.abort()
            raise
        finally:
            # The parser knows this connection, the answer's exception this frame: they would be rings.
            self._parser = self._answer = None

    def usable(self, tls: ssl.SSLContext | None) -> bool:
        """Whether another request may go over it."""
        fresh = self._loop.time() - self.used < KEEP_ALIVE_SECONDS
        return self.open and self.tls is tls and fresh and not self._transport.is_closing()

    def abort(self) -> None:
        """End it now; a TLS farewell would outlive us."""
        self.open = False
        self._transport.abort()

    def _fail(self, why: str) -> None:
        self.open = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(CutError(why))


class Server:
    """Where it is; `tls_name`: the name that its certificate must have, where it is not the host's."""

    def __init__(self, url: str, tls_name: str | None) -> None:
        parts = urlsplit(url)
        self._secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._secure else 80)
        self._host_header = parts.netloc.rpartition("@")[2].encode()
        self._tls_name = (tls_name or self._host) if self._secure else None

    def head(self, method: str, target: str, headers: Mapping[str, str], size: int | None = None) -> bytes:
        """A request up to its body, of `size` bytes; None: it has none."""
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        length = b"" if size is None else b"Content-Length: %d\r\n" % size
        return b"%b %b HTTP/1.1\r\nHost: %b\r\n%b%b\r\n" % (
            method.encode(),
            target.encode(),
            self._host_header,
            lines.encode("latin-1"),
            length,
        )

    async def connect(self, make: Callable[[], ProtocolT], tls: ssl.SSLContext | None) -> ProtocolT:
        """A new connection. OSError."""
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        first = await aiohappyeyeballs.start_connection(addresses, happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS)
        _, connection = await loop.create_connection(
            make,
            sock=first,
            ssl=tls if self._secure else None,
            server_hostname=self._tls_name,
        )
        return connection


_Turn: TypeAlias = "asyncio.Future[_Connection]"


class Calls:
    """Calls to one server; `most`: the largest body of an answer, in bytes."""

    def __init__(self, server: Server, most: int) -> None:
        self._server = server
        self._most = most
        self._tls: ssl.SSLContext | None = None
        self._lanes = Lanes()
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()
        self._wanting: deque[_Turn] = deque()
        self._opening: set[asyncio.Task[None]] = set()

    async def call(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None,
        *,
        tls: ssl.SSLContext | None,
        seconds: float,
    ) -> Answer:
        """One call within its seconds, half of them for a connection. NotSentError; CutError or TimeoutError:
        the outcome is open.

        `tls`: the newest there is; calls that wait for a connection go over such a one, too.
        """
        head = self._server.head(method, target, headers, None if body is None else len(body))
        self._tls = tls
        began = asyncio.get_running_loop().time()
        sent: float | None = None
        try:
            async with asyncio.timeout(seconds * _WAITING_SHARE) as limit, self._lanes:
                connection = self._kept() or await self._next()
                limit.reschedule(began + seconds)
                sent = asyncio.get_running_loop().time()
                self._busy.add(connection)
                try:
                    return await connection.exchange(head + (body or b""))
                finally:
                    self._busy.discard(connection)
                    self._keep(connection)
        except (OSError, TimeoutError) as error:
            if sent is not None:
                self._distrust(sent)
                raise
            raise NotSentError(repr(error)) from error
        except asyncio.CancelledError:
            if sent is not None and asyncio.get_running_loop().time() - sent >= PATIENCE_SECONDS:
                self._distrust(sent)  # the deadline was the caller's own
            raise

    def _distrust(self, since: float) -> None:
        """A call had no answer: idle connections unused since then may lead as little to anyone."""
        for connection in self._idle:
            if connection.used < since:
                connection.abort()
        self._idle = [connection for connection in self._idle if connection.open]

    def _kept(self) -> _Connection | None:
        """The one that was used last: those that are not needed any more grow old."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable(self._tls):
                return connection
            connection.abort()
        return None

    async def _next(self) -> _Connection:
        """The next one that comes free, or stands: whoever waited longest gets it. OSError."""
        turn: _Turn = asyncio.get_running_loop().create_future()
        self._wanting.append(turn)
        self._open_more()
        try:
            connection = await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._keep(turn.result())
            raise
        finally:
            del turn  # as above
        if connection.usable(self._tls):
            return connection
        connection.abort()
        return await self._next()

    def _open_more(self) -> None:
        waiting = sum(not turn.done() for turn in self._wanting)
        most = max(OPENED_AT_ONCE, (len(self._idle) + len(self._busy)) // 2)
        for _ in range(min(most, waiting) - len(self._opening)):
            task = asyncio.get_running_loop().create_task(self._open())
            self._opening.add(task)

    async def _open(self) -> None:
        """Goes on when the call that wanted it is late: the next one will want it."""
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                connection = await self._connect(self._tls)
        except Exception as error:
            self._disappoint(error)
        else:
            self._keep(connection)
        finally:
            self._opening.discard(asyncio.current_task())
            self._open_more()

    def _disappoint(self, error: Exception) -> None:
        """There is no connection: that is one call's failure."""
        if turn := self._first():
            turn.set_exception(error)

    def _first(self) -> _Turn | None:
        while self._wanting:
            turn = self._wanting.popleft()
            if not turn.done():
                return turn
        return None

    def _keep(self, connection: _Connection) -> None:
        if not connection.open:
            connection.abort()
            self._open_more()
        elif turn := self._first():
            turn.set_result(connection)
        else:
            self._idle.append(connection)

    async def _connect(self, tls: ssl.SSLContext | None) -> _Connection:
        return await self._server.connect(lambda: _Connection(tls, self._most), tls)

    def close(self) -> None:
        """End all connections; who waits for an answer learns that there is none."""
        while turn := self._first():
            turn.set_exception(ConnectionAbortedError("closed"))
        for task in self._opening:
            task.cancel()
        for connection in (*self._idle, *self._busy):
            connection.abort()
        self._idle.clear()
