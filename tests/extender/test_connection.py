"""The verbs' connections: HTTP/1.1 byte for byte, in any pieces, and how they end."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.serving.addresses import listen
from extender import connection
from extender.connection import KEEP_ALIVE_SECONDS, VerbsServer
from extender.verbs import Reply
from tests.waiting import eventually

pytestmark = pytest.mark.program

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter


class Echo:
    """Answers with what was asked; /later waits for the gate."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.asked: list[str] = []

    def __call__(self, method: str, path: str, body: bytes) -> Reply | Awaitable[Reply]:
        self.asked.append(path)
        reply = Reply(200, f"{method} {path} ".encode() + body)
        return self._later(reply) if path == "/later" else reply

    async def _later(self, reply: Reply) -> Reply:
        await self.gate.wait()
        return reply


class Served:
    """A server, what it answers with, and ways to it."""

    def __init__(self, server: VerbsServer, echo: Echo, address: tuple[str, int]) -> None:
        self.server, self.echo = server, echo
        self._address = address

    async def connect(self) -> tuple[Reader, Writer]:
        return await asyncio.open_connection(*self._address)


@asynccontextmanager
async def served(keep_alive: float = KEEP_ALIVE_SECONDS) -> AsyncIterator[Served]:
    echo, opened = Echo(), listen("127.0.0.1:0")
    server = VerbsServer(echo, keep_alive=keep_alive)
    running = asyncio.create_task(server.serve([opened]))
    try:
        yield Served(server, echo, opened.getsockname())
    finally:
        echo.gate.set()
        server.stop()
        await running


def request(path: str, body: bytes = b"", method: str = "POST", *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


async def answer(reader: Reader) -> tuple[int, bytes, bytes]:
    """Status, head, body."""
    async with asyncio.timeout(60):
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].split()[0])
        return int(head.split()[1]), head, await reader.readexactly(size)


async def ended(reader: Reader) -> bool:
    async with asyncio.timeout(60):
        return await reader.read() == b""


async def test_many_requests_on_one_connection() -> None:
    async with served() as one:
        reader, writer = await one.connect()
        one.echo.gate.set()
        for path in ("/filter", "/later", "/bind?timeout=2s", "/later"):
            writer.write(request(path, b"abc"))
            status, head, body = await answer(reader)
            assert (status, body) == (200, f"POST {path.partition('?')[0]} abc".encode())
            assert b"content-type: application/json" in head
            assert b"connection" not in head
        writer.close()


async def test_requests_that_come_together_are_answered_in_their_order() -> None:
    async with served() as one:
        reader, writer = await one.connect()
        writer.write(request("/later", b"1") + request("/filter", b"2") + request("/later", b"3"))
        await writer.drain()
        one.echo.gate.set()
        bodies = [(await answer(reader))[2] for _ in range(3)]
        assert bodies == [b"POST /later 1", b"POST /filter 2", b"POST /later 3"]
        writer.close()


CHUNKED = b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"


@given(st.lists(st.integers(1, len(CHUNKED) + 80), max_size=6))
def test_bytes_may_come_in_any_pieces(cuts: list[int]) -> None:
    whole = request("/filter", b"x" * 40) + CHUNKED

    async def ask() -> list[bytes]:
        async with served() as one:
            reader, writer = await one.connect()
            places = sorted({0, *cuts, len(whole)})
            for begin, end in pairwise(places):
                writer.write(whole[begin:end])
                await writer.drain()
                await asyncio.sleep(0)
            found = [(await answer(reader))[2] for _ in range(2)]
            writer.close()
            return found

    assert asyncio.run(ask()) == [b"POST /filter " + b"x" * 40, b"POST /x abcde"]


@pytest.mark.parametrize(
    "sent",
    [b"nonsense\r\n\r\n", b"\x16\x03\x01\x02", b"POST /filter HTTP/1.1\r\nContent-Length: x\r\n\r\n"],
)
async def test_what_is_no_http_gets_400_and_the_end(sent: bytes) -> None:
    async with served() as one:
        reader, writer = await one.connect()
        writer.write(sent + b"\r\n\r\n")
        status, head, _ = await answer(reader)
        assert (status, b"connection: close" in head) == (400, True)
        assert await ended(reader)
        assert one.echo.asked == []
        writer.close()


