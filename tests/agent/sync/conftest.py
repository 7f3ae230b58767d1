"""Waiting for what the loop and its threads do next."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests import waiting


@pytest.fixture
def eventually() -> Callable[[Callable[[], object]], Awaitable[None]]:
    """Waits for something that typically takes a few milliseconds."""
    return waiting.eventually
