"""docs/quickstart.md, run as it stands: each command succeeds, and what the page shows is what comes."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import cluster as lab_cluster
from lab.binaries import Binaries

ROOT = Path(__file__).parents[2]
AGE = re.compile(r"\s+\S+$")
MADE_ALREADY = ("make ", ". .venv/")
"""The environment that this test runs in is what those commands make."""

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def commands(page: str) -> Iterator[tuple[str, str]]:
    """(command, output shown under it) of each console block, in order."""
    for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            yield command, shown.strip()


def without_age(table: str) -> list[str]:
    lines = [AGE.sub("", line) if len(line.split()) > 5 else line for line in table.strip().splitlines()]
    return [" ".join(line.split()) for line in lines]


def test_the_quickstart_works(binaries: Binaries) -> None:
    name = f"quickstart-{secrets.token_hex(3)}"
    page = (ROOT / "docs" / "quickstart.md").read_text().replace("--name quickstart", f"--name {name}")
    found = [(command, shown) for command, shown in commands(page) if not command.startswith(MADE_ALREADY)]
    mark = f"end of a command {secrets.token_hex(4)}"
    script = "\n".join(f"{command}\necho; echo {mark!r}" for command, _ in found)
    environment = {
        **os.environ,
        "J10CE_BIN": str(binaries.kubectl.parent) if binaries.kubectl else "",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    try:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=800,
        )
    finally:
        if any(one.name == name for one in lab_cluster.clusters()):
            lab_cluster.down(name)
    printed = done.stdout.split(f"\n{mark}\n")
    assert done.returncode == 0, f"{found[len(printed) - 1][0]}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    for (command, shown), output in zip(found, printed, strict=False):
        if shown:
            assert without_age(output) == without_age(shown), command
