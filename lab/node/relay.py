"""Passes a real node's connections on to the cluster's API server, which listens on the loopback only.

Run as `python -I -m lab.node.relay READY PID PORT [HOST [SERVICE]]`: it listens on 127.0.0.1:PORT in the
network namespace of process PID, makes the file READY, and connects to the same port in its own, of HOST or
the loopback. So one kubeconfig is right in both. It also listens on port 443 of SERVICE, an address of that
namespace: there is no kube-proxy, and pods find the API server by its Service. While the API server is away,
a connection is accepted and closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

_CLONE_NEWNET = 0x40000000
_CHUNK = 1 << 16
_LOOPBACK = "127.0.0.1"


def main() -> None:
    """Listen there, connect here, until killed."""
    pid, port = int(sys.argv[2]), int(sys.argv[3])
    addresses = [(_LOOPBACK, port), *((service, 443) for service in sys.argv[5:])]
    listeners = _listen_in(pid, addresses)
    Path(sys.argv[1]).touch()
    asyncio.run(_serve_all(listeners, sys.argv[4] if len(sys.argv) > 4 else _LOOPBACK, port))


async def _serve_all(listeners: list[socket.socket], host: str, port: int) -> None:
    await asyncio.gather(*(serve(listener, host, port) for listener in listeners))


def _listen_in(pid: int, addresses: list[tuple[str, int]]) -> list[socket.socket]:
    """Sockets that listen in another network namespace: sockets keep the one they were made in."""
    with Path("/proc/self/ns/net").open() as ours, Path(f"/proc/{pid}/ns/net").open() as theirs:
        _enter(theirs.fileno())
        listeners = [socket.create_server(address, backlog=512) for address in addresses]
        _enter(ours.fileno())
    return listeners


def _enter(handle: int) -> None:
    """setns(2)."""
    if ctypes.CDLL(None, use_errno=True).setns(handle, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


async def serve(listener: socket.socket, host: str, port: int) -> None:
    """Pass on each connection of a listening socket to a port of a host, until cancelled."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # cancelled: this relay ends; a task of asyncio's streams that does so would log an error
        with contextlib.suppress(asyncio.CancelledError), _closing(writer):
            try:
                there, back = await asyncio.open_connection(host, port)
            except OSError:
                return
            with _closing(back):
                await asyncio.gather(pass_on(reader, back), pass_on(there, writer))

    server = await asyncio.start_server(connected, sock=listener)
    await server.serve_forever()


@contextlib.contextmanager
def _closing(writer: asyncio.StreamWriter) -> Iterator[None]:
    """Closed in the end: when this relay ends at once, whatever is left to be written."""
    try:
        yield
    except asyncio.CancelledError:
        writer.transport.abort()
        raise
    finally:
        writer.close()


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One direction, to its end, which is passed on to the other side."""
    with contextlib.suppress(ConnectionError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()


if __name__ == "__main__":
    main()
