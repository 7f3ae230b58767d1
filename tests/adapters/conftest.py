"""Waiting for what the loop does next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest


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
