"""Scratch cgroups: one folder of our own in every hierarchy, below which a test's containers live.

On cgroup v1 that is a folder in each controller's hierarchy (and, on a hybrid machine, in the unified one,
where runc makes its groups too); on v2 the one folder, with every controller passed down to its children.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernel.hierarchies import every_mount
from lab.runtimes.programs import RuntimesError

_METERS = ("usage", "max_usage_in_bytes", "failcnt", "peak", "pressure", "procs", "tasks", "threads")
"""Ends of names of writable files that hold no setting: writing them resets them, or moves processes."""
_PER_CPUSET = ("cpuset.cpus", "cpuset.mems")
_SECONDS_TO_EMPTY = 20.0


def hierarchies(mountinfo: str) -> dict[str, Path]:
    """Mountpoints by what is there: a v1 controller, `name=systemd`, or "" for the unified hierarchy."""
    return {name: Path(place) for name, place in every_mount(mountinfo).items()}


def is_v2(mounts: Mapping[str, Path]) -> bool:
    """True where every controller is in the unified hierarchy."""
    return set(mounts) == {""}


@dataclass(frozen=True, slots=True)
class Scratch:
    """A cgroup of ours in every hierarchy. `name` is its path below each mountpoint, beginning with /."""

    name: str
    mounts: Mapping[str, Path]

    def path(self, *parts: str) -> str:
        """A cgroupsPath below the scratch cgroup, such as path("kubepods", "podX", "c1")."""
        return "/".join((self.name, *parts))

    def folder(self, controller: str, *parts: str) -> Path:
        """Where the kernel files of a controller are, for the scratch cgroup or one below it."""
        mount = self.mounts.get(controller, self.mounts.get(""))
        if mount is None:
            raise RuntimesError(f"no cgroup hierarchy has the controller {controller!r}")
        return Path(f"{mount}{self.path(*parts)}")

    def folders(self, *parts: str) -> list[Path]:
        """The same in every hierarchy, whether it exists or not."""
        return [Path(f"{mount}{self.path(*parts)}") for mount in sorted(set(self.mounts.values()))]

    def make(self, *parts: str) -> Scratch:
        """Make a cgroup below, in every hierarchy, ready for processes; answer it."""
        name = self.name
        for part in parts:
            name = f"{name}/{part}"
            here = Scratch(name, self.mounts)
            for folder in here.folders():
                _make(folder)
        return Scratch(name, self.mounts)

    def below(self) -> list[str]:
        """Paths of all cgroups below, in any hierarchy, relative to the scratch cgroup."""
        found = set()
        for folder in self.folders():
            found |= {str(Path(at).relative_to(folder)) for at, _, _ in os.walk(folder) if Path(at) != folder}
        return sorted(found)

    def snapshot(self) -> dict[str, str]:
        """Every setting in it and below, by its path: compare before and after. Meters are left out."""
        found = {}
        for folder in self.folders():
            for at, _, files in os.walk(folder):
                for path in (Path(at, file) for file in files if not file.endswith(_METERS)):
                    if path.stat().st_mode & 0o200:
                        with contextlib.suppress(OSError, UnicodeDecodeError):
                            found[str(path)] = path.read_text()
        return found

    def remove(self) -> None:
        """Kill what runs in it and remove it with all below; RuntimesError names what cannot be removed."""
        for folder in self.folders():
            _empty(folder)
            for at, _, _ in os.walk(folder, topdown=False):
                _rmdir(Path(at))


@contextlib.contextmanager
def scratch(label: str = "test", proc: Path = Path("/proc")) -> Iterator[Scratch]:
    """A cgroup of our own for the time of the block; nothing of it stays."""
    mounts = hierarchies((proc / "self" / "mountinfo").read_text())
    if not mounts:
        raise RuntimesError("no cgroup file system is mounted here")
    here = Scratch(f"/j10ce-{label}-{secrets.token_hex(3)}", mounts)
    try:
        for folder in here.folders():
            _make(folder)
        yield here
    finally:
        here.remove()


def _make(folder: Path) -> None:
    """mkdir, with what a new cgroup lacks: a v1 cpuset's CPUs and nodes, a v2 parent's controllers."""
    parent = folder.parent
    controllers = parent / "cgroup.controllers"
    if controllers.exists():
        wanted = controllers.read_text().split()
        enabled = (parent / "cgroup.subtree_control").read_text().split()
        for one in set(wanted) - set(enabled):
            with contextlib.suppress(OSError):  # a busy parent passes nothing down: the runtime will say so
                (parent / "cgroup.subtree_control").write_text(f"+{one}")
    folder.mkdir(exist_ok=True)
    for name in _PER_CPUSET:
        file = folder / name
        if not controllers.exists() and file.exists() and not file.read_text().strip():
            file.write_text((parent / name).read_text())


def _empty(folder: Path) -> None:
    """Kill every process below until there is none."""
    deadline = time.monotonic() + _SECONDS_TO_EMPTY
    while pids := _pids(folder):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise RuntimesError(f"{folder}: {sorted(pids)} still run {_SECONDS_TO_EMPTY:g} s after SIGKILL")
        time.sleep(0.005)


def _pids(folder: Path) -> set[int]:
    found: set[int] = set()
    for at, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            found |= {int(word) for word in Path(at, "cgroup.procs").read_text().split()}
    return found - {os.getpid()}


def _rmdir(folder: Path) -> None:
    """A cgroup whose last process has just ended is busy for a moment."""
    deadline = time.monotonic() + _SECONDS_TO_EMPTY
    while True:
        try:
            folder.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise RuntimesError(f"{folder} cannot be removed: {error.strerror}") from error
        time.sleep(0.005)