async def test_a_body_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_BODY_BYTES", 1_000)
    async with served() as one:
        reader, writer = await one.connect()
        writer.write(b"POST /filter HTTP/1.1\r\nContent-Length: 1001\r\n\r\n" + b"x" * 1_001)
        assert (await answer(reader))[0] == 413
        assert await ended(reader)
        assert one.echo.asked == []
        writer.close()


class Written(asyncio.Transport):
    """A transport that keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.closing = b"", False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing


async def test_a_head_without_end_is_cut_off() -> None:
    transport, echo = Written(), Echo()
    one = connection.Connection(echo, set(), KEEP_ALIVE_SECONDS)
    one.connection_made(transport)
    one.data_received(request("/filter", b"x" * 100_000))  # a body is no head
    assert transport.written.startswith(b"HTTP/1.1 200 ")
    transport.written = b""
    one.data_received(b"POST /filter HTTP/1.1\r\nx: ")
    one.data_received(b"x" * connection.MAX_HEAD_BYTES)
    assert not transport.written
    one.data_received(b"x")
    assert transport.written.startswith(b"HTTP/1.1 431 ")
    assert transport.closing
    one.connection_lost(None)
    assert echo.asked == ["/filter"]


async def test_a_client_that_asks_before_it_sends_is_told_to_go_on() -> None:
    async with served() as one:
        reader, writer = await one.connect()
        head, body = request("/filter", b"abc", "POST", "Expect: 100-continue").split(b"\r\n\r\n")
        writer.write(head + b"\r\n\r\n")
        async with asyncio.timeout(60):
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        assert (await answer(reader))[2] == b"POST /filter abc"
        writer.close()


async def test_a_client_that_wants_the_connection_closed_has_its_way() -> None:
    async with served() as one:
        reader, writer = await one.connect()
        writer.write(request("/filter", b"", "POST", "Connection: close"))
        assert b"connection: close" in (await answer(reader))[1]
        assert await ended(reader)
        writer.close()


async def test_an_idle_connection_is_closed_and_one_that_waits_for_its_answer_is_not() -> None:
    async with served(keep_alive=0.1) as one:
        idle, other = await one.connect()
        assert await ended(idle)
        reader, writer = await one.connect()
        writer.write(request("/later", b"x"))
        await writer.drain()
        await eventually(lambda: one.echo.asked)
        later, another = await one.connect()
        assert await ended(later), "it came later, and has been idle for long enough"
        one.echo.gate.set()
        assert (await answer(reader))[2] == b"POST /later x"
        other.close()
        another.close()
        writer.close()


def test_keep_alive_outlasts_gos_idle_connections() -> None:
    assert KEEP_ALIVE_SECONDS >= 120


async def test_what_is_under_way_is_answered_when_it_stops() -> None:
    async with served() as one:
        reader, writer = await one.connect()
        idle, other = await one.connect()
        writer.write(request("/later", b"x"))
        await writer.drain()
        await eventually(lambda: one.echo.asked)
        one.server.stop()
        assert await ended(idle)
        with pytest.raises(ConnectionError):
            await one.connect()
        one.echo.gate.set()
        status, head, body = await answer(reader)
        assert (status, body, b"connection: close" in head) == (200, b"POST /later x", True)
        assert await ended(reader)
        other.close()
        writer.close()


async def test_a_client_that_goes_away_harms_nobody() -> None:
    async with served() as one:
        _, writer = await one.connect()
        writer.write(request("/later", b"x"))
        await writer.drain()
        await eventually(lambda: one.echo.asked)
        writer.transport.abort()
        reader, other = await one.connect()
        one.echo.gate.set()
        other.write(request("/filter", b"y"))
        assert (await answer(reader))[2] == b"POST /filter y"
        other.close()


async def test_a_connection_that_is_closed_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program's collector never looks again at what lives for some seconds: a ring would stay."""
    made: list[weakref.ref[connection.Connection]] = []

    class Noted(connection.Connection):
        def __init__(self, *how: Any) -> None:
            super().__init__(*how)
            made.append(weakref.ref(self))

    monkeypatch.setattr(connection, "Connection", Noted)
    async with served() as there:
        reader, writer = await there.connect()
        writer.write(request("/filter"))
        await answer(reader)
        gc.disable()
        try:
            writer.close()
            await eventually(lambda: made[0]() is None)
        finally:
            gc.enable()
