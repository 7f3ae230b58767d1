"""How writes are noticed: by fanotify on real cgroups, and by inotify where that is not permitted."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncinotify
import pytest

from agent.enforcement import watch as watching
from agent.enforcement.fanotify import Fanotify
from agent.enforcement.watch import FANOTIFY, INOTIFY, InotifyWatch, Watch, watch
from agent.enforcement.writers import ENDED, UNSEEN
from tests.agent.enforcement.conftest import Rig, another_writes, plan
from tests.waiting import eventually, running

SHARES = "cpu.shares"

Told = list[tuple[tuple[str, str], str]]


@contextlib.asynccontextmanager
async def listening(source: Watch) -> AsyncIterator[tuple[Told, list[str]]]:
    """What it tells, and a word for each loss, while it runs."""
    told: Told = []
    losses: list[str] = []
    work = source.run(lambda spot, writer: told.append((spot, writer)), lambda: losses.append("x"))
    async with running(work):
        yield told, losses


@pytest.fixture
def rig(kernel_rig: Rig) -> Rig:
    """fanotify needs rights, and a cgroup of the kernel goes with its files."""
    return kernel_rig


@pytest.fixture
def by_fanotify(rig: Rig) -> Watch:
    found = watch(rig.mounts, rig.enforcer.writing.notes.index)
    assert found.kind == FANOTIFY, "this machine's kernel has it, and tests run as root"
    return found


async def test_fanotify_tells_others_writes_of_our_files_and_no_more(rig: Rig, by_fanotify: Watch) -> None:
    one = rig.container()
    rig.enforcer.apply(one, plan((0, SHARES, 600)))
    shell = await asyncio.create_subprocess_exec("sh", stdin=subprocess.PIPE)
    assert shell.stdin is not None
    async with listening(by_fanotify) as (told, losses):
        rig.enforcer.apply(one, plan((0, SHARES, 601)))  # ours
        for file in ("pids.max", SHARES):  # one that is not kept, and one that is
            shell.stdin.write(f"echo 77 > {rig.file(one.cgroup, file)}\n".encode())
        await eventually(lambda: told)
        assert set(told) == {((one.cgroup, SHARES), "other")}  # echo is the shell's own: it lives
        assert losses == []
    shell.stdin.close()
    await shell.wait()


async def test_fanotify_tells_of_a_writer_that_has_ended(rig: Rig, by_fanotify: Watch) -> None:
    one = rig.container()
    rig.enforcer.apply(one, plan((0, SHARES, 600)))
    another_writes(rig.file(one.cgroup, SHARES), "77")
    async with listening(by_fanotify) as (told, _):
        await eventually(lambda: told)
    assert told == [((one.cgroup, SHARES), ENDED)]


@contextlib.contextmanager
def mounted(at: Path) -> Iterator[Path]:
    """The cpu hierarchy at another place."""
    at.mkdir()
    subprocess.run(["mount", "-t", "cgroup", "-o", "cpu", "none", str(at)], check=True)
    try:
        yield at
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)  # an event that was queued has it still


async def test_fanotify_knows_a_file_wherever_it_is_mounted(
    rig: Rig, by_fanotify: Watch, tmp_path: Path
) -> None:
    one = rig.container()
    rig.enforcer.apply(one, plan((0, SHARES, 600)))
    with mounted(tmp_path / "elsewhere") as at:
        another_writes(Path(f"{at}{one.cgroup}") / SHARES, "77")
        async with listening(by_fanotify) as (told, _):
            await eventually(lambda: told)
    assert [spot for spot, _ in told] == [(one.cgroup, SHARES)]


async def test_fanotify_passes_over_a_cgroup_that_was_removed_meanwhile(rig: Rig, by_fanotify: Watch) -> None:
    one, two = rig.container(), rig.container("two", "d" * 64)
    for each in (one, two):
        rig.enforcer.apply(each, plan((0, SHARES, 600)))
        another_writes(rig.file(each.cgroup, SHARES), "77")
    rig.file(one.cgroup, SHARES).parent.rmdir()
    async with listening(by_fanotify) as (told, losses):
        await eventually(lambda: told)
        assert [spot for spot, _ in told] == [(two.cgroup, SHARES)]
        assert losses == []


@pytest.mark.parametrize(
    "event",
    [struct.pack("=IBBHQii", 24, 3, 0, 24, 0x4000, -1, 0), struct.pack("=IBBHQii", 24, 9, 0, 24, 2, -1, 5)],
)
def test_a_full_queue_and_an_unknown_version_are_losses(rig: Rig, event: bytes) -> None:
    """The queue holds 16384 events, of which equal ones count once: too many to fill it here."""
    source = Fanotify([rig.mounts["cpu"]])
    given, taken = os.pipe2(os.O_NONBLOCK)
    os.dup2(given, source.fd)
    os.write(taken, event)
    assert list(source.read()) == []
    assert source.lost == 1
    for fd in (given, taken):
        os.close(fd)
    source.close()


def test_fanotify_that_is_not_permitted_is_replaced(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(_: object) -> Fanotify:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(watching, "Fanotify", refused)
    assert watch(rig.mounts, rig.enforcer.writing.notes.index).kind == INOTIFY
    assert "fanotify cannot be had" in caplog.text


def test_fanotify_without_the_capability() -> None:
    """As a pod without CAP_SYS_ADMIN finds it: a plain refusal, and nothing stays open."""
    argv = ["setpriv", "--bounding-set=-sys_admin", sys.executable, "-c", WITHOUT]
    environ = {"PYTHONPATH": str(Path(watching.__file__).parents[2])}
    done = subprocess.run(argv, capture_output=True, text=True, env=environ, timeout=60, check=False)
    assert done.stdout == "EPERM\n", done.stderr


WITHOUT = """
import errno, os
from agent.enforcement.fanotify import Fanotify
before = len(os.listdir("/proc/self/fd"))
try:
    Fanotify(["/sys/fs/cgroup/cpu"])
