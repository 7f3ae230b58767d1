"""RUN/found: what a pod's cgroup held before the OCI hook wrote into it, as the hook left it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from adapters import atomic_file
from agent.enforcement.places import Place
from kernel.cache import is_name
from kernel.membership import pod_uid

log = logging.getLogger(__name__)

FOLDER: Final = "found"
_LARGEST: Final = 16 << 10


class Found:
    """The hook's notes, one file a pod. What is not readable counts for nothing; nothing is raised."""

    def __init__(self, run: Path) -> None:
        self._folder = run / FOLDER

    def value(self, place: Place) -> str | None:
        """What the hook found at a place of a pod's own cgroup; None: it left no note of that."""
        uid = pod_uid(place.path)
        if not is_name(uid):
            return None
        return dict(self._of(uid)).get(place)

    def _of(self, uid: str) -> Iterator[tuple[Place, str]]:
        try:
            text = atomic_file.read(self._folder / uid, _LARGEST).decode("ascii")
        except FileNotFoundError:
            return
        except (OSError, ValueError, atomic_file.Untrusted) as error:
            log.warning("note of the hook unread file=%s error=%r", self._folder / uid, str(error))
            return
        for line in text.splitlines():
            path, _, rest = line.partition("\t")
            file, _, value = rest.partition("\t")
            if value:
                yield Place(path, file), value

    def all(self) -> Iterator[tuple[Place, str]]:
        """Everything that the hook has noted."""
        with contextlib.suppress(FileNotFoundError):
            for uid in sorted(entry.name for entry in self._folder.iterdir() if is_name(entry.name)):
                yield from self._of(uid)

    def keep(self, uids: Collection[str]) -> None:
        """Remove the notes of all pods but these."""
        try:
            names = [entry.name for entry in self._folder.iterdir()]
        except OSError:
            return
        for name in names:
            if name not in uids and is_name(name):
                (self._folder / name).unlink(missing_ok=True)
