"""docs/agent.md shows what the doctor prints on this machine."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from lab.runtimes.cgroups import Scratch, is_v2

PAGE = Path(__file__).parents[2] / "docs" / "agent.md"


def test_the_doctors_words(scratch: Scratch) -> None:
    if is_v2(scratch.mounts):
        pytest.skip("the page shows cgroup v1")
    (shown,) = re.findall(
        r"^\$ j10ce (node doctor --address .*?)```", PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
    command, _, printed = shown.partition("\n")
    j10ce = Path(sysconfig.get_path("scripts")) / "j10ce"
    done = subprocess.run([j10ce, *command.split()], capture_output=True, text=True, timeout=60, check=False)
    words = [".*?" if word == "..." else re.escape(word) for word in printed.split()]
    assert re.search(r"\s+".join(words), done.stdout, re.DOTALL), done.stdout
