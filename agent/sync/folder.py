"""Pods, policies, profiles and PriorityClasses from a folder of YAML: a node without Kubernetes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from agent.state import Known
from agent.sync.folder_files import Merged, ReadFile, merge, read_folder
from agent.sync.source import Changed, Kind
from agent.sync.watched import WatchedFolder

log = logging.getLogger(__name__)

_SECONDS: Final = 30.0


class FolderSource:
    """Follows the files *.yaml, *.yml and *.json of a folder, not those of folders in it.

    A Source (agent.sync.source). A file that cannot be read is logged with its line, and its last good state
    stays; while a file has none, nothing that was known before is forgotten, and the source has not spoken.
    Nor does a folder that is gone make anything forgotten. Pods without metadata.uid have namespace/name for
    one. seconds: the interval between two looks, whether or not anything seems to have changed.
    """

    def __init__(self, folder: Path, known: Known, changed: Changed, *, seconds: float = _SECONDS) -> None:
        self.spoken = asyncio.Event()
        self._folder, self._known, self._changed, self._seconds = folder, known, changed, seconds
        self._files: dict[Path, ReadFile] = {}
        self._problems: tuple[str, ...] = ()
        self._told: dict[str, dict[str, Any]] = {
            "pods": {uid: one for uid, one in known.pods.items() if not one.provisional},
            "policies": dict(known.policies),
            "profiles": dict(known.profiles),
            "priority_classes": dict(known.priority_classes),
        }

    async def run(self) -> None:
        """Follow until cancelled."""
        with WatchedFolder(self._folder, self._seconds) as watched:
            while True:
                await self._look()
                await watched.wait()

    def problem(self) -> str:
        """The first problem with the files, "" for none."""
        return self._problems[0] if self._problems else ""

    async def _look(self) -> None:
        try:
            # In a thread: reading YAML with its line numbers takes a second for a few hundred pods.
            self._files = await asyncio.to_thread(read_folder, self._folder, self._files)
        except OSError as error:
            self._tell((f"{self._folder}: cannot be read: {error.strerror}: what is known stays",))
            return
        merged = merge(self._files)
        self._tell(tuple(map(str, merged.problems)))
        self._apply(merged)
        if merged.complete and not self.spoken.is_set():
            self.spoken.set()
            log.info("folder has spoken folder=%s pods=%d", self._folder, len(merged.known.pods))

    def _tell(self, problems: tuple[str, ...]) -> None:
        for problem in problems:
            if problem not in self._problems:
                log.error("file refused %s", problem)
        self._problems = problems

    def _apply(self, merged: Merged) -> None:
        for name in self._told:
            kind: Kind = "pods" if name == "pods" else "rules"
            self._merge(kind, name, getattr(merged.known, name), forget=merged.complete)

    def _merge(self, kind: Kind, name: str, now: Mapping[str, Any], *, forget: bool) -> None:
        """Take over what differs from what was reported last; what others put into Known is theirs."""
        told, kept = self._told[name], getattr(self._known, name)
        for key, value in now.items():
            if key not in told or told[key] != value:
                told[key] = kept[key] = value
                self._changed(kind, key)
        for key in told.keys() - now.keys() if forget else ():
            del told[key]
            if kept.pop(key, None) is not None:
                self._changed(kind, key)
