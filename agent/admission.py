"""How many may be connected to an address of ours: what strangers hold open is no memory of the agent's."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Final

log = logging.getLogger(__name__)

MOST: Final = 64
"""Connections at once: kubelet and some Prometheus need a handful; one in a TLS handshake takes 50 kB."""
HANDSHAKE_SECONDS: Final = 5.0
_BACKLOG: Final = 128
_PAUSE: Final = 1.0
"""Seconds until connections are taken again where there are no files for them."""
_NO_SUCH: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
"""A machine without IPv6 has no such address; others of the host may do."""

Serves = Callable[[], asyncio.Protocol]
"""Makes what serves one connection."""


class Admission:
    """Lets connections in; where there are too many, the oldest makes room: whoever comes is heard."""

    def __init__(self, serves: Serves, tls: ssl.SSLContext | None, most: int = MOST) -> None:
        self._serves, self._tls, self._most = serves, tls, most
        self._open: list[socket.socket] = []
        self._beginning: set[asyncio.Task[None]] = set()

    async def accept(self, listening: socket.socket) -> None:
        """Take who connects, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connected, _ = await loop.sock_accept(listening)
            except OSError as error:
                log.warning("no connection taken why=%r", error.strerror)
                await asyncio.sleep(_PAUSE)
                continue
            self._make_room()
            self._open.append(connected)
            task = asyncio.ensure_future(self._begin(connected))
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)

    def _make_room(self) -> None:
        """A transport that has ended has closed its socket."""
        self._open = [one for one in self._open if one.fileno() >= 0]
        if len(self._open) >= self._most:
            oldest = self._open.pop(0)
            with contextlib.suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)

    async def _begin(self, connected: socket.socket) -> None:
        loop, limit = asyncio.get_running_loop(), HANDSHAKE_SECONDS if self._tls else None
        with contextlib.suppress(OSError):  # TLS's own errors are such
            await loop.connect_accepted_socket(
                self._serves, connected, ssl=self._tls, ssl_handshake_timeout=limit
            )

    async def close(self) -> None:
        """End what is not served yet."""
        for task in self._beginning:
            task.cancel()
        await asyncio.gather(*self._beginning, return_exceptions=True)


@contextlib.asynccontextmanager
async def listening(
    address: tuple[str, int], serves: Serves, tls: ssl.SSLContext | None
) -> AsyncIterator[tuple[str, int]]:
    """Let in who connects, until the context ends; yields the address (port 0: any free one). OSError."""
    admission = Admission(serves, tls)
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(one) for one in await _listening(*address)]
        tasks = [asyncio.ensure_future(admission.accept(one)) for one in sockets]
        try:
            yield sockets[0].getsockname()[:2]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await admission.close()


async def _listening(host: str, port: int) -> list[socket.socket]:
    """One for each address of the host; "" is every address."""
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    made: list[socket.socket] = []
    refused: OSError | None = None
    for family, _, _, _, where in dict.fromkeys(found):
        try:
            made.append(_bound(family, where))
        except OSError as error:
            refused = error if error.errno not in _NO_SUCH else refused or error
    if refused is not None and (refused.errno not in _NO_SUCH or not made):
        for one in made:
            one.close()
        raise refused
    return made


def _bound(family: int, where: tuple[str | int, ...] | tuple[int, bytes]) -> socket.socket:
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        one.setblocking(False)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind(where)
        one.listen(_BACKLOG)
    except OSError as error:
        one.close()
        raise OSError(error.errno, f"cannot listen on {where[0]!s}:{where[1]!s}: {error.strerror}") from error
    return one
