"""Servers in processes of their own, and connections to them with no more HTTP than they need."""

from __future__ import annotations

import contextlib
import multiprocessing
import socket
from collections.abc import Callable, Iterator
from typing import Any

START_SECONDS = 120


class Connection:
    """A keep-alive connection; a thread uses it alone."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, path: str, body: bytes) -> bytes:
        """POST; the answer's body, which came with status 200."""
        request = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(body))
        self._socket.sendall(request + body)
        answer = self._socket.recv(1 << 20)
        top, _, rest = answer.partition(b"\r\n\r\n")
        assert top.startswith(b"HTTP/1.1 200"), top
        missing = int(top.lower().partition(b"content-length: ")[2].split()[0]) - len(rest)
        parts = [rest]
        while missing > 0:
            parts.append(self._socket.recv(1 << 20))
            missing -= len(parts[-1])
        return b"".join(parts)

    def close(self) -> None:
        """Close it."""
        self._socket.close()


@contextlib.contextmanager
def process(serve: Callable[..., None], *arguments: Any) -> Iterator[list[int]]:
    """`serve(*arguments, ports)` in its own process; it puts the ports that it listens on into `ports`."""
    context = multiprocessing.get_context("spawn")
    ports: Any = context.Queue()
    running = context.Process(target=serve, args=(*arguments, ports), daemon=True)
    running.start()
    try:
        yield ports.get(timeout=START_SECONDS)
    finally:
        running.kill()
        running.join()


async def respond(send: Any, body: bytes, status: int = 200) -> None:
    """This body, in bare ASGI."""
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def read(receive: Any) -> bytes:
    """The request's whole body."""
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)
