"""The test VM as most nodes are: process 1 is systemd, on cgroup v2 alone, with cgroups of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path("/sys/fs/cgroup")
MOUNTS = {
    "dev-hugepages.mount",
    "dev-mqueue.mount",
    "sys-fs-fuse-connections.mount",
    "sys-kernel-config.mount",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
}

pytestmark = pytest.mark.systems("systemd")


def children(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_dir()}


def populated(folder: Path) -> bool:
    return "populated 1" in (folder / "cgroup.events").read_text().splitlines()


def show(unit: str, name: str) -> str:
    argv = ["systemctl", "show", "--value", f"--property={name}", unit]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def test_process_1_is_systemd() -> None:
    assert Path("/proc/1/comm").read_text() == "systemd\n"
    assert Path("/proc/1/cgroup").read_text() == "0::/init.scope\n"
    assert show("multi-user.target", "ActiveState") == "active"


def test_nothing_has_failed() -> None:
    argv = ["systemctl", "list-units", "--failed", "--plain", "--no-legend"]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == ""


def test_cgroup_v2_alone_is_mounted_by_systemd() -> None:
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    (only,) = [words for words in mounts if words[2].startswith("cgroup")]
    assert only[1:3] == ["/sys/fs/cgroup", "cgroup2"]
    assert {"nsdelegate", "memory_recursiveprot"} <= set(only[3].split(","))


def test_every_controller_of_pods_is_passed_down_to_a_delegated_service() -> None:
    wanted = {"cpu", "cpuset", "memory", "io", "pids"}
    own = Path("/proc/self/cgroup").read_text().strip().removeprefix("0::/")
    assert own == "system.slice/j10ce-work.service"
    for folder in (ROOT, ROOT / "system.slice"):
        assert wanted <= set((folder / "cgroup.subtree_control").read_text().split())
    assert wanted <= set((ROOT / own / "cgroup.controllers").read_text().split())


def test_at_the_root_are_slices_the_scope_of_process_1_and_mount_units_without_a_process() -> None:
    there = children(ROOT)
    assert {"init.scope", "system.slice", "user.slice"} <= there
    mounts = {name for name in there if name.endswith(".mount")}
    assert mounts >= MOUNTS
    assert there - mounts == {"init.scope", "system.slice", "user.slice"}
    assert not any(populated(ROOT / name) for name in mounts | {"user.slice"})
    weights = {(ROOT / name / "cpu.weight").read_text() for name in there}
    assert weights == {"100\n"}, "an empty mount unit weighs what a busy slice does"


def test_services_are_below_system_slice() -> None:
    services = {name for name in children(ROOT / "system.slice") if populated(ROOT / "system.slice" / name)}
    wanted = {"dbus", "systemd-journald", "systemd-logind", "systemd-udevd"}
    assert services >= {f"{name}.service" for name in wanted}
