"""Property tests run the same examples each time; `--hypothesis-profile=thorough` looks for new ones."""

from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("steady", derandomize=True, database=None, deadline=None)  # machines differ


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("--hypothesis-profile", default=None):
        settings.load_profile("steady")
