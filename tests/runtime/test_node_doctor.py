"""`j10ce node doctor` on this machine, as a user runs it."""

from __future__ import annotations

import json
import socket
import subprocess
import sysconfig
from pathlib import Path

from lab.runtimes.cgroups import Scratch

J10CE = Path(sysconfig.get_path("scripts")) / "j10ce"


def doctor(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [J10CE, "node", "doctor", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_this_machine(scratch: Scratch, tmp_path: Path) -> None:
    """cgroup v1: CPU floors work, memory floors do not, and the exit code says that a floor is not kept."""
    path = tmp_path / "nri.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as runtime:
        runtime.bind(str(path))
        runtime.listen()
        done = doctor("--nri-socket", path, "--address", "127.0.0.1:1", "-o", "json")
    found = {one["subject"]: one for one in json.loads(done.stdout)}
    assert done.returncode == 1
    assert found["CPU floors"]["level"] == "works"
    assert found["memory floors"]["level"] == "broken"
    assert found["NRI"]["level"] == "works"
    assert found["drift"]["level"] == "works"
    assert found["agent"]["level"] == "limited"
    assert found["hook: installed"]["level"] in ("works", "limited")


def test_in_plain_words(scratch: Scratch, tmp_path: Path) -> None:
    done = doctor("--nri-socket", tmp_path / "none.sock", "--address", "127.0.0.1:1")
    assert "CPU floors" in done.stdout
    assert "[plugins.'io.containerd.nri.v1.nri']" in done.stdout
    assert "no agent answers here" in done.stdout
    assert not done.stderr
