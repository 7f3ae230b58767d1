"""Opening, reading and writing one cgroup's files, where somebody has prepared the folder for us."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel import files
from kernel.files import Group
from kernel.refused import Gone, Refused

OTHER_FILE_SYSTEM = Path("/dev/shm")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder that looks like a mounted hierarchy: /pod/box with some files."""
    box = tmp_path / "mount" / "pod" / "box"
    box.mkdir(parents=True)
    (box / "cpu.weight").write_text("100\n")
    (box / "cgroup.procs").write_text("")
    (box / "memory.current").write_text("4096\n")
    return tmp_path / "mount"


@pytest.fixture
def group(tree: Path) -> Iterator[Group]:
    made = files.opened(str(tree), "/pod/box")
    yield made
    made.close()


def _box(tree: Path) -> Path:
    return tree / "pod" / "box"


def _open_files() -> set[tuple[int, int, int]]:
    """The descriptors that are open, with what they are open on."""
    found = set()
    for number in range(1024):
        try:
            status = os.fstat(number)
        except OSError:
            continue
        found.add((number, status.st_dev, status.st_ino))
    return found


def test_read_and_write(group: Group, tree: Path) -> None:
    assert group.read("cpu.weight") == "100\n"
    group.write("cpu.weight", "250")
    assert (_box(tree) / "cpu.weight").read_text() == "250\n"
    assert group.read("cpu.weight") == "250\n"
    assert group.name == "/pod/box"


@pytest.mark.parametrize(
    "path", ["..", "/..", "/pod/../..", "/pod/.", "//pod", "/pod//box", "/pod/", "pod", "", "/\0"]
)
def test_paths_that_are_none(tree: Path, path: str) -> None:
    with pytest.raises(Refused, match="not a path"):
        files.opened(str(tree), path)


@pytest.mark.parametrize("link", ["pod", "pod/box"])
def test_a_symbolic_link_on_the_way_is_not_followed(tree: Path, tmp_path: Path, link: str) -> None:
    (tree / link).rename(tmp_path / "real")
    (tree / link).symlink_to(tmp_path / "real")
    with pytest.raises(Refused) as caught:
        files.opened(str(tree), "/pod/box")
    assert caught.value.errno in (errno.ELOOP, errno.ENOTDIR)


def test_a_file_on_the_way_is_no_folder(tree: Path) -> None:
    with pytest.raises(Refused) as caught:
        files.opened(str(tree), "/pod/box/cpu.weight")
    assert caught.value.errno == errno.ENOTDIR


def test_a_missing_cgroup_or_mountpoint(tree: Path) -> None:
    for mountpoint, path in ((tree, "/pod/gone"), (tree / "gone", "/pod")):
        with pytest.raises(Refused) as caught:
            files.opened(str(mountpoint), path)
        assert caught.value.errno == errno.ENOENT


def test_a_linked_file_is_not_followed(group: Group, tree: Path, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("7\n")
    (_box(tree) / "memory.min").symlink_to(tmp_path / "victim")
    with pytest.raises(Refused, match="ELOOP"):
        group.read("memory.min")
    with pytest.raises(Refused, match="ELOOP"):
        group.write("memory.min", "0")
    assert (tmp_path / "victim").read_text() == "7\n"


@pytest.mark.timeout(10)
def test_a_fifo_does_not_block(group: Group, tree: Path) -> None:
    os.mkfifo(_box(tree) / "memory.min")
    with pytest.raises(Refused, match="not a plain file"):
        group.read("memory.min")
    with pytest.raises(Refused):
        group.write("memory.min", "0")


def test_a_folder_or_a_socket_is_no_file(group: Group, tree: Path) -> None:
    (_box(tree) / "memory.min").mkdir()
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(_box(tree) / "memory.low"))
        for name in ("memory.min", "memory.low"):
            with pytest.raises(Refused):
                group.read(name)
            with pytest.raises(Refused):
                group.write(name, "0")


def test_another_file_system_is_refused(tree: Path) -> None:
    if not OTHER_FILE_SYSTEM.is_dir() or OTHER_FILE_SYSTEM.stat().st_dev == tree.stat().st_dev:
        pytest.skip("there is no second file system here to cross into")
    with pytest.raises(Refused, match="not of the file system"):
        files.opened("/", str(OTHER_FILE_SYSTEM))


