"""Time that tests move by hand, and waiting for what the loop does next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest


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


@pytest.fixture
def fake_time() -> FakeTime:
    return FakeTime()


@pytest.fixture
def eventually() -> Callable[[Callable[[], object]], Awaitable[None]]:
    """Gives the loop turns, not time, until something is true."""

    async def wait(true: Callable[[], object]) -> None:
        for _ in range(5000):
            if true():
                return
            await asyncio.sleep(0)
        raise AssertionError("it did not come true")

    return wait
