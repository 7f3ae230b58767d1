"""Which interfaces others have changed, as the kernel tells: their qdiscs, classes, filters, or themselves.

TCX tells nothing: programs there are asked for. Our own changes are told, too, and left out by their socket.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import struct
from collections.abc import Callable, Container
from collections.abc import Set as AbstractSet
from typing import Final, Self

from agent.network import messages
from agent.network.netlink import events, listen

_GROUPS: Final = 1 << 0 | 1 << 3
"""RTNLGRP_LINK, RTNLGRP_TC."""
_TYPES: Final = frozenset(
    {
        messages.NEW_LINK,
        messages.DEL_LINK,
        messages.NEW_QDISC,
        messages.DEL_QDISC,
        messages.NEW_CLASS,
        messages.DEL_CLASS,
        messages.NEW_FILTER,
        messages.DEL_FILTER,
    }
)
_INDEX: Final = struct.Struct("=4xi")
"""Of struct tcmsg and of struct ifinfomsg alike."""
_READS: Final = 64
"""In one go: a flood of events is no reason to hold the loop."""

Changed = Callable[[AbstractSet[int]], None]
"""Called on the loop with the interfaces that were changed."""
Lost = Callable[[], None]
"""Called where events were lost: any interface may have changed."""

log = logging.getLogger(__name__)


class Listening:
    """A socket that is told of changes in the network namespace of the calling thread. Raises OSError."""

    def __init__(self) -> None:
        self._socket = listen(_GROUPS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """For the loop."""
        return self._socket.fileno()

    def close(self) -> None:
        """No more is told."""
        self._socket.close()

    def read(self, ours: Container[int] = ()) -> tuple[frozenset[int], bool]:
        """The interfaces that others changed since the last time, and whether events were lost.

        ours: the ports of our own sockets (Netlink.port).
        """
        changed: set[int] = set()
        lost = False
        for _ in range(_READS):
            try:
                came = events(self._socket)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                lost = True
                continue
            changed |= {
                _INDEX.unpack_from(event.body)[0]
                for event in came
                if event.type in _TYPES and event.port not in ours and len(event.body) >= _INDEX.size
            }
        return frozenset(changed), lost


async def watch(listening: Listening, ours: Container[int], changed: Changed, lost: Lost) -> None:
    """Until cancelled: say what others changed. Raises OSError where the socket fails."""
    loop = asyncio.get_running_loop()
    failed: asyncio.Future[None] = loop.create_future()

    def read() -> None:
        try:
            interfaces, some_lost = listening.read(ours)
        except OSError as error:
            loop.remove_reader(listening.fileno())
            failed.set_exception(error)
            return
        if some_lost:
            log.warning("network events were lost: all interfaces are checked")
            lost()
        if interfaces:
            changed(interfaces)

    loop.add_reader(listening.fileno(), read)
    try:
        await failed
    finally:
        loop.remove_reader(listening.fileno())
