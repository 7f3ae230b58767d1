"""For all tests: a clock moved by hand, waiting, and property tests that run the same examples each time.

`--hypothesis-profile=thorough` looks for new ones.
"""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import settings

from tests import waiting
from tests.fake_time import FakeTime

settings.register_profile("steady", derandomize=True, database=None, deadline=None)  # machines differ


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("--hypothesis-profile", default=None):
        settings.load_profile("steady")


def pytest_collection_finish() -> None:
    """What the tests are made of is not looked through again: 0.3 s in which no thread carries traffic."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def fake_time() -> FakeTime:
    return FakeTime()


@pytest.fixture
def eventually() -> Callable[..., Awaitable[None]]:
    """eventually(condition): wait until it is true."""
    return waiting.eventually
