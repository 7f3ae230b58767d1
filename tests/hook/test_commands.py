"""`j10ce hook install && j10ce hook check && j10ce hook uninstall`, below a scratch root and for real."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hook import commands
from hook.installation import check
from hook.installation.check import Attempt, Reading
from hook.installation.places import Places
from lab.runtimes import cgroups
from tests.hook.own_time import largest_budget

pytestmark = pytest.mark.program

J10CE = str(Path(sys.executable).with_name("j10ce"))
TOUCHED = (
    "/usr/libexec",
    "/usr/share/containers",
    "/etc/containers",
    "/etc/containerd",
    "/run/j10ce",
)
LOCKS = Path("/dev/shm/libpod*")


def j10ce(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([J10CE, "hook", *words], capture_output=True, text=True, check=False, timeout=240)


def snapshot(*folders: Path) -> dict[str, tuple[int, int, str]]:
    """Mode, owner and digest by path."""
    found = {}
    for folder in folders:
        for path in [folder, *folder.rglob("*")] if folder.exists() else []:
            status = path.lstat()
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            found[str(path)] = (status.st_mode, status.st_uid, hashlib.sha256(content).hexdigest())
    return found


def touched() -> dict[str, tuple[int, int, str]]:
    """What of this machine an installation or a check could change."""
    return snapshot(*map(Path, TOUCHED), *LOCKS.parent.glob(LOCKS.name))


def cgroups_of_ours() -> set[Path]:
    mounts = cgroups.hierarchies(Path("/proc/self/mountinfo").read_text()).values()
    return {path for mount in mounts for path in mount.glob("*j10ce-check*")}


def check_finds_it_working(root: str) -> None:
    with largest_budget(Places(Path(root))):
        done = j10ce("check", "--root", root, "-o", "json")
    attempts = {attempt["runtime"]: attempt for attempt in json.loads(done.stdout)["runtimes"]}
    assert done.returncode == 0, done.stdout + done.stderr
    assert attempts["runc"]["works"]
    assert [a for name, a in attempts.items() if name.startswith("podman") and a["works"]]
    assert all(attempt["works"] for attempt in attempts.values() if attempt["able"])


@pytest.mark.runtime
def test_below_a_scratch_root(tmp_path: Path) -> None:
    root = tmp_path / "node"
    before = snapshot(tmp_path)
    done = j10ce("install", "--root", str(root))
    assert (done.returncode, done.stderr) == (0, "")
    assert "Next: j10ce hook check" in done.stdout
    assert j10ce("status", "--root", str(root)).returncode == 0
    check_finds_it_working(str(root))
    assert cgroups_of_ours() == set()
    assert j10ce("uninstall", "--root", str(root)).returncode == 0
    assert snapshot(tmp_path) == before


@pytest.fixture
def bare() -> Iterator[None]:
    """This machine, without the hook; it is taken off again whatever happens."""
    if Places().home.exists() or Places().definition.exists() or Places().config.exists():
        pytest.skip("the hook is installed on this machine already, and is not ours to remove")
    yield
    assert j10ce("uninstall").returncode == 0


@pytest.mark.runtime
def test_for_real(bare: None) -> None:
    before = touched()
    assert j10ce("status").returncode == 1
    done = j10ce("install", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["definition"] == "/usr/share/containers/oci/hooks.d/j10ce.json"
    assert j10ce("install").stdout.count("Nothing was changed") == 1
    assert j10ce("status").returncode == 0
    check_finds_it_working("/")
    done = j10ce("uninstall", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kept"] == []
    assert touched() == before
    assert cgroups_of_ours() == set()


@pytest.mark.runtime
def test_check_says_why_it_does_not_work(tmp_path: Path) -> None:
    """A hook that cannot write its marker or its values: damaged code, which fails open."""
    root = tmp_path / "node"
    assert j10ce("install", "--root", str(root)).returncode == 0
    places = Places(root)
    for path in [*places.home.rglob("*.bundle"), *places.home.rglob("*/kernel/*.py")]:
        path.unlink()
    done = j10ce("check", "--root", str(root), "--runtime", "runc")
    assert done.returncode == 1
    assert "runc: DOES NOT WORK" in done.stdout
    assert "the hook did not run, or left no word" in done.stdout
    assert j10ce("uninstall", "--root", str(root)).returncode == 0


@pytest.mark.runtime
def test_check_leaves_podmans_locks_alone(tmp_path: Path) -> None:
    """They are everybody's: here nobody can write them."""
    root = tmp_path / "node"
    assert j10ce("install", "--root", str(root)).returncode == 0
    script = 'mount -t tmpfs -o ro none /dev/shm && exec "$@"'
    words = [J10CE, "hook", "check", "--root", str(root), "--runtime", "podman"]
    argv = ["unshare", "--mount", "sh", "-c", script, "sh", *words]
    with largest_budget(Places(root)):
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert j10ce("uninstall", "--root", str(root)).returncode == 0


def test_check_says_what_it_did_not_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("containerd", "crio"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert list(check.untried()) == ["containerd", "crio"]
    assert all("only a pod shows" in why for why in check.untried().values())


def test_check_without_an_installation(tmp_path: Path) -> None:
    done = j10ce("check", "--root", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [("check", "--runtime", "docker"), ("install", "--hooks-dir", "hooks.d"), ("install", "--when", "x")],
)
def test_wrong_usage(words: tuple[str, ...]) -> None:
    assert j10ce(*words).returncode == 2


@pytest.mark.parametrize("command", ["install", "uninstall", "status", "check"])
def test_help(command: str) -> None:
    done = j10ce(command, "--help")
    assert done.returncode == 0
    assert "--output" in done.stdout


@pytest.mark.parametrize(
    ("attempt", "said"),
    [
        (
            Attempt("runc", True, (Reading("cpu.shares", "1037", "1037"),)),
            "runc: works: cpu.shares was 1037 before the container's first instruction",
        ),
        (
            Attempt("runc", True, (Reading("cpu.shares", "1037", "2"),), "no such file"),
            "runc: DOES NOT WORK: cpu.shares was 2 instead of 1037; no such file",
        ),
        (
            Attempt("crun", False, (), "cgroups in hybrid mode not supported"),
            "crun: starts no container here, with or without the hook: cgroups in hybrid mode not supported",
        ),
    ],
)
def test_plain_words(attempt: Attempt, said: str) -> None:
    assert commands.sentence(attempt) == said
