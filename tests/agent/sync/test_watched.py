"""A folder that is looked at again when something in it changes."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from agent.sync import watched as watched_module
from agent.sync.watched import WatchedFolder

NEVER = 600.0
DEADLINE = 60.0


async def changed(watched: WatchedFolder) -> None:
    async with asyncio.timeout(DEADLINE):
        await watched.wait()


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file.write_text("more"),
        lambda file: file.unlink(),
        lambda file: file.rename(file.with_name("b")),
        lambda file: file.with_name("c").symlink_to(file),
    ],
)
async def test_each_change_is_told(tmp_path: Path, change: Any) -> None:
    file = tmp_path / "a"
    file.write_text("x")
    with WatchedFolder(tmp_path, NEVER) as watched:
        change(file)
        await changed(watched)


async def test_many_changes_are_told_once(tmp_path: Path) -> None:
    with WatchedFolder(tmp_path, NEVER) as watched:
        for number in range(50):
            (tmp_path / str(number)).touch()
        await changed(watched)
        watched._seconds = 0.2
        began = time.monotonic()
        await changed(watched)
        assert time.monotonic() - began >= 0.19


async def test_a_folder_that_comes_later_or_again(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    with WatchedFolder(folder, 0.01) as watched:
        await changed(watched)
        folder.mkdir()
        await changed(watched)
        folder.rmdir()
        await changed(watched)
        folder.mkdir()
        watched._seconds = NEVER
        await changed(watched)
        (folder / "a").touch()
        await changed(watched)


async def test_a_folder_that_comes_again_is_watched_though_its_end_was_not_heard(tmp_path: Path) -> None:
    """A wait that ends just as inotify tells something has not heard it."""
    folder = tmp_path / "later"
    folder.mkdir()
    with WatchedFolder(folder, NEVER) as watched:
        inotify = watched._inotify
        assert inotify is not None
        folder.rmdir()
        inotify.sync_get()
        inotify._events.clear()
        folder.mkdir()
        await changed(watched)
        (folder / "a").touch()
        await changed(watched)


async def test_without_inotify_time_goes_by(tmp_path: Path, monkeypatch: Any, caplog: Any) -> None:
    def none() -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(watched_module, "Inotify", none)
    with WatchedFolder(tmp_path, 0.01) as watched:
        await changed(watched)
    assert "no inotify" in caplog.text
