"""Looks at the classes of pods with a floor, once a second, and where packets wait more often."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from agent.deficit.judge import Judged
from agent.network import counting
from agent.network.counting import NO_COUNTS, Counts
from agent.network.netlink import Netlink
from agent.network.sending import Sending, Way, places
from agent.network.shaper import Round

INTERVAL_SECONDS: Final = 1.0
GLANCE_SECONDS: Final = 0.05
REST: Final = 20
"""Glances take a twentieth of the time at most: of 250 pods they are 60 ms apart."""


class Metering:
    """last: of the Shaper. judged: is told of each interval, at its end, who wanted his floor.

    Where no pod has a floor and a class, nothing is asked. 250 pods: 3 ms a look, in a thread.
    """

    def __init__(
        self,
        last: Callable[[], Round | None],
        judged: Callable[[float, Mapping[Way, Judged]], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._last, self._judged, self._clock, self._sleep = last, judged, clock, sleep
        self._sending = Sending()

    async def run(self) -> None:
        """Until cancelled. Raises OSError where the kernel says nothing; then it can be run again."""
        self._sending = Sending()
        with Netlink() as netlink:
            while True:
                await self._interval(netlink)

    async def _interval(self, netlink: Netlink) -> None:
        end, rest = self._clock() + INTERVAL_SECONDS, GLANCE_SECONDS
        while (left := end - self._clock()) > 0:
            suspected = self._sending.suspected
            await self._sleep(min(left, rest) if suspected else left)
            if suspected:
                began = self._clock()
                self._sending.glance((await self._look(netlink))[0])
                rest = max(GLANCE_SECONDS, REST * (self._clock() - began))
        counts, at = await self._look(netlink)
        if judged := self._sending.judged(at, places(self._last()), counts):
            self._judged(at, judged)

    async def _look(self, netlink: Netlink) -> tuple[Counts, float]:
        """And when it was: a loop that is late makes no interval longer than it was."""
        interfaces = sorted({place.interface for place in places(self._last()).values()})
        if not interfaces:
            return NO_COUNTS, self._clock()

        def read() -> tuple[Counts, float]:
            began = self._clock()
            return counting.read_classes(netlink, interfaces), (began + self._clock()) / 2

        return await asyncio.to_thread(read)
