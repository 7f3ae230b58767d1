"""How a guest's lines become this session's reports, and what a test says whose guest failed it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.vm.pytest_plugin import LOGS, TESTS, GuestSession, pytest_collection_modifyitems, system_of
from lab.vm.recipe import System, VmError

FIRST, SECOND = "tests/kernel/test_a.py::test_first", "tests/kernel/test_a.py::test_second[x]"


def item(test: str) -> Any:
    path, _, name = test.partition("::")
    return SimpleNamespace(nodeid=test, location=(path, 1, name), stash=pytest.Stash())


def phase(test: str, when: str = "call", outcome: str = "passed", **more: Any) -> str:
    fields = {"kind": "report", "test": test, "when": when, "outcome": outcome, "duration": 0.5, "text": ""}
    fields |= {"skip": None, "xfail": None, "sections": [], "properties": []}
    return json.dumps(fields | more)


def passed(test: str) -> list[str]:
    return [phase(test, when) for when in ("setup", "call", "teardown")]


class PlayedMachine:
    """A guest that says its lines, and has results or crashes."""

    def __init__(self, lines: list[str], crash: str = "") -> None:
        self._lines, self._crash = lines, crash

    def lines(self) -> Iterator[str]:
        yield json.dumps({"kind": "start", "test": FIRST})
        yield from self._lines

    def results(self) -> Path:
        if self._crash:
            raise VmError(self._crash)
        return Path()


def session(lines: list[str], crash: str = "", tests: tuple[str, ...] = (FIRST, SECOND)) -> GuestSession:
    guest = GuestSession(SimpleNamespace(), list(tests))  # type: ignore[arg-type]
    machine = PlayedMachine(lines, crash)

    def boot() -> None:
        guest.booted = True
        guest._machine, guest._lines = machine, machine.lines()  # type: ignore[assignment]

    guest._boot = boot  # type: ignore[method-assign]
    return guest


def outcomes(guest: GuestSession, test: str) -> list[tuple[str | None, str]]:
    return [(report.when, report.outcome) for report in guest.reports(item(test))]


ALL_PASSED = [("setup", "passed"), ("call", "passed"), ("teardown", "passed")]


def test_each_test_gets_its_own_reports() -> None:
    guest = session([*passed(FIRST), *passed(SECOND)])
    assert outcomes(guest, FIRST) == ALL_PASSED
    assert outcomes(guest, SECOND) == ALL_PASSED


def test_a_failure_has_the_guests_traceback_output_and_place() -> None:
    failed = phase(FIRST, outcome="failed", text="E  assert 0", sections=[["Captured stdout call", "seen"]])
    guest = session([phase(FIRST, "setup"), failed, phase(FIRST, "teardown")])
    report = guest.reports(item(FIRST))[1]
    assert report.longreprtext == "E  assert 0"
    assert report.capstdout == "seen"
    assert ("Guest", f"console and logs: {LOGS}") in report.sections


def test_a_skip_has_its_reason_and_place() -> None:
    skip = ["/work/tests/kernel/test_a.py", "7", "Skipped: no disk"]
    guest = session([phase(FIRST, "setup", "skipped", skip=skip), phase(FIRST, "teardown")])
    report = guest.reports(item(FIRST))[0]
    assert report.longrepr == ("tests/kernel/test_a.py", 7, "Skipped: no disk")


def test_properties_come_along() -> None:
    guest = session([phase(FIRST, "teardown", properties=[["CPUs", 0.3]])])
    assert guest.reports(item(FIRST))[0].user_properties == [("CPUs", 0.3)]


def test_a_crash_fails_the_test_that_ran_and_all_after_it() -> None:
    guest = session([*passed(FIRST), phase(SECOND, "setup")], "Kernel panic")
    assert outcomes(guest, FIRST) == ALL_PASSED
    assert outcomes(guest, SECOND) == [("setup", "passed"), ("call", "failed")]
    assert guest.reports(item(SECOND))[0].longreprtext == "Kernel panic"


def test_a_guest_that_passes_all_and_then_crashes_fails_its_last_test() -> None:
    guest = session([*passed(FIRST), *passed(SECOND)], "Kernel panic")
    assert outcomes(guest, FIRST) == ALL_PASSED
    assert outcomes(guest, SECOND)[-1] == ("call", "failed")


def test_a_module_that_the_guest_cannot_import_is_told() -> None:
    note = {"kind": "collection", "test": "tests/kernel/test_a.py", "text": "No module named 'hypothesis'"}
    guest = session([json.dumps(note)], tests=(FIRST,))
    (report,) = guest.reports(item(FIRST))
    assert (report.outcome, report.longreprtext) == ("failed", "No module named 'hypothesis'")


def test_a_test_the_guest_left_out_fails() -> None:
    guest = session(passed(SECOND))
    assert "did not run this test" in guest.reports(item(FIRST))[0].longreprtext


def test_a_machine_that_cannot_be_booted_fails_every_test() -> None:
    guest = session([])

    def boot() -> None:
        raise VmError("the test VM needs mmdebstrap")

    guest._boot = boot  # type: ignore[method-assign]
    for test in (FIRST, SECOND):
        assert "needs mmdebstrap" in guest.reports(item(test))[0].longreprtext


class CollectedItem:
    """What the plugin reads of a collected test."""

    def __init__(self, path: Path, **parameters: object) -> None:
        self.path, self.callspec = path, SimpleNamespace(params=parameters)
        self.marks: list[object] = []

    def add_marker(self, mark: object) -> None:
        self.marks.append(mark)


def test_tests_of_one_system_follow_each_other_and_others_stay_where_they_are() -> None:
    ours, elsewhere = TESTS / "test_a.py", Path("/elsewhere/test_b.py")
    first, other = CollectedItem(ours, system="systemd"), CollectedItem(elsewhere)
    second, third = CollectedItem(ours, load=1), CollectedItem(ours, system="plain")
    items: list[Any] = [first, other, second, third]
    pytest_collection_modifyitems(items)
    assert items == [second, other, third, first]
    assert [system_of(item) for item in items if item is not other] == [
        *(System.PLAIN, System.PLAIN, System.SYSTEMD)
    ]
    assert [bool(item.marks) for item in items] == [True, False, True, True]


def test_each_system_has_logs_of_its_own() -> None:
    assert GuestSession(SimpleNamespace(), [FIRST]).logs == LOGS  # type: ignore[arg-type]
    assert GuestSession(SimpleNamespace(), [FIRST], System.SYSTEMD).logs != LOGS  # type: ignore[arg-type]
