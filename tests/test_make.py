"""The Makefile lists its targets; CI's entry ends with how it went. make is played where it would test."""

from __future__ import annotations

import os
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


@pytest.mark.parametrize("target", ["demo", "test", "unit", "check", "test-full", "bench"])
def test_the_targets_people_are_told_of_exist(target: str) -> None:
    assert target in TARGETS


def test_ci_runs_what_the_readme_names() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    assert "make test" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize(
    ("said", "status", "last"),
    [
        ("===== 3 passed in 1.00s =====", 0, "3 passed, 0 failed, 0 skipped"),
        ("== 1 failed, 2 passed in 9.00s (0:00:09) ==", 2, "2 passed, 1 failed, 0 skipped"),
        ("E501 Line too long", 2, "0 passed, 1 failed, 0 skipped"),
        (
            "= 1 failed, 9 passed in 9.0s =\n= 2 passed, 1 skipped, 1 error in 61.5s (0:01:01) =",
            2,
            "11 passed, 2 failed, 1 skipped",
        ),
        ("== 9 passed in 9.00s ==\n== 2 passed in 1.00s ==", 0, "11 passed, 0 failed, 0 skipped"),
        ("== 9 passed in 9.00s ==\n== 2 passed in 1.00s ==", 2, "11 passed, 1 failed, 0 skipped"),
    ],
)
def test_ci_ends_with_the_closing_line(tmp_path: Path, said: str, status: int, last: str) -> None:
    make = tmp_path / "make"
    make.write_text(f"#!/bin/sh\necho '{said}'\necho 'make: *** [test] Error' >&2\nexit {status}\n")
    make.chmod(0o755)
    environ = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    argv = [ROOT / ".ci" / "run"]
    done = subprocess.run(argv, cwd="/", env=environ, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == status
    assert done.stdout.splitlines()[-1] == last