@pytest.mark.runtime
@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_what_is_mounted_over_a_file_or_a_cgroup_is_refused(tree: Path, tmp_path: Path) -> None:
    """Whoever could mount there would have our write go into a file of another file system."""
    other = tmp_path / "other"
    other.mkdir()
    assert os.system(f"mount -t tmpfs none {other}") == 0
    try:
        (other / "cpu.weight").write_text("7\n")
        for inner, outer in ((other / "cpu.weight", _box(tree) / "cpu.weight"), (other, _box(tree))):
            assert os.system(f"mount --bind {inner} {outer}") == 0
            try:
                with pytest.raises(Refused, match="file system"):
                    files.opened(str(tree), "/pod/box").write("cpu.weight", "1")
            finally:
                assert os.system(f"umount -l {outer}") == 0
        assert (other / "cpu.weight").read_text() == "7\n"
    finally:
        assert os.system(f"umount -l {other}") == 0


@pytest.mark.parametrize(
    "name",
    ["cgroup.procs", "tasks", "release_agent", "memory.force_empty", "../cpu.weight", "/etc/passwd", ""],
)
def test_only_files_of_the_list_are_written(group: Group, tree: Path, name: str) -> None:
    before = sorted(_box(tree).iterdir())
    with pytest.raises(Refused, match="not a file that we write"):
        group.write(name, "1")
    assert sorted(_box(tree).iterdir()) == before


def test_a_missing_file_of_a_removed_cgroup_says_that_it_is_gone(group: Group, tree: Path) -> None:
    for file in list(_box(tree).iterdir()):
        file.unlink()
    for attempt in (lambda: group.read("memory.min"), lambda: group.write("memory.min", "0")):
        with pytest.raises(Gone, match="ended"):
            attempt()


def test_readable_files_are_read_and_not_written(group: Group) -> None:
    assert group.read("memory.current") == "4096\n"
    with pytest.raises(Refused, match="not a file that we write"):
        group.write("memory.current", "0")
    with pytest.raises(Refused, match="not a file that we read"):
        group.read("release_agent")


def test_a_missing_file_is_neither_made_nor_hidden(group: Group, tree: Path) -> None:
    for attempt in (lambda: group.read("memory.min"), lambda: group.write("memory.min", "0")):
        with pytest.raises(Refused) as caught:
            attempt()
        assert (caught.value.errno, caught.value.file) == (errno.ENOENT, "memory.min")
    assert not (_box(tree) / "memory.min").exists()
    assert not group.has("memory.min")
    assert group.has("cpu.weight")


def test_huge_files_and_odd_bytes_are_refused(group: Group, tree: Path) -> None:
    (_box(tree) / "memory.min").write_bytes(b"1" * (files.LIMIT + 1))
    (_box(tree) / "memory.low").write_bytes(b"\xff\n")
    with pytest.raises(Refused, match="longer than"):
        group.read("memory.min")
    with pytest.raises(Refused, match="not ASCII"):
        group.read("memory.low")


def test_the_root_is_read_and_never_written(tree: Path) -> None:
    (tree / "cpu.weight").write_text("100\n")
    root = files.opened(str(tree), "/")
    try:
        assert root.read("cpu.weight") == "100\n"
        with pytest.raises(Refused, match="root"):
            root.write("cpu.weight", "1")
    finally:
        root.close()


def test_nothing_stays_open(tree: Path) -> None:
    os.mkfifo(_box(tree) / "memory.min")
    before = _open_files()
    for path in ("/pod/box", "/pod/gone", "/pod/box/cpu.weight"):
        try:
            made = files.opened(str(tree), path)
        except Refused:
            continue
        for name in ("cpu.weight", "memory.min", "memory.max"):
            try:
                made.read(name)
                made.write(name, "3")
            except Refused:
                pass
        made.close()
    assert _open_files() == before


def test_a_refusal_names_file_group_value_and_errno() -> None:
    refused = Refused("Device or resource busy", "/pod", "memory.max", "4096", errno.EBUSY)
    assert str(refused) == "memory.max of /pod = 4096: EBUSY: Device or resource busy"
    assert str(Refused("why")) == "why"
    assert isinstance(Gone("x"), Refused)
