"""Answers that go on for minutes, read as they come: a watch, over HTTP/1.1 on a connection of its own.

A general client took longer for an event than its decoding does: a timer and a list of chunks each time.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final, cast

import httptools

from adapters.kubernetes.calls import LARGEST_HEAD, CutError, Server

_FINAL: Final = 200
"""Statuses below are said on the way."""
_TURNS: Final = 3
"""Of the loop, until what the kernel has was read: TLS reads what it has first."""
_MOST_AT_ONCE: Final = 4 * 1024 * 1024
"""Bytes after which a reader that catches up begins."""


class Stream(asyncio.Protocol):
    """One answer; `silence`: seconds without a byte after which it counts as cut. `content_type` is known
    once its status is.

    What comes while nobody waits for it is left in the kernel, to be read in one go: waking up for each part
    costs more than the part. The server ends the watch of a client that is too late.
    """

    def __init__(self, silence: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._silence = silence
        self._heard = self._loop.time()
        self._transport: asyncio.Transport
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._head: int | None = 0
        self._paused = False
        self._catching_up = False
        self._ended = False
        self._error: Exception | None = None
        self._status = 0
        self.content_type = ""
        self._waiter: asyncio.Future[None] | None = None

    async def status(self) -> int:
        """The answer's, once its headers are in. CutError, TimeoutError."""
        while not self._status:
            if self._error is not None:
                raise self._error
            await self._news()
        return self._status

    async def readany(self) -> bytes:
        """What there is, at least one byte; empty at the answer's end. CutError, TimeoutError."""
        if self._paused and self._parser is not None:
            await self._catch_up()
        while not self._parts:
            if self._error is not None:
                raise self._error
            if self._ended:
                return b""
            await self._news()
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts = []
        return data

    def abort(self) -> None:
        """End it now; a TLS farewell would outlive us."""
        self._transport.abort()

    async def _catch_up(self) -> None:
        """Take all that waits: with a part for each rest of its reader, a stream falls behind in a flood."""
        self._catching_up = True
        self._resume()
        try:
            known = -1
            while known < (size := sum(map(len, self._parts))) < _MOST_AT_ONCE:
                known = size
                for _ in range(_TURNS):
                    await asyncio.sleep(0)
        finally:
            self._catching_up = False

    async def _news(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: Exception) -> None:
        if self._error is None and not self._ended:
            self._error = error
        self._wake()
        self._transport.abort()

    def _look(self) -> None:
        """Whether it is silent for too long; while we are late ourselves it cannot be told."""
        left = self._silence if self._paused else self._heard + self._silence - self._loop.time()
        if left <= 0:
            self._fail(TimeoutError(f"silent for {self._silence:g} s"))
        else:
            self._watch = self._loop.call_later(left, self._look)

    def _pause(self) -> None:
        self._paused = True
        self._transport.pause_reading()
        self._read_ahead(0)

    def _resume(self) -> None:
        self._paused = False
        self._heard = self._loop.time()
        self._transport.resume_reading()
        # What TLS has taken is read by a callback: uvloop drops it when the connection's end comes before.
        self._loop.call_soon(self._resume_below)

    def _resume_below(self) -> None:
        if not (self._paused or self._ended or self._error):
            self._read_ahead(None)

    def _read_ahead(self, most: int | None) -> None:
        """How many bytes TLS takes from the kernel while reading is paused; None: as many as it likes."""
        limit = getattr(self._transport, "set_read_buffer_limits", None)
        if limit is not None:
            limit(most)

    # asyncio's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The request may be sent."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        self._watch = self._loop.call_later(self._silence, self._look)

    def send(self, request: bytes) -> None:
        """Ask."""
        self._transport.write(request)

    def connection_lost(self, error: Exception | None) -> None:
        """What came before is read all the same."""
        self._watch.cancel()
        self._parser = None  # it knows this connection: together they would be a ring
        self._fail(CutError(f"connection lost: {error or 'closed by the server'}"))

    def data_received(self, data: bytes) -> None:
        """Bytes of the answer."""
        if self._parser is None:
            return
        self._heard = self._loop.time()
        if self._head is not None:
            self._head += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(CutError(f"not HTTP: {error!r}"))
        if self._head is not None and self._head > LARGEST_HEAD:
            self._fail(CutError("the answer's headers are too large"))

    # The parser's side.

    def on_header(self, name: bytes, value: bytes) -> None:
        """One of the answer's."""
        if name.lower() == b"content-type":
            self.content_type = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The body follows, or what was only said on the way has ended."""
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status >= _FINAL:
            self._head, self._status = None, status
            self._wake()

    def on_body(self, part: bytes) -> None:
        """A part of the body."""
        self._parts.append(part)
        if not (self._waiter or self._catching_up or self._paused):
            self._pause()
        self._wake()

    def on_message_complete(self) -> None:
        """The answer's end."""
        if self._status:
            self._ended = True
            self._wake()


async def ask(
    server: Server, request: bytes, tls: ssl.SSLContext | None, connect: float, silence: float
) -> Stream:
    """Connect within `connect` seconds, and send a whole request. OSError, TimeoutError."""
    async with asyncio.timeout(connect):
        stream = await server.connect(lambda: Stream(silence), tls)
    stream.send(request)
    return stream
