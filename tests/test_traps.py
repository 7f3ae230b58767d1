"""Every trap of the scheduler-extender protocol has a test that carries its number, or is named as open."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
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
    """Traps that docs/limits.md says are open: `**Open: T12.**`."""
    text = (ROOT / "docs" / "limits.md").read_text()
    return {
        trap for line in re.findall(r"\*\*Open: ([^*]*)\*\*", text) for trap in re.findall(r"T\d\d", line)
    }


@pytest.mark.parametrize("trap", TRAPS)
def test_the_trap_has_a_test_or_is_named_as_open(trap):
    assert trap in carried() or trap in open_traps(), (
        f"no test_{trap.lower()}_..., nor open in docs/limits.md"
    )


def test_no_test_carries_a_number_that_no_trap_has():
    assert set(carried()) <= set(TRAPS)


def test_what_is_tested_is_not_called_open():
    assert not open_traps() & set(carried())
