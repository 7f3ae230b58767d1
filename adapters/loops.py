"""Background loops, which go on whatever one round meets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar
from weakref import WeakValueDictionary

log = logging.getLogger(__name__)

T = TypeVar("T")


async def forever(
    name: str,
    seconds: float,
    once: Callable[[], Awaitable[object]],
    failed: Callable[[str], None],
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Call `once` until cancelled, with `seconds` of pause after each call; an error is logged,
    `failed(name)` counts it.
    """
    while True:
        try:
            await once()
        except Exception:
            failed(name)
            log.exception("loop failed loop=%s", name)
        await sleep(seconds)


def only_while(
    may: Callable[[], bool], once: Callable[[], Awaitable[object]]
) -> Callable[[], Awaitable[None]]:
    """The round of a loop, left out while it may not be."""

    async def once_if_it_may() -> None:
        if may():
            await once()

    return once_if_it_may


def when_due(
    due: Callable[[], bool],
    most: float,
    once: Callable[[], Awaitable[object]],
    clock: Callable[[], float],
) -> Callable[[], Awaitable[None]]:
    """The round of a loop, left out while nothing is due, but never for longer than `most` seconds of
    `clock`: time itself changes some conditions.
    """
    last = float("-inf")

    async def once_if_due() -> None:
        nonlocal last
        now = clock()
        if due() or now - last >= most:
            last = now
            await once()

    return once_if_due


async def last_of(steps: Iterator[T]) -> T:
    """Go through work that is done in steps, and let others run between them; what the last step said."""
    last = next(steps)
    for step in steps:
        await asyncio.sleep(0)
        last = step
    return last


class OneAtATime:
    """A lock by name; one that nobody holds or waits for is forgotten."""

    def __init__(self) -> None:
        self._locks = WeakValueDictionary[str, asyncio.Lock]()

    def __getitem__(self, name: str) -> asyncio.Lock:
        """To be held by `async with` at once: nothing else keeps it."""
        return self._locks.setdefault(name, asyncio.Lock())


class Changes:
    """Lets a loop sleep until something changed, or until a while has passed."""

    def __init__(self, most: float) -> None:
        self._most = most
        self._event = asyncio.Event()

    def note(self) -> None:
        """Take note that something changed."""
        self._event.set()

    def clear(self) -> None:
        """Take note that all changes so far have been dealt with."""
        self._event.clear()

    async def wait(self) -> None:
        """Return at the next change, or after `most` seconds: time itself changes some conditions."""
        try:
            async with asyncio.timeout(self._most):
                await self._event.wait()
        except TimeoutError:
            return
        self._event.clear()
