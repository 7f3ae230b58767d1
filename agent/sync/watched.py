"""A folder that is looked at again when something in it changes, and every so often all the same."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from asyncinotify import Inotify, Mask

log = logging.getLogger(__name__)

_GATHER_SECONDS: Final = 0.05
"""An editor changes a file in several steps, and kubectl or git several files."""
_CHANGES: Final = (
    Mask.CLOSE_WRITE | Mask.CREATE | Mask.DELETE | Mask.MOVED_FROM | Mask.MOVED_TO | Mask.ATTRIB
    | Mask.DELETE_SELF | Mask.MOVE_SELF | Mask.ONLYDIR
)  # fmt: skip


class WatchedFolder:
    """Use as a context manager; wait() again and again.

    seconds: wait() returns after them although nothing happened: what inotify does not report (a file behind
    a link, a folder that is made later, a kernel without free watches) is found then.
    """

    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder, self._seconds = folder, seconds
        self._inotify: Inotify | None = None
        self._watching = False

    def __enter__(self) -> Self:
        try:
            self._inotify = Inotify()
        except OSError as error:
            log.warning("no inotify error=%r: %s is looked at every %g s", error, self._folder, self._seconds)
        self._watch()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._inotify is not None:
            self._inotify.close()

    async def wait(self) -> None:
        """Return when something changed since the last call, or after `seconds`."""
        if self._watch():
            return  # it may have changed before it was watched
        if self._inotify is None:
            await asyncio.sleep(self._seconds)
            return
        try:
            async with asyncio.timeout(self._seconds):
                await self._next(self._inotify)
        except TimeoutError:
            return
        try:
            async with asyncio.timeout(_GATHER_SECONDS):
                while True:
                    await self._next(self._inotify)
        except TimeoutError:
            return

    async def _next(self, inotify: Inotify) -> None:
        event = await inotify.get()
        if event.mask & (Mask.IGNORED | Mask.MOVE_SELF):
            self._watching = False

    def _watch(self) -> bool:
        """True when the folder is watched from now on."""
        # The end of a watch that is told just as wait() gives up is lost; then there is none, all the same.
        if self._inotify is None or (self._watching and self._inotify.watches):
            return False
        try:
            for watch in self._inotify.watches:
                self._inotify.rm_watch(watch)
            self._inotify.add_watch(self._folder, _CHANGES)
        except OSError as error:
            log.warning("folder unwatched folder=%s error=%r", self._folder, error)
            return False
        self._watching = True
        return True
