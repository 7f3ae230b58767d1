"""Every trap of the scheduler-extender protocol has a test that carries its number, or is named as open."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# What each is about: tests/TRAPS.md.
TRAPS = [f"T{number:02d}" for number in range(1, 24)]
_TEST = re.compile(r"^\s*(?:async )?def test_(t\d\d)_", re.MULTILINE)


def carried() -> dict[str, list[str]]:
    """Trap -> the files with tests that carry its number."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for number in set(_TEST.findall(path.read_text())):
            found.setdefault(number.upper(), []).append(str(path.relative_to(ROOT)))
    return found


def open_traps() -> set[str]:
    """Traps that tests/TRAPS.md says are open: `**Open: T12**`."""
    text = (ROOT / "tests" / "TRAPS.md").read_text()
    return {
        trap for line in re.findall(r"\*\*Open: ([^*]*)\*\*", text) for trap in re.findall(r"T\d\d", line)
    }


@pytest.mark.parametrize("trap", TRAPS)
def test_the_trap_has_a_test_or_is_named_as_open(trap):
    assert trap in carried() or trap in open_traps(), (
        f"no test_{trap.lower()}_..., nor open in tests/TRAPS.md"
    )


def test_no_test_carries_a_number_that_no_trap_has():
    assert set(carried()) <= set(TRAPS)


def test_what_is_tested_is_not_called_open():
    assert not open_traps() & set(carried())


def test_the_list_of_traps_is_complete():
    listed = re.findall(r"^\| (T\d\d) \|", (ROOT / "tests" / "TRAPS.md").read_text(), re.MULTILINE)
    assert listed == TRAPS


def test_no_page_that_users_read_names_a_trap_by_its_number():
    folders = ("docs", "manifests", "scheduler-config", "kwok-scenarios", "examples")
    pages = [ROOT / "README.md", *(path for name in folders for path in (ROOT / name).rglob("*.*"))]
    naming = [
        path
        for path in pages
        if path.suffix in (".md", ".yaml") and re.search(r"\bT\d\d\b", path.read_text())
    ]
    assert not naming
