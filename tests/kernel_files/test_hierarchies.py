"""Mountpoints from mountinfo."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kernel import hierarchies

V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"
HYBRID = """31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:10 master:2 - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""


def test_unified() -> None:
    assert hierarchies.mounts(V2) == {"": "/sys/fs/cgroup"}


def test_hybrid_with_two_controllers_on_one_mount() -> None:
    assert hierarchies.mounts(HYBRID) == {
        "cpu": "/sys/fs/cgroup/cpu,cpuacct",
        "cpuacct": "/sys/fs/cgroup/cpu,cpuacct",
        "memory": "/sys/fs/cgroup/memory",
        "": "/sys/fs/cgroup/unified",
    }


def test_every_hierarchy() -> None:
    line = "60 23 0:50 / /sys/fs/cgroup/other rw - cgroup cgroup rw,perf_event,release_agent=/x\n"
    more = {"name=systemd": "/sys/fs/cgroup/systemd", "perf_event": "/sys/fs/cgroup/other"}
    assert hierarchies.every_mount(HYBRID + line) == {**hierarchies.mounts(HYBRID + line), **more}


def test_a_bind_mount_of_a_part_is_no_hierarchy() -> None:
    part = "50 23 0:26 /kubepods/pod1 /var/part rw - cgroup2 cgroup2 rw\n"
    outside = "51 23 0:26 /.. /var/outside rw - cgroup2 cgroup2 rw\n"
    assert hierarchies.mounts(part + outside) == {}
    assert hierarchies.mounts(part + outside + V2) == {"": "/sys/fs/cgroup"}


def test_the_first_of_several_mounts_is_taken() -> None:
    assert hierarchies.mounts(V2 + V2.replace("/sys/fs/cgroup", "/elsewhere")) == {"": "/sys/fs/cgroup"}


def test_escapes() -> None:
    line = "30 23 0:26 / /a\\040b\\134c\\011d rw - cgroup2 cgroup2 rw\n"
    assert hierarchies.mounts(line) == {"": "/a b\\c\td"}


def test_a_source_that_says_cgroup_is_not_one() -> None:
    lie = "60 23 0:50 / /lie rw - ext4 cgroup2 rw,memory\n61 23 0:51 / /fuse rw - fuse.cgroup x rw,cpu\n"
    assert hierarchies.mounts(lie) == {}


def test_this_machine_has_some() -> None:
    mounts = hierarchies.mounts(Path("/proc/self/mountinfo").read_text())
    assert all((Path(place) / "cgroup.procs").exists() for place in mounts.values())


@given(st.text(max_size=300) | st.lists(st.sampled_from(HYBRID.split()), max_size=30).map(" ".join))
def test_anything_else_is_skipped(text: str) -> None:
    found = hierarchies.mounts(text)
    assert set(found) <= {*hierarchies.CONTROLLERS, ""}
