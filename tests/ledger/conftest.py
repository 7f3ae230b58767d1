"""What the brute-force comparison found is shown at the end of every run that includes it."""

from __future__ import annotations

import pytest
from hypothesis import settings

# pytest --hypothesis-profile=thorough tests/ledger: forty times the usual examples.
settings.register_profile("thorough", max_examples=4000)

RESULTS = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[RESULTS] = []


@pytest.fixture
def show(request: pytest.FixtureRequest):
    """Adds a line to the summary of the run."""
    return request.config.stash[RESULTS].append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = config.stash.get(RESULTS, [])
    if lines:
        terminalreporter.section("moves against brute force")
        for line in lines:
            terminalreporter.write_line(line)
