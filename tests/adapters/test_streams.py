"""Answers that are read as they come, from a server that is played by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from adapters.kubernetes import streams
from adapters.kubernetes.calls import CutError, Server

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
LONG = 30.0

Play = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@asynccontextmanager
async def answered(play: Play, *, silence: float = LONG):
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        try:
            await play(reader, writer)
        finally:
            writer.close()
            ended.set()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = listener.sockets[0].getsockname()
    server = Server(f"http://{host}:{port}", None)
    stream = await streams.ask(server, server.head("GET", "/", {}), None, connect=LONG, silence=silence)
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


async def test_who_reads_late_leaves_the_rest_with_the_server_and_loses_nothing(monkeypatch):
    monkeypatch.setattr(streams, "_MOST_BUFFERED", 100_000)
    size, stuck = 64 * 2**20, asyncio.Event()

    async def play(_, writer):
        writer.write(HEAD)
        for _ in range(size // 2**20):
            writer.write(chunk(b"x" * 2**20))
            if writer.transport.get_write_buffer_size() > 16 * 2**20:
                stuck.set()
        writer.write(END)
        await writer.drain()

    async with answered(play) as stream:
        assert await stream.status() == 200
        await stuck.wait()
        while not stream._paused:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0)
        assert stream._size < 2**20
        assert len(await whole(stream)) == size


async def test_a_reader_that_is_late_itself_finds_no_silence(monkeypatch):
    monkeypatch.setattr(streams, "_MOST_BUFFERED", 1)

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
