"""The wheel, in a virtual environment of its own and used from another folder, starts a control plane."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.cluster, pytest.mark.full, pytest.mark.timeout(900)]


def run(*argv: str | Path, **environ: str) -> str:
    words = [str(word) for word in argv]
    done = subprocess.run(
        words, cwd="/", env=os.environ | environ, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the commands that an ordinary user's installation has."""
    folder = tmp_path_factory.mktemp("wheel")
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        folder,
        ROOT,
    )
    run(sys.executable, "-m", "venv", folder / "venv")
    pip = (folder / "venv" / "bin" / "python", "-m", "pip", "install", "--quiet")
    run(*pip, "-c", ROOT / "constraints.txt", next(folder.glob("*.whl")))
    return folder / "venv" / "bin"


def test_commands_start(programs: Path) -> None:
    assert run(programs / "j10ce", "--version").startswith("j10ce-qos ")
    assert "--kubeconfig" in run(programs / "j10ce-extender", "--help", COLUMNS="120")


@pytest.mark.usefixtures("binaries")
def test_a_cluster_with_its_extender_starts_and_ends(programs: Path, tmp_path: Path) -> None:
    where = {"XDG_STATE_HOME": str(tmp_path)}
    started = json.loads(run(programs / "j10ce", "lab", "up", "--name", "wheel", "-o", "json", **where))
    assert started["components"]["j10ce-extender"] is not None
    run(programs / "j10ce", "lab", "down", "--name", "wheel", **where)
    assert json.loads(run(programs / "j10ce", "lab", "status", "-o", "json", **where)) == []
