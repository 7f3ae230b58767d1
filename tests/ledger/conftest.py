"""What the brute-force comparison found is shown at the end of every run that includes it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings

# pytest --hypothesis-profile=thorough tests/ledger: forty times the usual examples.
settings.register_profile("thorough", max_examples=4000)

RESULT = "moves against brute force"


@pytest.fixture
def show(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Adds a line to the summary of the run; a property of the test's report crosses processes."""
    return lambda line: record_property(RESULT, line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    lines = [value for report in reports for name, value in report.user_properties if name == RESULT]
    if lines:
        terminalreporter.section(RESULT)
        for line in sorted(lines):
            terminalreporter.write_line(line)
