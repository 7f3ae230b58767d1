"""A pod's cgroups for real, in a scratch cgroup, and an enforcer for them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.enforcement.enforcer import Enforcer
from agent.enforcement.originals import Originals
from agent.state import ContainerKey, Running
from kernel import hierarchies
from lab.runtimes import cgroups
from lab.runtimes.cgroups import Scratch
from qos.plan.settings import PROCESS, RAISE, SET, Plan, Setting

UID = "0a1b2c3d-0000-4000-8000-000000000001"
ID = "c" * 64
POD = ("kubepods", "burstable", f"pod{UID}")
V1 = ("cpu", "memory", "cpuset", "blkio", "pids")


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
        self.mounts = hierarchies.mounts(Path("/proc/self/mountinfo").read_text())
        self.enforcer = self.agent()

    def agent(self) -> Enforcer:
        """An agent that has just started."""
        self.enforcer = Enforcer(self.mounts, Originals(self.run), self.run, clock=self.clock)
        return self.enforcer

    def container(self, name: str = "app", container_id: str = ID, uid: str = UID) -> Running:
        pod = (*POD[:2], f"pod{uid}", container_id)
        return Running(ContainerKey(uid, name), container_id, self.scratch.make(*pod).name)

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
def rig(scratch: Scratch, tmp_path: Path) -> Rig:
    return Rig(scratch, tmp_path)
