"""The relay that makes answers late, between a real client and a real server on the loopback."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from lab import late_relay
from tests.waiting import eventually, running

LATE = 0.4


class Server:
    """Answers each line with the same line; `heard`: when each came."""

    def __init__(self) -> None:
        self.heard: list[float] = []
        self.ended = 0

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            self.heard.append(time.monotonic())
            writer.write(line)
            await writer.drain()
        self.ended += 1
        writer.close()


class Line:
    """A client's connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, text: bytes) -> float:
        """Seconds until the answer."""
        began = time.monotonic()
        self.writer.write(text + b"\n")
        assert await self.reader.readline() == text + b"\n"
        return time.monotonic() - began


@asynccontextmanager
async def relayed(server: Server, delay: Callable[[], float]) -> AsyncIterator[Line]:
    """A connection through a relay."""
    listener = await asyncio.start_server(server.connected, "127.0.0.1", 0)
    probe = await asyncio.start_server(server.connected, "127.0.0.1", 0)
    port, server_port = (s.sockets[0].getsockname()[1] for s in (probe, listener))
    probe.close()
    await probe.wait_closed()
    async with listener, running(late_relay.serve(port, server_port, delay)):
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                break
            except ConnectionRefusedError:
                await asyncio.sleep(0)
        yield Line(reader, writer)
        writer.close()
        await eventually(lambda: server.ended == 1, "the server hears of the end")


async def test_an_answer_is_late_and_the_question_is_not() -> None:
    server = Server()
    async with relayed(server, lambda: LATE) as line:
        began = time.monotonic()
        assert await line.ask(b"one") >= LATE
        assert time.monotonic() - server.heard[0] >= LATE
        assert server.heard[0] - began < LATE


async def test_what_follows_with_less_delay_does_not_overtake() -> None:
    delays = [0.0, LATE]
    async with relayed(Server(), lambda: delays.pop()) as line:
        began = time.monotonic()
        line.writer.write(b"late\n")
        await eventually(lambda: len(delays) == 1, "the relay has the first answer")
        line.writer.write(b"at once\n")
        assert await line.reader.readexactly(13) == b"late\nat once\n"
        assert LATE <= time.monotonic() - began < 2 * LATE
        delays.append(0.0)  # for the end


async def test_the_delay_can_change_at_any_time() -> None:
    now = {"delay": 0.0}
    async with relayed(Server(), lambda: now["delay"]) as line:
        assert await line.ask(b"at once") < LATE
        now["delay"] = LATE
        assert await line.ask(b"late") >= LATE
        now["delay"] = 0.0
        assert await line.ask(b"at once again") < LATE
