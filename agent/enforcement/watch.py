"""Notices when somebody writes a file that we keep: by fanotify where it is permitted, else by inotify."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from agent.enforcement import writers
from agent.enforcement.fanotify import Fanotify
from agent.enforcement.index import FileIndex, Spot
from kernel.allowed import ALLOWED

if TYPE_CHECKING:
    import asyncinotify

UNIFIED: Final = ""
FANOTIFY: Final = "fanotify"
INOTIFY: Final = "inotify"
_NEW_FILES_AFTER: Final = 0.25
"""Seconds between two updates of what inotify watches, to the files that are ours by now."""

log = logging.getLogger(__name__)

Changed = Callable[[Spot, str], None]
"""(cgroup's path, file), one of writers.WRITERS, ENDED or UNSEEN."""
Lost = Callable[[], None]
"""Some writes went unreported: only a full check sees them."""


class Watch(Protocol):
    """`kind`: FANOTIFY or INOTIFY. `tells_writers`: whether it sees who writes."""

    kind: str
    tells_writers: bool

    async def run(self, changed: Changed, lost: Lost) -> None:
        """Until cancelled: call `changed` for each write of others, `lost` when some were missed."""


def watch(mounts: Mapping[str, str], index: FileIndex, proc: str = "/proc") -> Watch:
    """The best that there is here. mounts: v1 controller, "" for cgroup v2 -> mountpoint."""
    needed = {mounts[name] for name in _HIERARCHIES if name in mounts}
    try:
        return FanotifyWatch(sorted(needed), index, proc)
    except OSError as error:
        log.warning(
            "fanotify cannot be had why=%r: inotify it is, which does not tell who writes", str(error)
        )
        return InotifyWatch(mounts, index)


class FanotifyWatch:
    """Watches all files of the hierarchies, and sees the writer's pid. Raises OSError as Fanotify does."""

    kind = FANOTIFY
    tells_writers = True

    def __init__(self, mountpoints: Sequence[str], index: FileIndex, proc: str) -> None:
        self._mountpoints = mountpoints
        self._first: Fanotify | None = Fanotify(mountpoints)
        self._index = index
        self._proc = proc
        self._own = os.getpid()

    async def run(self, changed: Changed, lost: Lost) -> None:
        """Until cancelled; it may be run again. Raises OSError as Fanotify does."""
        source, self._first = self._first or Fanotify(self._mountpoints), None
        loop = asyncio.get_running_loop()
        loop.add_reader(source.fd, self._read, source, changed, lost)
        try:
            await asyncio.Event().wait()
        finally:
            loop.remove_reader(source.fd)
            source.close()

    def _read(self, source: Fanotify, changed: Changed, lost: Lost) -> None:
        before = source.lost
        for identity, pid in source.read():
            if pid == self._own:
                continue
            spot = self._index.find(identity)
            if spot is not None:
                changed(spot, writers.seen(pid, self._proc))
        if source.lost > before:
            lost()


class InotifyWatch:
    """Watches the folders of our files, and does not see the writer: our own writes are reported like any
    others.
    """

    kind = INOTIFY
    tells_writers = False

    def __init__(self, mounts: Mapping[str, str], index: FileIndex) -> None:
        self._mounts = mounts
        self._index = index
        self._watches: dict[str, asyncinotify.Watch] = {}
        self._path_of: dict[str, str] = {}
        self._full = False

    def watched(self) -> frozenset[str]:
        """The folders that are watched."""
        return frozenset(self._watches)

    async def run(self, changed: Changed, lost: Lost) -> None:
        """Until cancelled."""
        from asyncinotify import Inotify, Mask  # a megabyte that most nodes do without

        with Inotify(cache_size=1000) as source:
            keeping = asyncio.create_task(self._keep_up(source))
            try:
                async for event in source:
                    if event.mask & Mask.Q_OVERFLOW:
                        lost()
                    elif event.watch is not None and event.name is not None:
                        spot = self._path_of.get(str(event.watch.path), ""), str(event.name)
                        if spot in self._index:
                            changed(spot, writers.UNSEEN)
            finally:
                keeping.cancel()

    def follow(self, source: asyncinotify.Inotify) -> None:
        """Watch what is ours by now, and no more: a watch keeps a removed cgroup's inode alive."""
        from asyncinotify import Mask

        self._path_of = folders = self._folders()
        for folder in self._watches.keys() - folders.keys():
            source.rm_watch(self._watches.pop(folder))
        for folder in folders.keys() - self._watches.keys():
            try:
                self._watches[folder] = source.add_watch(
                    folder, Mask.MODIFY | Mask.ONLYDIR | Mask.DONT_FOLLOW
                )
            except OSError as error:
                if error.errno == errno.ENOSPC:
                    self._tell_full(folder)
                    return

    async def _keep_up(self, source: asyncinotify.Inotify) -> None:
        seen = -1
        while True:
            if self._index.generation != seen:
                seen = self._index.generation
                self.follow(source)
            await asyncio.sleep(_NEW_FILES_AFTER)

    def _folders(self) -> dict[str, str]:
        """Folder of files of ours -> the cgroup's path."""
        return {self._folder(path, file): path for path, files in self._index.paths() for file in files}

    def _folder(self, path: str, file: str) -> str:
        return f"{self._mounts.get(ALLOWED[file][0]) or self._mounts[UNIFIED]}{path}"

    def _tell_full(self, folder: str) -> None:
        if not self._full:
            self._full = True
            log.warning(
                "inotify has no watches left folder=%s: raise fs.inotify.max_user_watches; until then only "
                "the full check sees changes of some cgroups", folder,
            )  # fmt: skip


_HIERARCHIES: Final = {hierarchy for hierarchy, *_ in ALLOWED.values()}
