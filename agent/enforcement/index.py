"""Which kernel file is which: by device and inode, as events tell of it, and by path."""

from __future__ import annotations

from collections.abc import Iterator

from kernel.change import Change
from kernel.refused import Refused
from qos.plan.settings import PROCESS

Spot = tuple[str, str]
"""(cgroup's path, file)."""


class FileIndex:
    """(st_dev, st_ino) -> (cgroup's path, file): the same wherever the hierarchy is mounted."""

    def __init__(self) -> None:
        self._spots: dict[tuple[int, int], Spot] = {}
        self._of: dict[str, dict[str, tuple[int, int]]] = {}
        self.generation = 0
        """Changes when files come or go."""

    def __len__(self) -> int:
        return len(self._spots)

    def __contains__(self, spot: object) -> bool:
        return isinstance(spot, tuple) and spot[1] in self._of.get(spot[0], ())

    def find(self, identity: tuple[int, int]) -> Spot | None:
        """The file, if it is one of ours."""
        return self._spots.get(identity)

    def paths(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Each cgroup with the names of its files."""
        return ((path, tuple(files)) for path, files in self._of.items())

    def add(self, change: Change) -> None:
        """A file of a cgroup that is open; what has gone meanwhile is left out."""
        path, file = change.group.name, change.file
        if change.level == PROCESS:
            return
        try:
            identity = change.group.identity(file)
        except Refused:
            return
        before = self._of.setdefault(path, {}).get(file)
        if before == identity:
            return
        if before is not None:  # the cgroup was removed and made anew
            del self._spots[before]
        self._of[path][file] = identity
        self._spots[identity] = path, file
        self.generation += 1

    def forget(self, path: str) -> None:
        """The cgroup is gone, or nothing of it is ours any more."""
        for identity in self._of.pop(path, {}).values():
            del self._spots[identity]
            self.generation += 1
