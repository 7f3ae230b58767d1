"""What is learned of a running containerd: where its configuration is, and what that says."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hook.installation import containerd, daemon, runtimes
from hook.installation.daemon import Configuration
from hook.installation.errors import InstallationError
from hook.installation.install import Wishes, install
from hook.installation.places import Places
from hook.installation.status import Severity, status
from hook.installation.uninstall import uninstall
from lab import node_programs
from tests.waiting import until

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="the hook is root's to install")
NRI = "[plugins.'io.containerd.nri.v1.nri']\ndisable = {}\n"


@pytest.fixture
def ours_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only those of this machine's containerds whose configuration is the test's."""
    every = daemon.running
    monkeypatch.setattr(
        daemon, "running", lambda: [one for one in every() if one.file.is_relative_to(tmp_path)]
    )


@contextmanager
def process_named_containerd(folder: Path, *words: str) -> Iterator[int]:
    """A process of root's, whose name and words are containerd's. It reads its stdin until that ends."""
    program = folder / "containerd"
    if not program.exists():
        shutil.copy("/bin/cat", program)
    argv = [str(program), "-", *words]
    environment = {"POSIXLY_CORRECT": "1"}  # no options behind a file's name
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder, env=environment
    ) as process:
        cmdline = Path(f"/proc/{process.pid}/cmdline")  # empty for a moment after the exec
        until(lambda: cmdline.read_bytes().startswith(bytes(program)), "its name is to be seen")
        yield process.pid


@pytest.mark.parametrize(
    ("words", "file"),
    [
        ([], "/etc/containerd/config.toml"),
        (["-c", "/a.toml"], "/a.toml"),
        (["--log-level", "info", "--config", "/a.toml", "-a", "/x"], "/a.toml"),
        (["--config=/a.toml"], "/a.toml"),
        (["-c=a.toml"], "a.toml"),
        (["-c"], ""),
    ],
)
def test_the_option(words: list[str], file: str) -> None:
    found = daemon._option(["containerd", *words])
    assert (found or ("/etc/containerd/config.toml" if not words else "")) == file


@pytest.mark.parametrize(
    ("text", "on"),
    [
        (NRI.format("false"), True),
        (NRI.format("true"), False),
        ("disabled_plugins = ['io.containerd.nri.v1.nri']\n" + NRI.format("false"), False),
        ("version = 2\n", None),
        ("not = [toml", None),
    ],
)
def test_nri(text: str, on: bool | None) -> None:
    assert Configuration("x", text, daemon._parsed(text)).nri_is_on is on


@pytest.mark.runtime
@ROOT
def test_a_running_one(tmp_path: Path) -> None:
    """Its `config dump` does not work: then what its file says counts."""
    (tmp_path / "own.toml").write_text(NRI.format("false"))
    with process_named_containerd(tmp_path, "-c", "own.toml") as pid:
        (found,) = (one for one in daemon.running() if one.pid == pid)
        assert found.file == tmp_path / "own.toml"
        (read,) = daemon.configurations([found])
        assert (read.text, read.nri_is_on) == (NRI.format("false"), True)
        (tmp_path / "containerd").chmod(0o757)  # anybody's: it shall not be run as root
        assert pid not in [one.pid for one in daemon.running()]


@pytest.mark.runtime
def test_the_real_one_tells_all_that_it_imports(tmp_path: Path) -> None:
    programs = node_programs.find(os.environ)
    if programs is None:
        pytest.skip("containerd is not built here: `make runtimes` builds it")
    (tmp_path / "more.toml").write_text("version = 3\n" + NRI.format("true"))
    file = tmp_path / "config.toml"
    file.write_text(f"version = 3\nimports = ['{tmp_path}/more.toml']\n")
    found = daemon.Daemon(1, programs / "containerd", ("containerd",), file)
    (read,) = daemon.configurations([found])
    assert read.nri_is_on is False
    assert "base_runtime_spec" in read.text


@pytest.mark.runtime
@ROOT
def test_uninstall_heeds_a_configuration_elsewhere(tmp_path: Path) -> None:
    """As k3s has it."""
    places = Places(tmp_path / "node")
    install(places, Wishes())
    places.base_spec.parent.mkdir(parents=True, exist_ok=True)
    places.base_spec.write_text("{}")
    (tmp_path / "own.toml").write_text(containerd.snippet(places, (2, 1, 0)))
    with process_named_containerd(tmp_path, "--config", str(tmp_path / "own.toml")):
        with pytest.raises(InstallationError, match=r"own\.toml .*Nothing was changed"):
            uninstall(places)
        assert places.base_spec.exists()
    uninstall(places)
    assert not places.base_spec.exists()


def test_what_cannot_be_seen_is_not_claimed(tmp_path: Path) -> None:
    """As for anyone but root, who may not look at root's processes."""
    places = Places(tmp_path)
    places.below(containerd.PLUGINS).mkdir(parents=True)
    (places.below(containerd.PLUGINS) / "10-hook-injector").write_text("")
    in_use, text = containerd.by_nri(places, []) or (True, "")
    assert (in_use, "could be asked" in text) == (False, True)


@pytest.mark.runtime
@ROOT
@pytest.mark.usefixtures("ours_alone")
@pytest.mark.parametrize(
    ("nri", "severity", "said"),
    [
        ("", Severity.NOTE, "is not running"),
        (NRI.format("true"), Severity.NOTE, "NRI is off"),
        (NRI.format("false"), Severity.NOTE, "is not running"),
    ],
)
def test_status_claims_nothing_of_nri(tmp_path: Path, nri: str, severity: Severity, said: str) -> None:
    places = Places(tmp_path / "node")
    install(places, Wishes())
    plugin = places.below(containerd.PLUGINS) / "10-hook-injector"
    plugin.parent.mkdir(parents=True)
    plugin.write_text("")
    (tmp_path / "own.toml").write_text(f"version = 2\n{nri}")
    with process_named_containerd(tmp_path, "-c", str(tmp_path / "own.toml")):
        found = [(fact.severity, fact.text) for fact in status(places) if fact.name == "containerd by NRI"]
    assert found[0][0] is severity
    assert said in found[0][1]


@pytest.mark.runtime
@ROOT
@pytest.mark.usefixtures("ours_alone")
def test_status_says_that_one_off_path_knows_no_hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """k3s' is on nobody's PATH."""
    places = Places(tmp_path / "node")
    install(places, Wishes())
    (tmp_path / "own.toml").write_text("version = 2\n")
    monkeypatch.setattr(runtimes, "find", lambda *_: [])
    with process_named_containerd(tmp_path, "-c", str(tmp_path / "own.toml")):
        found = [(fact.severity, fact.text) for fact in status(places) if fact.name == "containerd"]
    assert [(severity, "starts containers without the hook" in text) for severity, text in found] == [
        (Severity.NOTE, True)
    ]
