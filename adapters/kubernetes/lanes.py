"""How many calls are under way at once, and so how many connections there are."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

FEW: Final = 16
MOST: Final = 240
PATIENCE_SECONDS: Final = 0.2


class Lanes:
    """An async context manager that lets a few calls in at once, the others in their order.

    A connection costs a TLS handshake: milliseconds of CPU, most of them the API server's. In a burst each
    call would open one, and a busy machine would be no sooner through. Where it is the server that is slow,
    and a call has waited for PATIENCE_SECONDS, twice as many are let in, again and again; until none is under
    way.
    """

    def __init__(self, few: int = FEW, most: int = MOST, patience: float = PATIENCE_SECONDS) -> None:
        self._few = self._width = few
        self._most = most
        self._patience = patience
        self._busy = 0
        self._waiting: deque[tuple[asyncio.Future[None], float]] = deque()
        self._widening: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        if self._busy < self._width:
            self._busy += 1
            return
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append((turn, loop.time()))
        if self._widening is None:
            self._widening = loop.call_later(self._patience, self._widen)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._leave()

    def _leave(self) -> None:
        self._busy -= 1
        self._admit()
        if not self._busy:
            self._width = self._few

    def _admit(self) -> None:
        while self._waiting and self._busy < self._width:
            turn, _ = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._busy += 1

    def _widen(self) -> None:
        """Now, or when the one that has waited longest has waited long enough."""
        self._widening = None
        while self._waiting and self._waiting[0][0].done():
            self._waiting.popleft()
        if not self._waiting:
            return
        loop = asyncio.get_running_loop()
        left = self._waiting[0][1] + self._patience - loop.time()
        if left <= 0:
            self._width = min(2 * self._width, self._most)
            self._admit()
            left = self._patience
        self._widening = loop.call_later(left, self._widen)
