"""What plans are made from changes while the agent runs: disks, CPUs, controllers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from qos.cluster.policy import Profile
from qos.plan.node import V2
from qos.promises import IoLimit, Overrides
from tests.adapters.fake_machine import Fake
from tests.agent.test_planner import MI, UIDS, Here, settings_of, start


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    made = Fake(tmp_path, v1=False, unified=True)
    made.write("proc/meminfo", "MemTotal:  4194304 kB\n")
    for path in ("kubepods", "kubepods/burstable", "system.slice"):
        made.group("unified", path, cpu_weight="100", memory_min="0", memory_low="0")
    return made


def limited(here: Here, fake: Fake) -> str:
    """A pod whose class limits what it reads from every disk; its cgroup."""
    path = here.pod(0, 500)
    here.known.profiles["slow"] = Profile("slow", "LS", overrides=Overrides(io_limit=IoLimit(MI)))
    one = here.known.policies["shop/a0"]
    here.known.policies["shop/a0"] = replace(one, profile_name="slow")
    start(fake, path)
    here.run(0, path)
    return path


def test_a_disk_that_comes_or_goes_is_planned_with(fake: Fake) -> None:
    here = Here("")
    limited(here, fake)
    planner = here.planner(fake.machine(), V2)

    def disks() -> list[str]:
        planned = here.plans(planner)[UIDS[0]].containers[0].plan.settings
        return [one.value.partition(" ")[0] for one in planned if one.file == "io.max"]

    fake.group("unified", "system.slice", io_max="")
    assert disks() == ["8:0"]
    assert not planner.is_outdated()
    fake.write("sys/block/sdb/dev", "8:16\n")
    assert planner.is_outdated()
    assert disks() == ["8:0", "8:16"]
    (fake.root / "sys/block/sda/dev").unlink()  # it goes while the list is read
    assert disks() == ["8:16"]


def test_a_controller_that_is_enabled_later_is_planned_with(fake: Fake) -> None:
    here = Here("")
    limited(here, fake)
    planner = here.planner(fake.machine(), V2)
    lacks = [one.promise for one in here.plans(planner)[UIDS[0]].containers[0].plan.unsupported]
    assert lacks == ["io_limit"]
    fake.group("unified", "system.slice", io_max="")
    assert planner.is_outdated()
    planned = here.plans(planner)[UIDS[0]].containers[0].plan
    assert (planned.unsupported, settings_of(here.plans(planner)[UIDS[0]], 0)["io.max"]) == (
        (),
        f"8:0 rbps={MI}",
    )


def test_cpus_that_come_or_go_count(fake: Fake) -> None:
    here = Here("")
    fake.group("unified", "kubepods", cpu_weight="157")
    planner = here.planner(fake.machine(), V2)
    here.plans(planner)
    before = planner.node_share()
    fake.write("sys/devices/system/cpu/online", "0-7\n")
    assert planner.is_outdated()
    here.plans(planner)
    assert before is not None
    assert planner.node_share() != before
    assert (planner.size.cpus, planner.is_outdated()) == (8000, False)
