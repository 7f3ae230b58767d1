"""The monitor and the judge on this machine's own cgroup v1: starved, throttled, satisfied and idle pods."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent.deficit.judge import NOTHING
from agent.deficit.tally import Tally
from agent.monitor.monitor import Monitor, Watched
from agent.monitor.usage import UsageMeter
from kernel import facts
from lab.runtimes import cgroups
from lab.runtimes.cgroups import Scratch
from qos.keys import CPU
from tests.cpu_time import Cost

pytestmark = pytest.mark.runtime

CONTROLLERS = ("cpu", "cpuacct", "memory", "blkio")
SPIN = "while :; do :; done"
IDLE = "read line"
ABOVE = ("satisfied", "limited-above", "container-limited")
"""Pods that have their floor."""


@pytest.fixture(scope="module")
def scratch() -> Iterator[Scratch]:
    if os.geteuid() != 0:
        pytest.skip("only root makes cgroups")
    missing = [name for name in CONTROLLERS if name not in facts.mounts()]
    if missing:
        pytest.skip(f"no cgroup v1 hierarchy of {', '.join(missing)} here (v2 is measured in the VM)")
    with cgroups.scratch("monitor") as made:
        yield made


@dataclass
class Pods:
    """Pods in the scratch cgroup, each with a container that runs a shell script, all on the first CPU."""

    scratch: Scratch
    watched: dict[str, Watched] = field(default_factory=dict)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def occupy(self, cpu: int) -> None:
        """Leave no idle time on another CPU: while there is some, no pod counts as kept from its floor."""
        self.start(f"occupier-{cpu}", SPIN, floor=0)
        os.sched_setaffinity(self.processes[-1].pid, {cpu})

    def start(self, name: str, script: str, floor: int, limit: int = 0, **settings: object) -> None:
        """limit: the container's own, of 100,000. settings: of the pod's cpu cgroup, with _ for the dot."""
        for file, value in settings.items():
            self.scratch.make("kubepods", name)
            cpu = self.scratch.folder("cpu", "kubepods", name)
            (cpu / file.replace("_", ".", 1)).write_text(str(value))
        container = self.scratch.make("kubepods", name, "app")
        if limit:
            (container.folder("cpu") / "cpu.cfs_quota_us").write_text(str(limit))
        process = subprocess.Popen(["sh", "-c", f"read go; {script}"], stdin=subprocess.PIPE)
        self.processes.append(process)
        os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
        for controller in CONTROLLERS:
            (container.folder(controller) / "cgroup.procs").write_text(str(process.pid))
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        if floor:
            path = self.scratch.path("kubepods", name)
            self.watched[name] = Watched("shop", name, f"shop/{name}", path, {CPU: floor})

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()


@pytest.fixture(scope="module")
def throttled() -> dict[str, float]:
    """Seconds, by pod; filled when all has been measured."""
    return {}


@pytest.fixture(scope="module")
def usage() -> UsageMeter:
    """What they and the machine use; measured when all has been."""
    return UsageMeter(facts.mounts(), "/proc")


@pytest.fixture(scope="module")
def tally(scratch: Scratch, throttled: dict[str, float], usage: UsageMeter) -> Iterator[Tally]:
    """All of them measured until the starved and the throttled one have been judged a few times."""
    pods = Pods(scratch)
    monitor = Monitor(facts.mounts(), settle_seconds=1.5)
    tally = Tally()
    try:
        for cpu in sorted(os.sched_getaffinity(0))[1:]:
            pods.occupy(cpu)
        pods.start("neighbour", SPIN, floor=0, cpu_shares=4096)
        pods.start("starved", SPIN, floor=900, cpu_shares=256)
        pods.start("limited", SPIN, floor=500, cpu_shares=1024, cpu_cfs_quota_us=5000)
        pods.start("limited-above", SPIN, floor=5, cpu_shares=4096, cpu_cfs_quota_us=5000)
        pods.start("satisfied", SPIN, floor=5, cpu_shares=4096)
        pods.start("container-limited", SPIN, floor=5, limit=5000, cpu_shares=4096)
        pods.start("idle", IDLE, floor=900, cpu_shares=256)
        monitor.watch(pods.watched)
        groups = {uid: one.cgroup for uid, one in pods.watched.items()}
        asyncio.run(usage.measure(groups))
        deadline = time.monotonic() + 200
        while not (_enough(tally) and _throttled(monitor, "container-limited")):
            assert time.monotonic() < deadline, {uid: one.seconds for uid, one in tally.pods.items()}
            tally.take(monitor.tick(time.monotonic()), monitor.watched)
            time.sleep(0.25)
        asyncio.run(usage.measure(groups))
        assert monitor.latest is not None
        throttled.update({uid: pod.throttled for uid, pod in monitor.latest.pods.items()})
        yield tally
    finally:
        monitor.close()
        pods.end()


def _throttled(monitor: Monitor, pod: str) -> float:
    """Seconds; what containers were is read each ten only."""
    assert monitor.latest is not None
    return monitor.latest.pods[pod].throttled


def _enough(tally: Tally) -> bool:
    seconds = {uid: pod.seconds.get(CPU, NOTHING) for uid, pod in tally.pods.items()}
    return (
        len(seconds) == 6
        and all(seconds[one].deficit > 2 for one in ("starved", "limited"))
        and all(seconds[one].wanted > 2 for one in ABOVE)
    )


def test_what_each_uses(tally: Tally, usage: UsageMeter) -> None:
    assert usage.latest is not None
    pods = usage.latest.pods
    assert pods.keys() == tally.pods.keys()
    for limited in ("limited", "limited-above", "container-limited"):
        assert pods[limited]["cpu"] == pytest.approx(50, abs=20)
    assert pods["idle"]["cpu"] <= 5
    assert usage.latest.node["cpu"] >= sum(one["cpu"] for one in pods.values())
    assert usage.latest.node["memory"] > sum(one["memory"] for one in pods.values())


def test_starved_by_a_neighbours_shares(tally: Tally) -> None:
    judged = tally.pods["starved"].seconds[CPU]
    assert judged.deficit > 2
    assert judged.deficit == judged.wanted
    assert tally.policies["shop/starved"][CPU] == judged


def test_a_limit_below_the_floor(tally: Tally) -> None:
    assert tally.pods["limited"].seconds[CPU].deficit > 2


@pytest.mark.parametrize("pod", ABOVE)
def test_whoever_has_its_floor_has_no_deficit(tally: Tally, pod: str) -> None:
    judged = tally.pods[pod].seconds[CPU]
    assert judged.wanted > 2
    assert judged.deficit == 0


def test_a_containers_limit_throttles_its_pod(tally: Tally, throttled: dict[str, float]) -> None:
    assert tally.pods["container-limited"].seconds[CPU].wanted > 2
    assert throttled["container-limited"] > 0
    assert throttled["satisfied"] == 0


def test_idle(tally: Tally) -> None:
    assert tally.pods["idle"].seconds == {}


def test_the_budget_of_a_starved_policy_is_overspent(tally: Tally) -> None:
    budgets = tally.budgets(time.monotonic())
    assert budgets["shop/starved"]["1h"].remaining < 0
    assert budgets["shop/satisfied"]["1h"].remaining == 1
    assert "shop/idle" not in budgets


class Crowd:
    """Pods without processes, made and removed as quickly as may be."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._folders = [scratch.folder(controller, "crowd") for controller in CONTROLLERS]
        for folder in self._folders:
            folder.mkdir()

    def make(self, name: str) -> Watched:
        for folder in self._folders:
            (folder / name).mkdir()
        return Watched("crowd", name, "crowd/policy", self._scratch.path("crowd", name), {CPU: 500})

    def remove(self, name: str) -> None:
        for folder in self._folders:
            (folder / name).rmdir()

    def end(self) -> None:
        for folder in self._folders:
            for path in (*(one for one in folder.iterdir() if one.is_dir()), folder):
                path.rmdir()


