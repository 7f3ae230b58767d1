"""The Makefile lists its targets, and those that the documents name exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TARGETS = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_help_lists_every_target() -> None:
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True)
    listed = re.findall(r"^  ([a-z-]+) ", done.stdout, re.MULTILINE)
    assert sorted(listed) == sorted(set(TARGETS) - {"all"})


@pytest.mark.parametrize("target", ["demo", "test", "test-again", "unit", "check", "test-full", "bench"])
def test_the_targets_people_are_told_of_exist(target: str) -> None:
    assert target in TARGETS


def test_ci_runs_what_the_readme_names() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    assert "make test" in (ROOT / "README.md").read_text()
