"""Scratch cgroups in this machine's v1 hierarchies, and processes in them. All is gone after each test."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kernel import hierarchies
from kernel.target import Target
from tests.pythons import VERSIONS, python_of

CONTROLLERS = ("cpu", "memory", "cpuset", "pids", "blkio")
_numbers = itertools.count()


class Scratch:
    """One cgroup for a test, with the same path in every v1 hierarchy, and what is below it."""

    def __init__(self, mounts: dict[str, str], name: str) -> None:
        self.mounts = mounts
        self.path = f"/{name}"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.make("")

    def folder(self, controller: str, path: str = "") -> Path:
        return Path(self.mounts[controller]) / (self.path + path).lstrip("/")

    def make(self, path: str) -> str:
        """The cgroup below ours in every hierarchy, with its parent's CPUs; its path from the root."""
        for controller in CONTROLLERS:
            self.folder(controller, path).mkdir(parents=True)
        for file in ("cpuset.cpus", "cpuset.mems"):
            have = (self.folder("cpuset", path).parent / file).read_text()
            (self.folder("cpuset", path) / file).write_text(have)
        return self.path + path

    def file(self, name: str, path: str = "") -> Path:
        return self.folder(name.split(".")[0], path) / name

    def text(self, name: str, path: str = "") -> str:
        return self.file(name, path).read_text().strip()

    def target(self, path: str) -> Target:
        return Target(self.mounts, dict.fromkeys(CONTROLLERS, self.path + path))

    def state(self) -> dict[str, str]:
        """Every setting of every cgroup here: what must be the same after a refusal."""
        return {
            str(file): file.read_text()
            for controller in CONTROLLERS
            for file in sorted(self.folder(controller).rglob("*"))
            if file.name.startswith((f"{controller}.", f"{controller}.throttle")) and _is_setting(file)
        }

    def run(self, argv: Sequence[str], path: str) -> subprocess.Popen[bytes]:
        """A process in the cgroup, with a pipe to its stdin and from its stdout."""
        child = subprocess.Popen(
            [sys.executable, "-I", "-c", _GATE, *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.processes.append(child)
        for controller in CONTROLLERS:
            (self.folder(controller, path) / "cgroup.procs").write_text(str(child.pid))
        assert child.stdin is not None
        child.stdin.write(b"\n")
        child.stdin.flush()
        return child

    def remove(self) -> None:
        for child in self.processes:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
        for controller in CONTROLLERS:
            for folder, _, _ in os.walk(self.folder(controller), topdown=False):
                _remove(Path(folder))


_GATE = "import os, sys; sys.stdin.buffer.raw.read(1); os.execvp(sys.argv[1], sys.argv[1:])"
_SETTINGS = ("shares", "idle", "_us", "limit_in_bytes", "cpus", "mems", "max", "_device", "weight")


def _is_setting(file: Path) -> bool:
    return file.name.endswith(_SETTINGS) and "kmem" not in file.name and ".rt_" not in file.name


def _remove(folder: Path) -> None:
    deadline = time.monotonic() + 30
    while folder.exists():
        try:
            folder.rmdir()
        except OSError:  # its last process is not quite gone
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


@pytest.fixture
def scratch() -> Iterator[Scratch]:
    """A scratch cgroup in the v1 hierarchies."""
    mounts = hierarchies.mounts(Path("/proc/self/mountinfo").read_text())
    missing = [name for name in CONTROLLERS if name not in mounts]
    if missing:
        pytest.skip(f"no cgroup v1 hierarchy of {', '.join(missing)} here (v2 is tested in the VM)")
    if os.geteuid() != 0:
        pytest.skip("only root makes cgroups")
    made = Scratch(mounts, f"j10ce-test-{os.getpid()}-{next(_numbers)}")
    try:
        yield made
    finally:
        made.remove()


@pytest.fixture(params=VERSIONS)
def python(request: pytest.FixtureRequest) -> str:
    """Each Python that the hook may meet on a node."""
    found = python_of(request.param)
    if found is None:
        pytest.skip(f"there is no Python {request.param} on this machine")
    return str(found)