@pytest.fixture
def crowd(scratch: Scratch) -> Iterator[Crowd]:
    with contextlib.ExitStack() as stack:
        made = Crowd(scratch)
        stack.callback(made.end)
        yield made


@pytest.fixture
def monitor() -> Iterator[Monitor]:
    made = Monitor(facts.mounts())
    yield made
    made.close()


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_cgroup_that_was_removed_and_made_again(crowd: Crowd, monitor: Monitor) -> None:
    before = open_files()
    monitor.watch({"a": crowd.make("a")})
    first = monitor.tick(1.0).pods["a"]
    crowd.remove("a")
    assert monitor.tick(2.0).pods == {}
    assert open_files() == before
    crowd.make("a")
    second = monitor.tick(3.0).pods["a"]
    assert second.made != first.made
    assert monitor.failures == 0


def test_a_thousand_pods_that_come_and_go_leave_nothing_open(crowd: Crowd, monitor: Monitor) -> None:
    before, tally = open_files(), Tally()
    for second in range(20):
        names = [f"pod{second}-{number}" for number in range(50)]
        monitor.watch({name: crowd.make(name) for name in names})
        assert len(monitor.tick(second).pods) == 50
        if second % 2:  # some go before they are forgotten, some after
            monitor.watch({})
        for name in names:
            crowd.remove(name)
        tally.take(monitor.tick(second + 0.5), monitor.watched)
        assert open_files() == before
    assert tally.pods == {}


def test_a_tick_of_250_pods(
    crowd: Crowd, monitor: Monitor, record_property: Callable[[str, object], None]
) -> None:
    tally = Tally()
    monitor.watch({f"pod{number}": crowd.make(f"pod{number}") for number in range(250)})
    cost, ticks = Cost(), itertools.count()
    while len(monitor.tick(next(ticks)).pods) < 250:
        pass
    for _ in range(40):
        with cost.tried():
            tally.take(monitor.tick(next(ticks)), monitor.watched)
    record_property("milliseconds of CPU a tick", cost.milliseconds)
    assert cost.units < 6, "2.3 are typical"
