"""Runs the tests of tests/kernel in the test VM, from the host's pytest: one boot a session and system.

tests/kernel/conftest.py imports these hooks: `pytest -m kernel -k memory` works as anywhere else. The guest
streams its reports, and each becomes this session's report of that test.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from rich.console import Console

from lab.only_one import only_one
from lab.progress import build_progress
from lab.vm import extras, image, payload, recipe
from lab.vm.machine import Machine
from lab.vm.recipe import System

TESTS = payload.REPOSITORY / "tests" / "kernel"
LOGS = payload.REPOSITORY / "build" / "kernel"
"""Console, junit and logs of the last run; systemd's are in kernel-systemd beside it."""

_SECONDS_A_TEST = 600
_KEY = pytest.StashKey[dict[System, "GuestSession"]]()


class GuestSession:
    """The VM of a pytest session for one system: booted when the first report is asked for."""

    def __init__(self, config: pytest.Config, tests: list[str], system: System = System.PLAIN) -> None:
        self._config = config
        self._tests = tests
        self._system = system
        self.logs = LOGS if system is System.PLAIN else LOGS.with_name(f"{LOGS.name}-{system.name.lower()}")
        self._stack = contextlib.ExitStack()
        self._machine: Machine | None = None
        self._lines: Iterator[str] = iter(())
        self._reports: dict[str, list[pytest.TestReport]] = defaultdict(list)
        self._notes: dict[str, str] = {}
        self.booted = False

    def reports(self, item: pytest.Item) -> list[pytest.TestReport]:
        """Reports of a test, all its phases; a failed one that says why when the guest sent none."""
        test = item.nodeid
        try:
            why = self._run(test)
        except Exception as error:  # whatever keeps the guest from its work fails its tests, not the session
            why = str(error) or repr(error)
        found = self._reports.pop(test, [])
        for report in found:
            report.nodeid = item.nodeid
        return [*found, _failed(item, why)] if why else found

    def _run(self, test: str) -> str:
        """Read on until the test has ended; why it has not, "" if it has."""
        if not self.booted:
            self._boot()
        if self._machine is None:
            return "the test VM could not be booted: the first of its tests says why"
        self._read_until_done(test)
        reports = self._reports.get(test, [])
        ended = bool(reports) and reports[-1].when == "teardown"
        if not ended or test == self._tests[-1]:
            try:
                self._machine.results()  # a guest that does not come to its end fails its last test, too
            finally:
                self.close()
        if ended:
            return ""
        return self._notes.get(test.partition("::")[0], "the guest did not run this test: see its output")

    def close(self) -> None:
        """End the guest if it still runs, and let the next one run."""
        self._stack.close()

    def _boot(self) -> None:
        self.booted = True
        with (
            self._shown() as console,
            build_progress(console, introduction=image.INTRODUCTION, unit="steps") as tell,
        ):
            prepared = image.provide(os.environ, tell)
            brought = extras.of(self._tests, os.environ, tell)
            lock = recipe.cache_folder(os.environ).parent / ".vm"
            waiting = "another test VM runs; waiting for its end"
            self._stack.enter_context(
                only_one(lock, waiting, lambda what, _done, _total: console.print(what))
            )
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir(parents=True)
        request = json.dumps({"tests": self._tests, "timeout": _SECONDS_A_TEST})
        command = "exec python3 -B lab/vm/guest/run_tests.py\n"
        tar = self.logs / "payload.tar"
        self._stack.callback(tar.unlink)
        payload.write(tar, {payload.COMMAND: command, ".guest/tests.json": request}, brought)
        self._machine = self._stack.enter_context(Machine(prepared, self.logs, tar, system=self._system))
        self._lines = self._machine.lines()

    @contextlib.contextmanager
    def _shown(self) -> Iterator[Console]:
        """A console past pytest's capturing: preparing takes a minute, and a user wants to see it."""
        capture = self._config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            yield Console(stderr=True)

    def _read_until_done(self, test: str) -> None:
        for line in self._lines:
            fields: dict[str, Any] = json.loads(line)
            if fields["kind"] == "collection":
                self._notes[fields["test"]] = fields["text"]
            elif fields["kind"] == "report":
                report = _report(fields, self.logs)
                self._reports[report.nodeid].append(report)
                if report.nodeid == test and report.when == "teardown":
                    return


def _report(fields: dict[str, Any], logs: Path) -> pytest.TestReport:
    """The guest's report as one of this session."""
    path = fields["test"].partition("::")[0]
    longrepr: Any = fields["text"] or None
    if fields["skip"]:
        file, line, reason = fields["skip"]
        longrepr = (file.removeprefix("/work/"), int(line), reason)
    sections = [tuple(section) for section in fields["sections"]]
    if fields["outcome"] == "failed":
        sections.append(("Guest", f"console and logs: {logs}"))
    report = pytest.TestReport(
        nodeid=fields["test"],
        location=(path, None, fields["test"].partition("::")[2].replace("::", ".")),
        keywords={},
        outcome=fields["outcome"],
        longrepr=longrepr,
        when=fields["when"],
        sections=sections,
        duration=fields["duration"],
        user_properties=[tuple(pair) for pair in fields["properties"]],
    )
    if fields["xfail"] is not None:
        report.wasxfail = fields["xfail"]
    return report


def _failed(item: pytest.Item, why: str, when: Literal["call", "teardown"] = "call") -> pytest.TestReport:
    return pytest.TestReport(
        nodeid=item.nodeid, location=item.location, keywords={}, outcome="failed", longrepr=why, when=when
    )


def system_of(item: pytest.Item) -> System:
    """The system a test runs under: its parameter `system`, else the plain one."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return System[str(parameters.get("system", System.PLAIN.name)).upper()]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of the folder carry the marker; the guest watches the time (machine.Patience).

    Those of one system follow each other, in the places that all of them had.
    """
    ours = [place for place, item in enumerate(items) if TESTS in item.path.parents]
    systems = list(System)
    in_order = sorted((items[place] for place in ours), key=lambda item: systems.index(system_of(item)))
    for place, item in zip(ours, in_order, strict=True):
        items[place] = item
        item.add_marker("kernel")
        item.add_marker(pytest.mark.timeout(0))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note which tests each guest has to run, after -k and -m."""
    tests: dict[System, list[str]] = defaultdict(list)
    for item in session.items:
        if TESTS in item.path.parents:
            tests[system_of(item)].append(item.nodeid)
    guests = {system: GuestSession(session.config, names, system) for system, names in tests.items()}
    session.config.stash[_KEY] = guests


def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Take a test's reports from the guest, in place of running it here."""
    if TESTS not in item.path.parents:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in item.config.stash[_KEY][system_of(item)].reports(item):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End the guests, also after -x or Ctrl-C."""
    for guest in session.config.stash.get(_KEY, {}).values():
        guest.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name the folders with console, junit and logs."""
    for guest in config.stash.get(_KEY, {}).values():
        if guest.booted:
            terminalreporter.write_line(f"test VM: console, junit and logs are in {guest.logs}")
