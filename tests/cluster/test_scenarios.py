"""Every scenario of kwok-scenarios holds on a real control plane, run and judged by `j10ce scenario run`."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "kwok-scenarios"
J10CE = Path(sysconfig.get_path("scripts")) / "j10ce"

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

LONG = {
    "10-thousand-nodes",
    "26-autoscaler",
    "12b-owners-crash-strict",
    "12c-owners-crash-without-bind",
    "34-three-teams-day",
}
"""In make test-full: more than two minutes, a variant of one that is always run, programs of its own, a day
that does not wait."""


def scenario(file: Path) -> object:
    return pytest.param(file, id=file.stem, marks=[pytest.mark.full] if file.stem in LONG else [])


@pytest.mark.usefixtures("binaries")
@pytest.mark.parametrize("file", [scenario(file) for file in sorted(FOLDER.glob("*.yaml"))])
def test_scenario_holds(file: Path) -> None:
    done = subprocess.run(
        [J10CE, "scenario", "run", file], capture_output=True, text=True, timeout=850, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
