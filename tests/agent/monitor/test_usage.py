"""What nodes and pods use, of made-up cgroups v2 and v1; real ones are in test_v1 and in the VM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.monitor.usage import UsageMeter

MIB = 1 << 20
PODS = {"shop/a": "/kubepods/a", "shop/b": "/kubepods/b"}


class Machine:
    """Files that say what was used."""

    def __init__(self, root: Path, *, unified: bool) -> None:
        self.root, self.unified = root, unified
        self.cgroups = [root / name for name in (("v2",) if unified else ("cpuacct", "memory"))]
        (root / "proc").mkdir()
        self.node(0.0)
        for name in PODS:
            self.pod(name, 0.0, 0, 0)

    @property
    def mounts(self) -> dict[str, str]:
        return {"" if self.unified else one.name: str(one) for one in self.cgroups}

    def node(self, busy: float) -> None:
        (self.root / "proc/stat").write_text(f"cpu {round(busy * 100)} 0 0 900 0 0 0 0 0 0\n")
        sizes = {"MemTotal": 4000, "MemFree": 1000, "MemAvailable": 2500, "Inactive(file)": 500}
        (self.root / "proc/meminfo").write_text("".join(f"{name}: {kb} kB\n" for name, kb in sizes.items()))

    def pod(self, name: str, cpu: float, memory: int, idle: int) -> None:
        other = f"total_inactive_file {idle}\ninactive_file 7\n"
        files = {
            "cpu.stat": f"usage_usec {round(cpu * 1e6)}\n",
            "memory.current": f"{memory}\n",
            "memory.stat": f"inactive_file {idle}\n" if self.unified else other,
            "cpuacct.usage": f"{round(cpu * 1e9)}\n",
            "memory.usage_in_bytes": f"{memory}\n",
        }
        v2 = ("cpu.stat", "memory.current", "memory.stat")
        for cgroup in self.cgroups:
            v1 = ("cpuacct.usage",) if cgroup.name == "cpuacct" else ("memory.usage_in_bytes", "memory.stat")
            folder = Path(f"{cgroup}{PODS[name]}")
            folder.mkdir(parents=True, exist_ok=True)
            for file in v2 if self.unified else v1:
                (folder / file).write_text(files[file])


@pytest.fixture(params=[True, False], ids=["v2", "v1"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    return Machine(tmp_path, unified=request.param)


@pytest.fixture
def meter(machine: Machine, fake_time: Any) -> UsageMeter:
    return UsageMeter(machine.mounts, str(machine.root / "proc"), fake_time, lambda: 7.0)


async def test_two_readings_say_what_is_used(machine: Machine, meter: UsageMeter, fake_time: Any) -> None:
    await meter.measure(PODS)
    assert meter.latest is None
    fake_time.now += 40
    machine.node(60.0)
    machine.pod("shop/a", 20.0, 100 * MIB + 5, 30 * MIB)
    await meter.measure(PODS)
    assert meter.latest is not None
    assert meter.latest.measured == 7.0
    assert meter.latest.node == {"cpu": 1500, "memory": 2500 * 1024 // MIB * MIB}
    assert meter.latest.pods == {
        "shop/a": {"cpu": 500, "memory": 70 * MIB},
        "shop/b": {"cpu": 0, "memory": 0},
    }


async def test_a_pod_is_told_from_its_second_reading_on(
    machine: Machine, meter: UsageMeter, fake_time: Any
) -> None:
    only = {"shop/a": PODS["shop/a"]}
    for pods in (only, PODS, PODS):
        await meter.measure(pods)
        fake_time.now += 40
    assert meter.latest is not None
    assert meter.latest.pods.keys() == PODS.keys()
    await meter.measure(only)
    await meter.measure(PODS | {"shop/gone": "/kubepods/gone"})
    assert meter.latest.pods.keys() == {"shop/a"}, "what it used while nobody looked is not known"


async def test_a_counter_that_went_back_says_nothing(
    machine: Machine, meter: UsageMeter, fake_time: Any
) -> None:
    machine.pod("shop/a", 20.0, 0, 0)
    await meter.measure(PODS)
    fake_time.now += 40
    machine.pod("shop/a", 1.0, 0, 0)
    await meter.measure(PODS)
    assert meter.latest is not None
    assert meter.latest.pods.keys() == {"shop/b"}


async def test_where_the_machine_does_not_say_it_nothing_is_told(
    machine: Machine, meter: UsageMeter, fake_time: Any
) -> None:
    (machine.root / "proc/stat").unlink()
    for _ in range(2):
        await meter.measure(PODS)
        fake_time.now += 40
    assert meter.latest is None
