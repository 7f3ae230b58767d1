"""The test VM is what the other tests take it for: cgroup v2 with every controller, and swap."""

from __future__ import annotations

from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


def test_controllers() -> None:
    have = set((ROOT / "cgroup.subtree_control").read_text().split())
    assert {"cpu", "cpuset", "memory", "io", "pids"} <= have


def test_protection_is_recursive() -> None:
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    options = {words[1]: words[3].split(",") for words in mounts if words[2] == "cgroup2"}
    assert {"nsdelegate", "memory_recursiveprot"} <= set(options["/sys/fs/cgroup"])


def test_swap_is_on() -> None:
    assert len(Path("/proc/swaps").read_text().splitlines()) == 2
