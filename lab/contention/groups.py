"""cgroups of a test: made below the root as kubelet would, removed with all that runs in them."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

from qos.plan.layout import Driver

_SECONDS_TO_END = 120.0


class Group:
    """A cgroup v2: its folder, and its kernel files by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __str__(self) -> str:
        return str(self.folder)

    def read(self, file: str) -> str:
        """A kernel file, without the last line's end."""
        return (self.folder / file).read_text().rstrip("\n")

    def write(self, file: str, value: object) -> None:
        """Write a kernel file as it is given."""
        (self.folder / file).write_text(str(value))

    def number(self, file: str, key: str = "") -> int:
        """An integer of a kernel file; key: the first word of its line (cpu.stat, memory.events)."""
        text = self.read(file)
        if not key:
            return int(text)
        lines = dict(line.split(maxsplit=1) for line in text.splitlines())
        return int(lines[key])

    def pressure(self, resource: str, kind: str = "some") -> int:
        """Microseconds in which its processes waited for cpu, memory or io (PSI totals)."""
        for line in self.read(f"{resource}.pressure").splitlines():
            name, *values = line.split()
            if name == kind:
                return int(dict(value.split("=") for value in values)["total"])
        raise KeyError(kind)

    def pids(self) -> list[int]:
        """Processes in it, not below it."""
        return [int(pid) for pid in self.read("cgroup.procs").split()]

    def wait_empty(self) -> None:
        """Wait until nothing runs in it or below."""
        deadline = time.monotonic() + _SECONDS_TO_END
        while self.number("cgroup.events", "populated"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self}: processes are left after {_SECONDS_TO_END:g} s")
            time.sleep(0.01)


class Tree:
    """All cgroups of one test, by their path below the mountpoint."""

    driver = Driver.CGROUPFS

    def __init__(self, mountpoint: Path = Path("/sys/fs/cgroup")) -> None:
        self._mountpoint = mountpoint
        self._made: list[Group] = []

    def make(self, path: str, **values: object) -> Group:
        """Make a cgroup with all that is missing above it, every controller passed down, and set its files.

        values: by the file's name with _ for the dot: cpu_weight=50 is cpu.weight.
        """
        folder = self._mountpoint
        for part in path.strip("/").split("/"):
            self._pass_down(folder)
            folder = folder / part
            if not folder.exists():
                self._made.append(Group(folder))
                self._create(folder)
        group = Group(folder)
        for name, value in values.items():
            group.write(name.replace("_", ".", 1), value)
        return group

    def busy(self, name: str) -> Group:
        """A cgroup of the host's below the root, or one in it, for a test to keep busy."""
        return self.make(name)

    def remove(self) -> None:
        """Kill and remove all of it, the innermost first, and what others have made below (podman does)."""
        for group in self._made:
            group.write("cgroup.kill", 1)
        for group in reversed(self._made):
            group.wait_empty()
            for below, _, _ in os.walk(group.folder, topdown=False):
                _rmdir(Path(below))
        self._made.clear()

    def _create(self, folder: Path) -> None:
        folder.mkdir()

    def _pass_down(self, folder: Path) -> None:
        have = (folder / "cgroup.controllers").read_text().split()
        enabled = (folder / "cgroup.subtree_control").read_text().split()
        if missing := [f"+{name}" for name in have if name not in enabled]:
            (folder / "cgroup.subtree_control").write_text(" ".join(missing))


def _rmdir(folder: Path) -> None:
    """A cgroup whose last process has just ended is busy for a moment."""
    deadline = time.monotonic() + _SECONDS_TO_END
    while folder.exists():
        try:
            folder.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
