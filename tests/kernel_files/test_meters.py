"""Meters that stay open, and threads' waiting; of made-up files and of this machine's cgroups."""

from __future__ import annotations

import errno
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel import meters
from kernel.meters import Meters
from kernel.refused import Gone, Refused
from kernel.threads import Threads
from tests.kernel_files.conftest import Scratch


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What looks like the cgroup of a pod, of v2."""
    folder = tmp_path / "pod"
    folder.mkdir()
    (folder / "cpu.stat").write_text("usage_usec 1\n")
    (folder / "memory.current").write_text("4096\n")
    return tmp_path


@pytest.fixture
def opened(tree: Path) -> Iterator[Meters]:
    made = meters.of_cgroup(str(tree), "/pod", ("cpu.stat", "cpu.pressure", "memory.current"))
    yield made
    made.close()


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_meters_are_read_as_they_are_now(opened: Meters, tree: Path) -> None:
    assert opened.names == {"cpu.stat", "memory.current"}
    assert opened.read("cpu.stat") == b"usage_usec 1\n"
    (tree / "pod" / "cpu.stat").write_text("usage_usec 2\n")
    assert opened.read("cpu.stat") == opened.whole("cpu.stat") == b"usage_usec 2\n"


def test_long_lists_are_read_whole(tree: Path) -> None:
    text = "".join(f"{number}\n" for number in range(9000))
    (tree / "pod" / "cgroup.threads").write_text(text)
    made = meters.of_cgroup(str(tree), "/pod", ("cgroup.threads",))
    assert made.whole("cgroup.threads") == text.encode()
    assert text.startswith(made.read("cgroup.threads").decode())
    made.close()


@pytest.mark.parametrize(
    "name", ["cgroup.procs", "memory.min", "../pod/cpu.stat", "/etc/passwd", "", "release_agent"]
)
def test_only_meters_are_opened(tree: Path, name: str) -> None:
    before = open_files()
    with pytest.raises(Refused, match="not a file that we read"):
        meters.of_cgroup(str(tree), "/pod", ("cpu.stat", name))
    with pytest.raises(Refused, match="not a file that we read"):
        meters.of_machine(str(tree), (name,))
    assert open_files() == before


def test_links_and_pipes_are_refused(tree: Path) -> None:
    (tree / "pod" / "io.stat").symlink_to("cpu.stat")
    os.mkfifo(tree / "pod" / "memory.stat")
    (tree / "link").symlink_to(tree / "pod")
    before = open_files()
    for path, name in (
        ("/pod", "io.stat"),
        ("/pod", "memory.stat"),
        ("/link", "cpu.stat"),
        ("/pod/../pod", "cpu.stat"),
    ):
        with pytest.raises(Refused):
            meters.of_cgroup(str(tree), path, ("cpu.stat", name))
    assert open_files() == before


def test_no_such_cgroup(tree: Path) -> None:
    with pytest.raises(Gone):
        meters.of_cgroup(str(tree), "/none", ("cpu.stat",))
    with pytest.raises(Gone):
        Threads(str(tree), "/none")


def test_closing_twice(opened: Meters) -> None:
    before = open_files()
    opened.close()
    opened.close()
    assert open_files() == before - 2


def test_no_more_files_may_be_opened(tree: Path) -> None:
    before = open_files()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = [os.open("/dev/null", os.O_RDONLY) for _ in range(4)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(spare) + 1, hard))
    try:
        for one in spare[:2]:  # the root and the pod's folder, and none for the meter
            os.close(one)
        with pytest.raises(Refused) as caught:
            meters.of_cgroup(str(tree), "/pod", ("cpu.stat", "memory.current"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for one in spare[2:]:
            os.close(one)
    assert caught.value.errno == errno.EMFILE
    assert open_files() == before


def test_a_removed_cgroup_is_gone(scratch: Scratch) -> None:
    scratch.make("/a")
    opened = meters.of_cgroup(
        scratch.mounts["memory"], f"{scratch.path}/a", ("memory.stat", "memory.usage_in_bytes")
    )
    assert int(opened.read("memory.usage_in_bytes")) >= 0
    threads = Threads(scratch.mounts["cpu"], f"{scratch.path}/a")
    assert threads.delays("/proc", 10) == {}
    for controller in ("memory", "cpu"):
        scratch.folder(controller, "/a").rmdir()
    for attempt in (
        lambda: opened.read("memory.stat"),
        lambda: opened.whole("memory.usage_in_bytes"),
        lambda: threads.ids(10),
    ):
        with pytest.raises(Gone):
            attempt()
    opened.close()
    threads.close()
    threads.close()
    for controller in ("memory", "cpu"):
        scratch.folder(controller, "/a").mkdir()


def test_threads_of_all_cgroups_below(scratch: Scratch) -> None:
    for path in ("/pod", "/pod/a"):
        scratch.make(path)
    scratch.run(["sleep", "600"], "/pod/a")
    before = open_files()
    threads = Threads(scratch.mounts["cpu"], f"{scratch.path}/pod")
    assert threads.ids(10) == [str(scratch.processes[0].pid)]
    scratch.make("/pod/b")
    scratch.make("/pod/b/deeper")
    scratch.run(["sleep", "600"], "/pod/b/deeper")
    both = {str(process.pid) for process in scratch.processes}
    assert set(threads.ids(10)) == both
    assert set(threads.delays("/proc", 10)) == both
    assert len(threads.ids(1)) == 1
    first = scratch.processes[0]
    first.kill()
    first.wait()
    _empty_and_remove(scratch, "/pod/a")
    assert threads.ids(10) == [str(scratch.processes[1].pid)]
    threads.close()
    assert open_files() == before + 2  # the second process's pipes


def test_what_a_thread_waits_is_counted(scratch: Scratch) -> None:
    scratch.make("/pod")
    for _ in range(2):
        child = scratch.run(["sh", "-c", "while :; do :; done"], "/pod")
        os.sched_setaffinity(child.pid, {min(os.sched_getaffinity(0))})
    threads = Threads(scratch.mounts["cpu"], f"{scratch.path}/pod")
    deadline = time.monotonic() + 30
    while sum(wait for _, wait in threads.delays("/proc", 10).values()) < 200_000_000:
        assert time.monotonic() < deadline, threads.delays("/proc", 10)
        time.sleep(0.02)
    threads.close()


def _empty_and_remove(scratch: Scratch, path: str) -> None:
    deadline = time.monotonic() + 30
    for controller in ("cpu", "memory", "cpuset", "pids", "blkio"):
        while scratch.folder(controller, path).exists():
            try:
                scratch.folder(controller, path).rmdir()
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.01)


def test_one_meter_of_all_cgroups_below(tree: Path) -> None:
    for name in ("app", "sidecar", "bare"):
        (tree / "pod" / name).mkdir()
    (tree / "pod" / "app" / "cpu.stat").write_text("throttled_usec 1\n")
    (tree / "pod" / "sidecar" / "cpu.stat").write_text("throttled_usec 2\n")
    (tree / "pod" / "link").symlink_to(tree / "pod" / "app")
    before = open_files()
    found = meters.below(str(tree), "/pod", "cpu.stat")
    assert found == {"app": b"throttled_usec 1\n", "sidecar": b"throttled_usec 2\n"}
    with pytest.raises(Gone):
        meters.below(str(tree), "/none", "cpu.stat")
    with pytest.raises(Refused, match="not a file that we read"):
        meters.below(str(tree), "/pod", "cgroup.procs")
    assert open_files() == before
