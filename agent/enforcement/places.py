"""Where a setting goes, as a key: the same for every container that shares the cgroup. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from agent.state import Running
from kernel import values
from qos.plan.controller import OF_PROCESS, all_controllers, all_files
from qos.plan.settings import PROCESS, Entry

PROCESS_FILES: Final = frozenset(name for name, one in all_files().items() if one.hierarchy == OF_PROCESS)
"""Files of /proc/PID. They are kept under the container's cgroup: a pid says nothing after a restart."""


FileKey: TypeAlias = str
"""A file's name, and after a blank a disk's MAJOR:MINOR where it has a line for each."""


class Place(NamedTuple):
    """A kernel file of a cgroup."""

    path: str
    key: FileKey

    @property
    def file(self) -> str:
        """The file's name alone."""
        return self.key.partition(" ")[0]


def is_of_disk(file: str) -> bool:
    """Whether it has a line for each disk."""
    return file in _PER_DEVICE


class Wanted(NamedTuple):
    """What a place shall hold: SET exactly `value`, RAISE at least that."""

    mode: str
    value: str


def place(path: str, file: str, value: str) -> Place:
    """The place that the value is for. Whether the value is one of the file's, kernel/ says."""
    if is_of_disk(file):
        return Place(path, f"{file} {value.partition(' ')[0]}")
    return Place(path, file)


def wanted_by(running: Running, entries: Iterable[Entry]) -> dict[Place, Wanted]:
    """A container's settings by place. ValueError for a level above the root."""
    paths = [running.cgroup]
    found = {}
    for level, mode, file, value in entries:
        up = 0 if level == PROCESS else level
        while len(paths) <= up:
            paths.append(paths[-1].rpartition("/")[0])
        if not paths[up]:
            raise ValueError(f"{file}: level {level} is not below the root of {running.cgroup}")
        found[place(paths[up], file, value)] = Wanted(mode, value)
    return found


def same(file: str, have: str, want: str) -> bool:
    """Whether a file that reads `have` holds `want`; text that makes no sense does not."""
    try:
        return values.equal(file, have, want)
    except ValueError:
        return False


def higher(file: str, have: str, want: str) -> bool:
    """Whether `have` has something that is higher than in `want`."""
    try:
        return values.higher(file, have, want) in (values.LOWERS, values.MIXED)
    except ValueError:
        return False


def joined(file: str, one: str, other: str) -> str:
    """The least value that is lower than neither. ValueError for what is no value."""
    form = values.parse(file, other)
    return values.render(file, values.joined(file, values.present(file, one, form), form))


def controller(file: str) -> str:
    """The kernel controller that a file belongs to, as metrics name it."""
    return _CONTROLLER_OF.get(file, "other")


_CONTROLLER_OF: Final = {file.name: one.NAME for one in all_controllers() for file in one.FILES}
_PER_DEVICE: Final = frozenset(name for name, one in all_files().items() if one.per_device)
