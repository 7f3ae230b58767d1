"""A pod's cgroups, in a scratch cgroup or as plain files, and an enforcer for them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.enforcement.enforcer import Enforcer
from agent.enforcement.originals import Originals
from agent.state import ContainerKey, Running
from kernel import files, hierarchies
from lab.runtimes import cgroups
from lab.runtimes.cgroups import Scratch
from qos.plan.settings import PROCESS, RAISE, SET, Plan, Setting

UID = "0a1b2c3d-0000-4000-8000-000000000001"
ID = "c" * 64
POD = ("kubepods", "burstable", f"pod{UID}")
V1 = ("cpu", "memory", "cpuset", "blkio", "pids")
NEW = {
    "cpu": {"cpu.shares": "1024", "cpu.idle": "0"},
    "memory": {"memory.soft_limit_in_bytes": "9223372036854771712"},
    "pids": {"pids.max": "max"},
}
"""What a new cgroup of plain files has; without cpuset.cpus, so that a plan for it is refused there, too."""


class PlainScratch(Scratch):
    """The same as plain files, which anybody may make. Nothing in them depends on anything else."""

    def make(self, *parts: str) -> Scratch:
        made = super().make(*parts)
        for folder in (parent for up in range(len(parts)) for parent in _up(made, up).folders()):
            for file, text in {**NEW.get(_controller(self, folder), {}), "cgroup.procs": ""}.items():
                if not (folder / file).exists():
                    (folder / file).write_text(f"{text}\n")
        return made

    def remove(self) -> None:
        for folder in self.folders():
            shutil.rmtree(folder)


def _up(here: Scratch, levels: int) -> Scratch:
    return Scratch(above(here.name, levels), here.mounts) if levels else here


def _controller(here: Scratch, folder: Path) -> str:
    return next(name for name, mount in here.mounts.items() if folder.is_relative_to(mount))


class Clock:
    """Time that moves only when a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Rig:
    """A pod with containers, and whoever keeps their settings. Files are read and written as by anybody."""

    def __init__(self, scratch: Scratch, run: Path) -> None:
        self.scratch = scratch
        self.run = run
        self.clock = Clock()
        self.mounts = {
            name: str(scratch.mounts[name]) for name in hierarchies.CONTROLLERS if name in scratch.mounts
        }
        self.enforcer = self.agent()

    def agent(self) -> Enforcer:
        """An agent that has just started."""
        self.enforcer = Enforcer(self.mounts, Originals(self.run), self.run, clock=self.clock)
        return self.enforcer

    def container(
        self, name: str = "app", container_id: str = ID, uid: str = UID, group: str = ""
    ) -> Running:
        """group: what its cgroup is called, its id where that is ""."""
        pod = (*POD[:2], f"pod{uid}", group or container_id)
        return Running(ContainerKey(uid, name), container_id, self.scratch.make(*pod).name)

    def remove(self, path: str, *controllers: str) -> None:
        """A cgroup and what is below it, in all hierarchies or these."""
        mounts = {one: self.scratch.mounts[one] for one in controllers or self.scratch.mounts}
        type(self.scratch)(path, mounts).remove()

    def file(self, path: str, file: str) -> Path:
        return Path(f"{self.mounts[file.partition('.')[0]]}{path}/{file}")

    def read(self, path: str, file: str) -> str:
        return self.file(path, file).read_text().strip()

    def write(self, path: str, file: str, value: object) -> None:
        self.file(path, file).write_text(str(value))


def plan(*settings: tuple[int, str, object]) -> Plan:
    """(level, file, value); above the pod they are raised."""
    return Plan(
        tuple(
            Setting(level, "", "", file, str(value), RAISE if level > 1 else SET, "a test")
            for level, file, value in settings
        )
    )


def of_process(value: int) -> Plan:
    return Plan((Setting(PROCESS, "", "", "oom_score_adj", str(value), SET, "a test"),))


def above(path: str, levels: int) -> str:
    """The cgroup this many levels above."""
    return path.rsplit("/", levels)[0]


def another_writes(file: Path, value: str) -> None:
    """From another process, which has ended when this returns."""
    argv = [sys.executable, "-I", "-S", "-c", _WRITE.format(file=str(file), value=value)]
    subprocess.run(argv, check=True, timeout=60)


_WRITE = "open({file!r}, 'w').write({value!r})"


@pytest.fixture
def scratch() -> Iterator[Scratch]:
    mounts = cgroups.hierarchies(Path("/proc/self/mountinfo").read_text())
    missing = [name for name in V1 if name not in mounts]
    if missing:
        pytest.skip(f"no cgroup v1 hierarchy of {', '.join(missing)} here (tests/kernel has v2)")
    if os.geteuid() != 0:
        pytest.skip("only root makes cgroups")
    with cgroups.scratch("agent") as made:
        yield made


@pytest.fixture
def kernel_rig(scratch: Scratch, tmp_path: Path) -> Rig:
    """For what only a kernel does: it rounds, it refuses, one file changes another."""
    return Rig(scratch, tmp_path)


@pytest.fixture
def plain_rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    # A kernel file takes what is written as the whole; a plain one keeps its tail.
    monkeypatch.setattr(files, "_WRITE", files._WRITE | os.O_TRUNC)
    mounts = {name: tmp_path / "cgroup" / name for name in V1}
    for one in mounts.values():
        (one / "scratch").mkdir(parents=True)
    (tmp_path / "run").mkdir()
    return Rig(PlainScratch("/scratch", mounts), tmp_path / "run")


@pytest.fixture(params=["plain", "kernel"])
def rig(request: pytest.FixtureRequest) -> Rig:
    """Both: on plain files these tests need no rights and no cgroup v1."""
    found: Rig = request.getfixturevalue(f"{request.param}_rig")
    return found
