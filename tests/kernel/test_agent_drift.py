"""The agent's enforcement on cgroup v2: what others change is put right at once, and remembered."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.enforcement.drift import DriftWatch
from agent.enforcement.enforcer import Enforcer
from agent.enforcement.originals import Originals
from agent.enforcement.places import Place
from agent.enforcement.repair import Drift
from agent.enforcement.watch import FANOTIFY
from agent.state import ContainerKey, Running
from kernel import hierarchies
from lab.contention.groups import Tree
from qos.plan.settings import PROCESS, RAISE, SET, Plan, Setting
from tests.waiting import eventually, running

MIB = 1 << 20
TIER = "/kubepods/burstable"
POD = f"{TIER}/pod0a1b2c3d-0000-4000-8000-000000000001"
ID = "c" * 64
ONE = Running(ContainerKey("0a1b2c3d-0000-4000-8000-000000000001", "app"), ID, f"{POD}/{ID}")


class Told:
    """What was counted."""

    def __init__(self) -> None:
        self.drifts: list[Drift] = []
        self.fights: list[Place] = []

    def drifted(self, drift: Drift) -> None:
        self.drifts.append(drift)

    def escalated(self, place: Place) -> None:
        self.fights.append(place)

    def lost(self) -> None:
        pytest.fail("writes went untold")


def plan(*settings: tuple[int, str, object]) -> Plan:
    return Plan(
        tuple(
            Setting(level, "", "", file, str(value), RAISE if level > 1 else SET, "a test")
            for level, file, value in settings
        )
    )


def read(path: str, file: str) -> str:
    return Path(f"/sys/fs/cgroup{path}/{file}").read_text().strip()


def write(path: str, file: str, value: object) -> None:
    Path(f"/sys/fs/cgroup{path}/{file}").write_text(str(value))


@pytest.fixture
def start(tree: Tree, tmp_path: Path) -> Callable[[], Enforcer]:
    """An agent that has just started, beside a container with kubelet's and the runtime's values."""
    tree.make(TIER, cpu_weight=60)
    tree.make(POD, cpu_weight=8, memory_max=256 * MIB)
    write(POD, "cgroup.subtree_control", "+cpu +memory")
    Path(f"/sys/fs/cgroup{ONE.cgroup}").mkdir()  # not the tree's: a test removes it
    write(ONE.cgroup, "cpu.weight", 29)
    mounts = hierarchies.mounts(Path("/proc/self/mountinfo").read_text())
    return lambda: Enforcer(mounts, Originals(tmp_path), tmp_path)


@pytest.fixture
def process() -> Iterator[int]:
    """The pid of the container's first process."""
    argv = [sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as child:
        write(ONE.cgroup, "cgroup.procs", child.pid)
        yield child.pid


FLOOR = plan(
    (2, "memory.min", 64 * MIB), (2, "cpu.weight", 500), (1, "memory.min", 64 * MIB), (1, "cpu.weight", 300),
    (0, "memory.min", 64 * MIB), (0, "cpu.weight", 200), (0, "memory.high", 200 * MIB),
)  # fmt: skip


def test_a_floor_through_all_levels_and_back(start: Callable[[], Enforcer]) -> None:
    first = start()
    assert first.apply(ONE, FLOOR).written == 7
    again = start()  # killed and started anew
    assert again.apply(ONE, FLOOR).written == 0
    assert again.shared() == []
    again.apply(ONE, Plan(()))
    assert list(again.sweep()) == [TIER]
    assert [read(path, "cpu.weight") for path in (TIER, POD, ONE.cgroup)] == ["60", "8", "29"]
    assert [read(path, "memory.min") for path in (TIER, POD, ONE.cgroup)] == ["0", "0", "0"]
    assert read(ONE.cgroup, "memory.high") == "max"
    assert dict(start().originals) == {}


def test_an_idle_cgroup_gets_its_weight_back(start: Callable[[], Enforcer]) -> None:
    agent = start()
    assert agent.apply(ONE, plan((0, "cpu.idle", 1))).applied
    assert read(ONE.cgroup, "cpu.weight") == "0"
    list(agent.sweep())
    assert read(ONE.cgroup, "cpu.idle") == "1"
    assert agent.apply(ONE, Plan(())).applied
    assert (read(ONE.cgroup, "cpu.idle"), read(ONE.cgroup, "cpu.weight")) == ("0", "29")


def test_the_score_of_a_process(start: Callable[[], Enforcer], process: int) -> None:
    agent, before = start(), Path(f"/proc/{process}/oom_score_adj").read_text()
    score = Plan((Setting(PROCESS, "", "", "oom_score_adj", "500", SET, "a test"),))
    assert agent.apply(ONE, score).written == 1
    assert Path(f"/proc/{process}/oom_score_adj").read_text() == "500\n"
    agent.apply(ONE, Plan(()))
    assert Path(f"/proc/{process}/oom_score_adj").read_text() == before


def test_what_others_write_is_undone_at_once(
    start: Callable[[], Enforcer], record_property: Callable[[str, object], None]
) -> None:
    agent, told = start(), Told()
    agent.apply(ONE, FLOOR)
    took = []

    async def scenario() -> None:
        watch = DriftWatch(agent, told)
        assert watch.kind == FANOTIFY
        async with running(watch.run()):
            await asyncio.sleep(0)
            for path, file in ((ONE.cgroup, "cpu.weight"), (POD, "memory.min"), (TIER, "memory.min")):
                ours, count = read(path, file), len(told.drifts)
                child = await asyncio.create_subprocess_exec(
                    "sh", "-c", f"echo 7 > /sys/fs/cgroup{path}/{file}"
                )
                await child.wait()
                began = time.monotonic()
                await eventually(lambda count=count: len(told.drifts) > count)  # type: ignore[misc]
                took.append(time.monotonic() - began)
                assert read(path, file) == ours
        Path(f"/sys/fs/cgroup{ONE.cgroup}").rmdir()  # noqa: ASYNC240
        await watch.check()

    asyncio.run(scenario())
    record_property("seconds to the repair", took)
    assert [drift.controller for drift in told.drifts] == ["cpu", "memory", "memory"]
    assert len(agent) == 0
