"""Runs the chosen tests in the guest, and reports each phase of each test to the host as it ends.

/work/.guest/tests.json: {"tests": [node id, ...], "timeout": seconds a test may take}. Each report is a line
of JSON; the host (lab/vm/pytest_plugin.py) makes test reports of them. Only pytest and the standard library.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import IO, Any

import pytest

REQUEST = Path("/work/.guest/tests.json")
PORT = Path("/dev/virtio-ports/reports")
CONFIGURATION = """[pytest]
addopts = -ra --strict-markers --import-mode=importlib --continue-on-collection-errors
junit_family = xunit1
xfail_strict = true
filterwarnings = error
markers =
  kernel: runs inside the test VM
  full: too long for make test
  systems: what is process 1
  runtime: needs container runtimes
"""


class Reporter:
    """A pytest plugin: only the chosen tests, in the host's order; every report goes to the host."""

    def __init__(self, tests: list[str], out: IO[str]) -> None:
        self._order = {test: position for position, test in enumerate(tests)}
        self._out = out

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep what was chosen."""
        chosen = [item for item in items if item.nodeid in self._order]
        items[:] = sorted(chosen, key=lambda item: self._order[item.nodeid])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module that cannot be imported here."""
        if report.failed:
            self._say(kind="collection", test=report.nodeid, text=report.longreprtext)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins: if the guest hangs, this is the one."""
        self._say(kind="start", test=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase of a test has ended."""
        skip = report.longrepr if report.skipped and isinstance(report.longrepr, tuple) else None
        self._say(
            kind="report",
            test=report.nodeid,
            when=report.when,
            outcome=report.outcome,
            duration=report.duration,
            text="" if skip else report.longreprtext,
            skip=[str(part) for part in skip] if skip else None,
            xfail=getattr(report, "wasxfail", None),
            sections=report.sections if report.failed else [],
            properties=report.user_properties,
        )

    def _say(self, **fields: Any) -> None:
        self._out.write(json.dumps(fields) + "\n")
        self._out.flush()


def main() -> int:
    """Exit status of pytest."""
    request = json.loads(REQUEST.read_text())
    tests: list[str] = request["tests"]
    configuration = Path("/work/.guest/pytest.ini")
    configuration.write_text(CONFIGURATION)
    modules = dict.fromkeys(test.partition("::")[0] for test in tests)
    sys.path.insert(0, "/work")
    os.environ["PYTHONPATH"] = "/work"
    arguments = ["-c", str(configuration), "--rootdir=/work", "-p", "no:cacheprovider", "-v"]
    arguments += [f"--timeout={request['timeout']}", "--junitxml=/results/junit.xml", *modules]
    with PORT.open("w") as out:
        return int(pytest.main(arguments, plugins=[Reporter(tests, out)]))


if __name__ == "__main__":
    sys.exit(main())