except OSError as error:
    print(errno.errorcode[error.errno])
assert len(os.listdir("/proc/self/fd")) == before
"""


async def test_inotify_tells_too_of_containers_that_came_later(rig: Rig) -> None:
    one = rig.container()
    rig.enforcer.apply(one, plan((0, SHARES, 600), (0, "pids.max", 9)))
    source = InotifyWatch(rig.mounts, rig.enforcer.writing.notes.index)
    async with listening(source) as (told, losses):
        await eventually(lambda: len(source.watched()) == 2)
        another_writes(rig.file(one.cgroup, "cpu.cfs_quota_us"), "-1")  # not kept
        another_writes(rig.file(one.cgroup, SHARES), "77")
        await eventually(lambda: told)
        assert set(told) == {((one.cgroup, SHARES), UNSEEN)}
        two = rig.container("two", "d" * 64)
        rig.enforcer.apply(two, plan((0, SHARES, 600)))
        await eventually(lambda: len(source.watched()) == 3)
        another_writes(rig.file(two.cgroup, SHARES), "77")
        await eventually(lambda: ((two.cgroup, SHARES), UNSEEN) in told)
        rig.enforcer.forget(two.container_id)
        await eventually(lambda: len(source.watched()) == 2)
        assert losses == []


class Full(asyncinotify.Inotify):
    """Has one watch."""

    def add_watch(self, path: str, mask: asyncinotify.Mask) -> asyncinotify.Watch:  # type: ignore[override]
        if len(self._watches) >= 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return super().add_watch(path, mask)


def test_inotify_without_watches_left_says_so_once(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(3):
        rig.enforcer.apply(rig.container(f"app{number}", str(number) * 64), plan((0, SHARES, 600)))
    watch = InotifyWatch(rig.mounts, rig.enforcer.writing.notes.index)
    with Full() as source:
        watch.follow(source)
        watch.follow(source)
    assert len(watch.watched()) == 1
    assert caplog.text.count("no watches left") == 1
