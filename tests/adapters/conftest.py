"""Time that tests move by hand, and waiting for what the loop does next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.fake_time import FakeTime


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
