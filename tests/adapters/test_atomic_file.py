"""Files of root's: whole or not at all, and believed only if nobody else could have written them."""

import errno
import os

import pytest

from adapters import atomic_file
from adapters.atomic_file import Untrusted, make_folder, read, sweep, write

MOST = 100


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def test_written_and_read(tmp_path):
    file = tmp_path / "a"
    write(file, b"one")
    write(file, b"two")
    assert read(file, MOST) == b"two"
    assert file.stat().st_mode & 0o777 == 0o600
    assert names(tmp_path) == ["a"]


def test_a_file_as_long_as_may_be(tmp_path):
    write(tmp_path / "a", b"x" * MOST)
    assert read(tmp_path / "a", MOST) == b"x" * MOST
    write(tmp_path / "a", b"x" * (MOST + 1))
    with pytest.raises(Untrusted, match="101 bytes, more than 100"):
        read(tmp_path / "a", MOST)


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    file = tmp_path / "a"
    write(file, b"old")
    written = []

    def some_then_full(fd, data):
        if written:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(1)
        return posix_write(fd, data[:1])

    posix_write = os.write
    monkeypatch.setattr(atomic_file.os, "write", some_then_full)
    with pytest.raises(OSError, match="No space"):
        write(file, b"new")
    monkeypatch.undo()
    assert read(file, MOST) == b"old"
    assert names(tmp_path) == ["a"]


def test_what_cannot_be_renamed_leaves_nothing_behind(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError, match="directory"):
        write(tmp_path / "a", b"x")
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_not_believed(tmp_path, mode):
    file = tmp_path / "a"
    write(file, b"x")
    file.chmod(mode)
    with pytest.raises(Untrusted, match=f"mode {mode:04o}: only uid"):
        read(file, MOST)


def test_what_is_no_plain_file_is_not_believed(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/hostname")
    for name in ("folder", "pipe"):
        with pytest.raises(Untrusted, match="is not a plain file"):
            read(tmp_path / name, MOST)
    with pytest.raises(OSError, match="symbolic links"):
        read(tmp_path / "link", MOST)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none", MOST)


def test_a_folder_of_our_own(tmp_path):
    folder = tmp_path / "a" / "b"
    make_folder(folder)
    make_folder(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o770)
    with pytest.raises(Untrusted, match="mode 0770"):
        make_folder(folder)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    with pytest.raises(Untrusted, match="is not a folder itself"):
        make_folder(tmp_path / "link")


def test_only_drafts_of_ended_writers_are_swept(tmp_path):
    ended, ours, running = ".a.4194999.1", f".a.b.{os.getpid()}.1", f".a.{os.getppid()}.1"
    for name in (ended, ours, running, ".hidden", "a.1.2", ".x.y.z"):
        (tmp_path / name).touch()
    sweep(tmp_path)
    assert names(tmp_path) == sorted([running, ".hidden", "a.1.2", ".x.y.z"])
    sweep(tmp_path / "none")
