"""Time that tests move by hand."""

from __future__ import annotations

import asyncio


class FakeTime:
    """A clock that only sleeping moves; `slept` are the pauses asked for."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)
