"""docs/plan.md, run as it stands: each command succeeds, and what the page shows is what comes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.program

ROOT = Path(__file__).parents[2]
EXAMPLE = "/tmp/j10ce-example"


def commands(page: str) -> Iterator[tuple[str, str]]:
    """(command, output shown under it) of each console block, in order."""
    for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            yield command, shown


def pattern(shown: str) -> re.Pattern[str]:
    """What is shown, where ... stands for anything, and any blanks for any others."""
    words = shown.split()
    return re.compile(r"\s+".join(".*?" if word == "..." else re.escape(word) for word in words), re.DOTALL)


def test_the_page_shows_what_comes(tmp_path: Path) -> None:
    found = list(commands((ROOT / "docs" / "plan.md").read_text()))
    assert len(found) == 6
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for command, shown in found:
        argv = command.replace(EXAMPLE, str(tmp_path / "run")).split()
        done = subprocess.run(
            argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        if shown.strip():
            printed = done.stdout.replace(str(tmp_path / "run"), EXAMPLE).strip()
            assert pattern(shown).fullmatch(printed), f"{command}\n{printed}"


def test_a_page_that_shows_something_else_would_be_found() -> None:
    assert pattern("a ...\nd e").fullmatch("a b c\nd   e")
    assert not pattern("a ...\nd e").fullmatch("a b c\nd x")
    assert not pattern("a b").fullmatch("a b c")


@pytest.mark.parametrize(
    "option", ["--node", "--cgroup", "--driver", "--policy", "--profile", "--run", "--ttl"]
)
def test_the_page_names_each_option(option: str) -> None:
    assert option in (ROOT / "docs" / "plan.md").read_text()
