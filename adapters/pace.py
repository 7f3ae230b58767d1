"""How fast something may be done, by a clock that is passed in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

_HURRY_SECONDS: Final = 1.0


class Pace:
    """A token bucket: at most `rate` per second in the long run, `burst` at once."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._tokens = burst
        self._at = clock()

    def take(self, count: int = 1) -> bool:
        """True when so many may be done now, all or none; more than a burst when nothing was done lately."""
        if not self.allows(count):
            return False
        self._tokens -= count
        return True

    def allows(self, count: int = 1) -> bool:
        """Whether so many may be done now."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + max(0.0, now - self._at) * self._rate)
        self._at = now
        return self._tokens >= min(count, self._burst)


class Rests:
    """Lets what comes in a flood gather, to be taken many at a time: waking up for each costs more than it.

    Whoever was woken by something calls rest(): it returns at once while there is little, `rate` a second in
    the long run and `burst` in a row, and else after `seconds`. hurry(): for `_HURRY_SECONDS` nobody rests,
    for somebody waits for what comes.
    """

    def __init__(
        self,
        rate: float,
        burst: float,
        seconds: float,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._few = Pace(rate, burst, clock)
        self._seconds = seconds
        self._clock = clock
        self._sleep = sleep
        self._hurried = float("-inf")

    def hurry(self) -> None:
        """What comes next is waited for."""
        self._hurried = self._clock()

    async def rest(self) -> None:
        """Return when the next look is due."""
        if self._clock() - self._hurried >= _HURRY_SECONDS and not self._few.take():
            await self._sleep(self._seconds)


class Turns:
    """At most `at_once` under way, and `rate` per second begun in the long run, `at_once` of them without a
    wait; who comes first goes first.
    """

    def __init__(
        self, rate: float, at_once: int, clock: Callable[[], float], sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        self._interval = 1 / rate
        self._burst = (at_once - 1) * self._interval
        self._clock = clock
        self._sleep = sleep
        self._places = asyncio.Semaphore(at_once)
        self._due = clock() - self._burst

    @property
    def free(self) -> bool:
        """Whether a turn may begin now."""
        return not self._places.locked() and self._due <= self._clock()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until one may begin; it is under way until the context ends."""
        async with self._places:
            now = self._clock()
            due = max(self._due, now - self._burst)
            self._due = due + self._interval
            if due > now:
                await self._sleep(due - now)
            yield
