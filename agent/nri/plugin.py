"""The NRI plugin: one a node, connected for as long as there is a runtime to connect to."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry

from agent.nri import messages_pb2 as pb
from agent.nri import protocol
from agent.nri.frames import FrameError
from agent.nri.handler import Handler
from agent.nri.instance import only_instance
from agent.nri.metrics import Metrics
from agent.nri.records import Adjustment
from agent.nri.rpc import Connection, NriError
from agent.nri.session import Session

log = logging.getLogger(__name__)

NRI_VERSION: Final = "v0.12.5"
"""The version reported to the runtime: the one that messages.proto was written after."""
_REGISTRATION_SECONDS: Final = 5.0
_UPDATE_SECONDS: Final = 30.0
_AT_ONCE: Final = 4
"""Containers in one UpdateContainers: the runtime lets nothing else happen while it applies them."""
_UPDATE_PAUSE: Final = 0.5
_STEADY_SECONDS: Final = 10.0
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0


class NriPlugin:
    """Registers `handler` with the runtime behind `socket`.

    lock: a file that one instance on the node holds. budget: seconds for an answer, at most half of what the
    runtime would wait for. name, index: as which it registers; plugins are asked in the order of their index.
    """

    def __init__(
        self,
        socket: Path,
        handler: Handler,
        *,
        lock: Path,
        registry: CollectorRegistry,
        name: str = "j10ce",
        index: str = "50",
        budget: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._socket = socket
        self._handler = handler
        self._lock = lock
        self._metrics = Metrics(registry)
        self._name, self._index = name, index
        self._budget = budget
        self._clock, self._sleep, self._chance = clock, sleep, chance
        self._connection: Connection | None = None
        self._refused = False
        self._going: set[asyncio.Task[Any]] = set()
        self.connected = False
        self.ready = asyncio.Event()
        """Set once a runtime has told what there is."""
        self.version = ""

    async def run(self) -> None:
        """Serve until cancelled. OSError: there can be no lock file."""
        async with only_instance(self._lock, waiting=self._wait, sleep=self._sleep):
            try:
                await self._stay_connected()
            finally:
                for task in self._going:
                    task.cancel()
                await asyncio.gather(*self._going, return_exceptions=True)

    async def update(self, adjustments: Mapping[str, Adjustment], *, pause: float = 0.0) -> None:
        """Have containers updated, by id; four at once, with a pause in seconds before the next four.

        The runtime needs 20 ms and a process for each. NriError: not connected, or it could not update all.
        """
        wanted = [protocol.update(key, one, ignore_failure=False) for key, one in adjustments.items() if one]
        failures = []
        for first in range(0, len(wanted), _AT_ONCE):
            if first and pause:
                await self._sleep(pause)
            if self._connection is None or not self.connected:
                raise NriError("UpdateContainers: no runtime is connected")
            request = pb.UpdateContainersRequest(update=wanted[first : first + _AT_ONCE])
            try:
                await self._connection.call("UpdateContainers", request, _UPDATE_SECONDS)
            except NriError as error:
                failures.append(str(error))
        if failures:
            raise NriError("; ".join(failures))

    async def _stay_connected(self) -> None:
        failures, silent = 0, False
        while True:
            began = self._clock()
            try:
                await self._once()
                silent = False
            except (NriError, FrameError, OSError) as error:
                level = logging.DEBUG if silent else logging.WARNING
                log.log(level, "nri not connected socket=%s error=%r", self._socket, str(error))
                silent = True
            except Exception:
                log.exception("nri connection failed socket=%s", self._socket)
            failures = 0 if self._clock() - began > _STEADY_SECONDS else failures + 1
            await self._sleep(back_off(failures, self._chance()))

    async def _once(self) -> None:
        """One connection from its first to its last byte."""
        reader, writer = await asyncio.open_unix_connection(self._socket)
        session = Session(
            self._handler,
            self._metrics,
            self._clock,
            budget=self._budget,
            refused=self._refused,
            ready=lambda: self._synchronized(session),
            late=self._update_late,
            going=self._going,
        )
        connection = Connection(reader, writer, session.serve)
        reading = asyncio.create_task(connection.run())
        self._connection = connection
        try:
            request = pb.RegisterPluginRequest(
                plugin_name=self._name, plugin_idx=self._index, nri_version=NRI_VERSION
            )
            await connection.call("RegisterPlugin", request, _REGISTRATION_SECONDS)
            await reading
        finally:
            self._ended(session)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            writer.close()

    def _synchronized(self, session: Session) -> None:
        self.connected = True
        self.ready.set()
        self.version = session.runtime
        self._metrics.connected.set(1)
        log.info("nri connected runtime=%r socket=%s", session.runtime, self._socket)

    def _ended(self, session: Session) -> None:
        if self.connected:
            log.warning("nri disconnected runtime=%r", session.runtime)
        self._refused = session.configured and not session.synchronized and not self._refused
        self.connected = False
        self._connection = None
        self._metrics.connected.set(0)

    async def _update_late(self, adjustments: Mapping[str, Adjustment]) -> None:
        try:
            await self.update(adjustments, pause=_UPDATE_PAUSE)
        except NriError as error:
            log.warning("nri update failed containers=%d error=%r", len(adjustments), str(error))

    def _wait(self) -> None:
        log.warning("nri standby lock=%s: another agent on this node holds it", self._lock)


def back_off(failures: int, chance: float) -> float:
    """Seconds until the next attempt: 0.1 doubling to 2, less up to half of it by chance (0 to 1)."""
    longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(max(failures - 1, 0), 16))
    return longest * (1 - chance / 2)
