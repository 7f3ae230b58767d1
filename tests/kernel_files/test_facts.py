"""What is read of a machine: real cgroups of cgroup v1, and made-up trees for everything else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel import facts
from kernel.refused import Refused


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What looks like a cgroup v2 hierarchy: files only."""
    for name, weight in (("a", "100"), ("a/b", "8"), ("c", "1")):
        group = tmp_path / name
        group.mkdir()
        (group / "cpu.weight").write_text(f"{weight}\n")
        (group / "memory.min").write_text("0\n")
        (group / "cgroup.stat").write_text("nr_descendants 0\n")
    return tmp_path


def test_a_cgroup_with_its_children(tree: Path) -> None:
    look = facts.look(str(tree), "/a", ("cpu.weight", "memory.min", "memory.low"))
    assert look is not None
    assert look.values == {"cpu.weight": "100\n", "memory.min": "0\n"}
    assert look.names == {"cpu.weight", "memory.min", "cgroup.stat"}
    assert look.children == ("b",)
    root = facts.look(str(tree), "/", ("cpu.weight",))
    assert root is not None
    assert (root.values, root.children) == ({}, ("a", "c"))


def test_what_is_not_there(tree: Path) -> None:
    assert facts.look(str(tree), "/a/none", ("cpu.weight",)) is None


def test_a_link_is_no_cgroup(tree: Path) -> None:
    (tree / "link").symlink_to(tree / "a")
    assert facts.look(str(tree), "/", ()).children == ("a", "c")  # type: ignore[union-attr]
    with pytest.raises(Refused):
        facts.look(str(tree), "/link", ())
    with pytest.raises(Refused):
        facts.look(str(tree), "/a/../c", ())


def test_only_files_that_are_known_are_read(tree: Path) -> None:
    look = facts.look(str(tree), "/a", ("cgroup.stat",))
    assert look is not None
    assert look.values == {}


def test_a_cgroup_of_v1_is_populated_where_one_below_it_is(tree: Path) -> None:
    assert facts.populated(str(tree), "/a"), "nobody can tell"
    for name in ("a", "a/b"):
        (tree / name / "cgroup.procs").write_text("")
    assert not facts.populated(str(tree), "/a")
    (tree / "a/b/cgroup.procs").write_text("77\n")
    assert facts.populated(str(tree), "/a")
    assert not facts.populated(str(tree), "/gone")


def test_this_machine() -> None:
    assert facts.memory() == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert facts.cpus()
    assert all(disk.count(":") == 1 for disk in facts.disks())
    assert facts.mounts()


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_unified_hierarchy_is_found_in_the_mounts(tmp_path: Path) -> None:
    line = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,memory_recursiveprot\n"
    write(tmp_path / "self" / "mountinfo", line)
    assert facts.mounts(str(tmp_path)) == {"": "/sys/fs/cgroup"}


def test_disks_without_those_that_are_none(tmp_path: Path) -> None:
    for number, name in enumerate(("loop0", "ram1", "sda", "nvme0n1", "dm-0", "zram0", "sr0")):
        write(tmp_path / "block" / name / "dev", f"{number}:0\n")
    assert facts.disks(str(tmp_path)) == ("4:0", "3:0", "2:0")
    assert facts.disks(str(tmp_path / "none")) == ()


def test_a_machine_that_says_nothing(tmp_path: Path) -> None:
    write(tmp_path / "meminfo", "Nothing: 1 kB\n")
    with pytest.raises(Refused, match="meminfo: says no MemTotal"):
        facts.memory(str(tmp_path))
    with pytest.raises(Refused, match="ENOENT"):
        facts.cpus(str(tmp_path))


THREE_THREADS = """import sys, threading
for _ in range(2):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def process() -> Iterator[int]:
    """The pid of one with three threads: nobody knows how many this one has in a moment."""
    argv = [sys.executable, "-I", "-S", "-c", THREE_THREADS]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        yield child.pid


def test_threads_that_are_in_a_cgroup_itself(tree: Path, process: int) -> None:
    own, threads = f"{process}\n", 3
    write(tree / "a" / "cgroup.procs", own)
    assert facts.threads(str(tree), "/a") == threads
    write(tree / "a" / "cgroup.procs", own + "999999999\n0\n")  # 0: of another PID namespace
    assert facts.threads(str(tree), "/a") == threads + 1
    assert facts.threads(str(tree), "/c") == 0
    assert facts.threads(str(tree), "/none") == 0
    write(tree / "a" / "cgroup.procs", own * 2000)
    assert facts.threads(str(tree), "/a") == 2000 * threads


@pytest.mark.parametrize(("flags", "counted"), [("4194560", 5), ("2129984", 0)])
def test_kernel_threads_are_not_counted(tmp_path: Path, flags: str, counted: int) -> None:
    write(tmp_path / "g" / "cgroup.procs", "2\n")
    write(tmp_path / "2" / "stat", f"2 (a) b) S 0 0 0 0 -1 {flags} 0 0 0 0 0 1 0 0 20 0 5 0 24 0 0\n")
    assert facts.threads(str(tmp_path), "/g", str(tmp_path)) == counted


@pytest.mark.parametrize("parent", [2, 40])
def test_programs_that_the_kernel_runs_are_not_counted(tmp_path: Path, parent: int) -> None:
    """kthreadd and a kworker; modprobe is a child of either, in the root cgroup as they are."""
    write(tmp_path / "g" / "cgroup.procs", "2\n40\n1234\n77\n")
    for pid, above, flags in ((2, 0, 2129984), (40, 2, 69238880), (1234, parent, 4194304), (77, 1, 4194304)):
        write(
            tmp_path / str(pid) / "stat",
            f"{pid} (a) S {above} 0 0 0 -1 {flags} 0 0 0 0 0 1 0 0 20 0 1 0 24 0 0\n",
        )
    assert facts.threads(str(tmp_path), "/g", str(tmp_path)) == 1


def test_processes_and_the_id_of_a_cgroup(tree: Path) -> None:
    write(tree / "a" / "cgroup.procs", "7\n0\n12\n")  # 0: of a pid namespace that we do not see
    assert facts.processes(str(tree), "/a") == (7, 12)
    assert facts.inode(str(tree), "/a") == (tree / "a").stat().st_ino
    assert facts.processes(str(tree), "/gone") == ()
    assert facts.inode(str(tree), "/gone") == 0
    with pytest.raises(Refused):
        facts.inode(str(tree), "/a/../c")
