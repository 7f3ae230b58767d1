"""HTTP servers that a program runs side by side and stops together."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

import uvicorn

DRAIN_SECONDS: Final = 20.0
"""How long requests under way may take once a server is to stop."""


class Server(uvicorn.Server):
    """uvicorn's server, without its signal handlers: a program has several servers and stops them itself.

    Nor does it wake ten times a second to look whether it is to stop: an idle program costs its wakings.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopping = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield

    def stop(self) -> None:
        """Accept no more, and end once what is under way is answered."""
        self.should_exit = True
        self._stopping.set()

    async def main_loop(self) -> None:
        """Until stop()."""
        await self.on_tick(0)  # it makes the headers of all answers
        await self._stopping.wait()


class Serving(Protocol):
    """A server that serve_until can run."""

    def stop(self) -> None:
        """Accept no more."""
        ...

    async def serve(self, sockets: list[socket.socket]) -> None:
        """Until stop(), and what was under way then is answered."""
        ...


def server(app: Any, tls: ssl.SSLContext | None = None) -> Server:
    """A server of an ASGI application, such as FastAPI's; over TLS where `tls` is given."""
    config = uvicorn.Config(
        app,
        loop="none",
        http="httptools",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=int(DRAIN_SECONDS),
    )
    if tls is not None:
        config.load()
        config.ssl = tls  # uvicorn takes files only
    return Server(config)


async def serve_until(
    stop: asyncio.Event, servers: Sequence[tuple[Serving, socket.socket]], *, draining: Callable[[], None]
) -> None:
    """Serve all until `stop` is set, then finish the requests under way; `draining` is called in between."""
    running = [asyncio.create_task(one.serve([opened])) for one, opened in servers]
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([*running, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    draining()
    for one, _ in servers:
        one.stop()
    await asyncio.gather(*running)
