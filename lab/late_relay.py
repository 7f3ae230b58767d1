"""Passes one component's connections on to the API server, and delivers the server's answers late.

Run as `python -P -m lab.late_relay PORT SERVER_PORT FILE`: FILE says by how many seconds, and may change at
any time. TLS passes through unread, so all that the server sends is late, watches, too, and nothing that the
component asks: it learns late what has long taken effect. While the API server is away, a connection is
accepted and closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

from lab.node.relay import pass_on
from lab.ports import LOOPBACK

_CHUNK = 1 << 16
_MOST_CHUNKS = 4096
"""The most bytes under way on one connection; beyond that the server has to wait, as behind a full socket."""


def main() -> None:
    """Listen until killed."""
    port, server_port, file = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    asyncio.run(serve(port, server_port, lambda: float(file.read_text())))


async def serve(port: int, server_port: int, delay: Callable[[], float]) -> None:
    """Relay until cancelled. `delay`: by how many seconds what the server sends now is late."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            try:
                server, to_server = await asyncio.open_connection(LOOPBACK, server_port)
            except OSError:
                return
            with contextlib.closing(to_server):
                await asyncio.gather(pass_on(reader, to_server), _deliver(server, writer, delay))

    listener = await asyncio.start_server(connected, LOOPBACK, port, backlog=512)
    await listener.serve_forever()


async def _deliver(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: Callable[[], float]
) -> None:
    """The server's direction, to its end: in its order, each chunk late by the delay."""
    chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_MOST_CHUNKS)
    writing = asyncio.create_task(_write(chunks, writer))
    now = asyncio.get_running_loop().time
    chunk = b" "
    while chunk:
        try:
            chunk = await reader.read(_CHUNK)
        except ConnectionError:
            chunk = b""
        await chunks.put((now() + delay(), chunk))
    await writing


async def _write(chunks: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
    """Write each chunk when it is due; the empty one is the end. A client that went away misses the rest."""
    now = asyncio.get_running_loop().time
    while True:
        due, chunk = await chunks.get()
        await asyncio.sleep(max(0.0, due - now()))
        with contextlib.suppress(OSError):
            if not chunk:
                writer.write_eof()
                return
            writer.write(chunk)
            await writer.drain()


if __name__ == "__main__":
    main()
