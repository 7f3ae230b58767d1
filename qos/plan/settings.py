"""What a plan consists of: kernel settings in write order, and what cannot be kept, said plainly."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from qos.promises import Unsupported

PROCESS: Final = -1
"""Level of a setting of the container's first process (/proc/PID), not of a cgroup."""

SET: Final = "set"
"""The file gets exactly the value: the cgroup is the container's own, or its pod's."""
RAISE: Final = "raise"
"""The file gets at least the value: the cgroup is shared, and others may need more of it."""

Entry: TypeAlias = tuple[int, str, str, str]
"""(level, mode, file, value): a setting as kernel/ and the hook's files have it."""


class Setting(NamedTuple):
    """One value for one kernel file.

    `level` counts from the container's cgroup upwards: 0 itself, 1 its pod (or its parent), 2 above that;
    PROCESS for its first process. `group` is that cgroup's path where it is known, else "". `file` has the
    kernel's spelling, `value` is exactly what is written. `reason` is for people: one clause, no period.
    """

    level: int
    group: str
    controller: str
    file: str
    value: str
    mode: str
    reason: str

    @property
    def entry(self) -> Entry:
        """The setting as kernel/ applies it."""
        return (self.level, self.mode, self.file, self.value)


class Shortfall(NamedTuple):
    """A floor that cannot be kept: in which resource, at which level, by how much. Canonical units.

    condition: "" if that is so on the node as it was planned for; else what would have to be so.
    """

    resource: str
    level: int
    group: str
    promised: int
    kept: int
    why: str
    condition: str = ""

    @property
    def missing(self) -> int:
        """How much less than promised is kept."""
        return self.promised - self.kept


class Plan(NamedTuple):
    """One container's settings, in the order in which they are written when all of them raise."""

    settings: tuple[Setting, ...]
    shortfalls: tuple[Shortfall, ...] = ()
    unsupported: tuple[Unsupported, ...] = ()
