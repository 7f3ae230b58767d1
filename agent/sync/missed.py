"""RUN/missed: which containers the OCI hook could not give their settings, as its markers say."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from adapters import atomic_file
from kernel.cache import is_name
from kernel.membership import is_id

log = logging.getLogger(__name__)

FOLDER: Final = "missed"
_LARGEST: Final = 4096
_MOST: Final = 1000
"""The most markers that are read: as many as the hook leaves (hook.markers.MOST)."""


@dataclass(frozen=True, slots=True)
class MissedStart:
    """A container that started without its settings, or with its class's default.

    marker: the file's name. pod_uid: "" outside Kubernetes; container: its name in the pod, "" not known.
    """

    marker: str
    container_id: str
    pod_uid: str
    container: str
    reason: str


class Missed:
    """The markers. Whoever has dealt with one says so; it is removed then, and only then."""

    def __init__(self, run: Path) -> None:
        self._folder = run / FOLDER

    def read(self) -> Iterator[MissedStart]:
        """The markers, at most 1000. A file that is none is logged and removed."""
        atomic_file.sweep(self._folder)
        try:
            names = sorted(entry.name for entry in self._folder.iterdir())
        except OSError:
            return
        for name in [name for name in names if is_name(name)][:_MOST]:
            found = self._read(name)
            if found is not None:
                yield found

    def settled(self, one: MissedStart) -> None:
        """It was dealt with. A marker that was left anew meanwhile, by the next container, stays."""
        if self._read(one.marker) == one:
            self._remove(one.marker)

    def _read(self, name: str) -> MissedStart | None:
        file = self._folder / name
        try:
            text = atomic_file.read(file, _LARGEST).decode("ascii")
            facts = dict(line.partition("\t")[::2] for line in text.splitlines())
            one = MissedStart(name, facts["id"], facts["pod"], facts["container"], facts["reason"])
            if not is_id(one.container_id):
                raise ValueError(f"{one.container_id!r} is no container's id")
        except FileNotFoundError:
            return None
        except (OSError, atomic_file.Untrusted, ValueError, KeyError) as error:
            log.warning("marker unread file=%s error=%r: removed", file, error)
            self._remove(name)
            return None
        return one

    def _remove(self, name: str) -> None:
        try:
            (self._folder / name).unlink(missing_ok=True)
        except OSError as error:
            log.warning("marker stays file=%s error=%r", self._folder / name, error)
