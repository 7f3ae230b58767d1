"""Answers that are read as they come, from a server that is played by hand."""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import os
import socket
import ssl
import termios
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trustme
import uvloop

from adapters.kubernetes import streams
from adapters.kubernetes.calls import CutError, Server
from tests.waiting import eventually

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
LONG = 30.0

Runs = Callable[[Coroutine[Any, Any, None]], None]
LOOPS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
TLS = pytest.mark.parametrize("tls", [False, True])
Play = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@asynccontextmanager
async def answered(play: Play, *, silence: float = LONG, tls: bool = False):
    ended, serves, asks = asyncio.Event(), None, None
    if tls:
        authority = trustme.CA()
        serves, asks = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
        authority.issue_cert("127.0.0.1").configure_cert(serves)
        authority.configure_trust(asks)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        try:
            await play(reader, writer)
        finally:
            writer.close()
            ended.set()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=serves)
    host, port = listener.sockets[0].getsockname()
    server = Server(f"http{'s' * tls}://{host}:{port}", None)
    stream = await streams.ask(server, server.head("GET", "/", {}), asks, connect=LONG, silence=silence)
    try:
        yield stream
    finally:
        stream.abort()
        await ended.wait()
        listener.close()


async def whole(stream: streams.Stream) -> bytes:
    assert await stream.status() == 200
    parts = []
    while part := await stream.readany():
        parts.append(part)
    return b"".join(parts)


async def test_what_is_said_on_the_way_is_no_answer():
    async def play(_, writer):
        writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n" + HEAD + chunk(b"one") + chunk(b"two") + END)

    async with answered(play) as stream:
        assert await whole(stream) == b"onetwo"
        assert await stream.readany() == b""


@LOOPS
@TLS
def test_who_reads_late_leaves_the_rest_with_the_server_and_loses_nothing(run: Runs, tls: bool):
    size = 64 * 2**20

    async def scene() -> None:
        stuck = asyncio.Event()

        async def play(_, writer):
            writer.write(HEAD)
            for _ in range(size // 2**20):
                writer.write(chunk(b"x" * 2**20))
                if writer.transport.get_write_buffer_size() > 16 * 2**20:
                    stuck.set()
            writer.write(END)
            await writer.drain()

        async with answered(play, tls=tls) as stream:
            assert await stream.status() == 200
            await stuck.wait()
            await eventually(lambda: stream._paused, "it reads no more")
            assert sum(map(len, stream._parts)) < 2**20
            assert len(await whole(stream)) == size

    run(scene())


@LOOPS
@TLS
def test_what_comes_while_nobody_waits_wakes_the_process_no_more_than_twice(
    run: Runs, tls: bool, monkeypatch
):
    """Once for what finds that nobody waits; TLS has a record that it had taken. Then all comes at once."""
    woken, came = [], streams.Stream.data_received

    def count(stream: streams.Stream, data: bytes) -> None:
        woken.append(len(data))
        came(stream, data)

    monkeypatch.setattr(streams.Stream, "data_received", count)

    async def scene() -> None:
        said, taken = asyncio.Event(), asyncio.Event()

        async def play(_, writer):
            writer.write(HEAD + chunk(b"first"))
            await taken.wait()
            for _ in range(50):
                writer.write(chunk(b"later"))
                await writer.drain()
                await asyncio.sleep(0)  # a turn in which the loop may be woken: what comes of it is counted
            said.set()
            writer.write(END)
            await writer.drain()

        async with answered(play, tls=tls) as stream:
            assert await stream.readany() == b"first"
            before = len(woken)
            taken.set()
            await said.wait()
            assert len(woken) - before <= 2
            assert await stream.readany() == 50 * b"later"
            assert await stream.readany() == b""

    run(scene())


@LOOPS
@TLS
@pytest.mark.parametrize("end", [END, b"", b"nonsense"])
def test_what_ends_while_nobody_waits_is_read_to_its_end(run: Runs, tls: bool, end: bytes):
    """Whether the reader is back before the connection is gone or after it."""

    async def scene(late: bool) -> None:
        taken = asyncio.Event()

        async def play(_, writer):
            writer.write(HEAD + chunk(b"first"))
            await taken.wait()
            writer.write(chunk(b"last") + end)
            writer.close()

        async with answered(play, tls=tls) as stream:
            assert await stream.readany() == b"first"
            taken.set()
            await eventually(lambda: stream._parts == [b"last"], "it came")
            if late:
                stream.abort()
                await eventually(lambda: stream._parser is None, "the connection is lost")
            assert await stream.readany() == b"last"
            with contextlib.nullcontext() if end == END else pytest.raises(CutError):
                assert await stream.readany() == b""

    run(scene(late=False))
    run(scene(late=True))


def unread(stream: streams.Stream) -> int:
    """Bytes that the kernel has for it."""
    count = array.array("i", [0])
    fcntl.ioctl(stream._transport.get_extra_info("socket").fileno(), termios.FIONREAD, count)
    return count[0]


@LOOPS
@TLS
def test_what_tls_had_taken_is_read_though_the_connections_end_comes_next(run: Runs, tls: bool):
    async def scene() -> None:
        taken, late, last, ends, said = (asyncio.Event() for _ in range(5))

        async def play(reader, writer):
            writer.write(HEAD + chunk(b"first"))
            await taken.wait()
            writer.write(chunk(b"later"))
            await late.wait()
            writer.write(chunk(b"last") + END)
            last.set()
            await ends.wait()
            bare = writer.get_extra_info("socket")
            with socket.socket(fileno=os.dup(bare.fileno())) as end:
                end.shutdown(socket.SHUT_WR)  # without TLS' farewell, as of a process that was killed
            said.set()
            await reader.read()

        async with answered(play, tls=tls) as stream:
            assert await stream.readany() == b"first"
            taken.set()
            await eventually(lambda: stream._parts == [b"later"], "it came")
            late.set()
            await last.wait()
            await eventually(lambda: not tls or unread(stream) == 0, "TLS took it")
            ends.set()
            await said.wait()
            assert await whole(stream) == b"laterlast"

    run(scene())


async def test_a_reader_that_is_late_itself_finds_no_silence():
    async def play(reader, writer):
        writer.write(HEAD + chunk(b"some"))
        await reader.read()

    async with answered(play, silence=0.05) as stream:
        assert await stream.status() == 200
        for _ in range(3):
            await asyncio.sleep(0.05)
        assert await stream.readany() == b"some"
        with pytest.raises(TimeoutError, match=r"silent for 0\.05 s"):
            await stream.readany()


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n" + b"X: " + b"x" * 70_000, b"nonsense\r\n\r\n"])
async def test_what_is_no_answer(head: bytes):
    async def play(reader, writer):
        writer.write(head)
        await reader.read()

    async with answered(play) as stream:
        with pytest.raises(CutError):
            await stream.status()


async def test_what_came_before_a_cut_is_read():
    async def play(_, writer):
        writer.write(HEAD + chunk(b"some"))

    async with answered(play) as stream:
        assert await stream.status() == 200
        assert await stream.readany() == b"some"
        with pytest.raises(CutError, match="connection lost"):
            await stream.readany()
