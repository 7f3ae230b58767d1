"""Files that say what a cgroup or the machine has used: opened once, read many times. Nothing is written.

A meter's descriptor stays open, and one pread() gives its text as it is now; the cgroup's folder does not.
"""

import posix

from kernel import files
from kernel.refused import GONE, Gone, Refused, from_os

METERS = frozenset(
    (
        "blkio.throttle.io_service_bytes",
        "blkio.throttle.io_service_bytes_recursive",
        "cgroup.threads",
        "cpu.cfs_period_us",
        "cpu.cfs_quota_us",
        "cpu.max",
        "cpu.pressure",
        "cpu.stat",
        "cpuacct.usage",
        "io.pressure",
        "io.stat",
        "memory.current",
        "memory.events",
        "memory.pressure",
        "memory.stat",
        "memory.usage_in_bytes",
        "tasks",
    )
)
"""Meters of a cgroup, v1 and v2."""

OF_THE_MACHINE = frozenset(("meminfo", "pressure/cpu", "pressure/io", "pressure/memory", "stat", "vmstat"))
"""Below /proc."""

_READ = posix.O_RDONLY | posix.O_NONBLOCK | posix.O_NOFOLLOW | posix.O_CLOEXEC | posix.O_NOCTTY
_FOLDER = posix.O_RDONLY | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC
_CHUNK = 16384
"""Bytes of one read; cgroup meters come whole in one, unless somebody has some 150 disks."""
_HALF_A_PAGE = 2048
"""The kernel fills a page with whole lines before it ends a read: what is so short was all."""


class Meters:
    """Open meters of one cgroup, or of the machine. `names`: those that there are. `close()` when done."""

    __slots__ = ("_fds", "path")

    def __init__(self, path: str, fds: "dict[str, int]") -> None:
        self.path = path
        self._fds = fds

    @property
    def names(self) -> "frozenset[str]":
        """The meters that can be read."""
        return frozenset(self._fds)

    def read(self, name: str) -> bytes:
        """The text as it is now, of one read. Raises Gone when the cgroup was removed, and Refused."""
        try:
            return posix.pread(self._fds[name], _CHUNK, 0)
        except OSError as error:
            raise self._refusal(error, name) from None

    def whole(self, name: str) -> bytes:
        """The text of as many reads as it takes: lists of threads come a page at a time."""
        data = b""
        try:
            while chunk := posix.pread(self._fds[name], _CHUNK, len(data)):
                data += chunk
                if len(chunk) < _HALF_A_PAGE:
                    break
        except OSError as error:
            raise self._refusal(error, name) from None
        return data

    def close(self) -> None:
        """Close them all; once is enough."""
        for fd in self._fds.values():
            posix.close(fd)
        self._fds = {}

    def _refusal(self, error: OSError, name: str) -> Refused:
        if error.errno in GONE:
            return Gone("the cgroup was removed", self.path, name, errno=error.errno or 0)
        return from_os(error, self.path, name)


def of_cgroup(mountpoint: str, path: str, names: "tuple[str, ...]") -> Meters:
    """Those of the named meters that the cgroup has and that can be read, its folder closed again.

    A kernel without PSI shows no cpu.pressure, or refuses to read it: it is left out then. Raises Gone where
    there is no such cgroup, Refused for what kernel/files.py refuses and for names that are no meters.
    """
    group = files.opened(mountpoint, path)
    try:
        return of_group(group, names)
    finally:
        posix.close(group.fd)


def of_group(group: files.Group, names: "tuple[str, ...]") -> Meters:
    """The same of a cgroup that is open, and stays so."""
    fds: dict[str, int] = {}
    try:
        for name in names:
            if name not in METERS:
                raise Refused("not a file that we read", group.name, name)
            _open(group, name, fds)
    except BaseException:
        Meters(group.name, fds).close()
        raise
    return Meters(group.name, fds)


def below(mountpoint: str, path: str, name: str) -> "dict[str, bytes]":
    """The text of one meter of each cgroup directly below, by its name; of those that have it.

    Nothing stays open. Raises Gone where there is no such cgroup, and Refused.
    """
    group = files.opened(mountpoint, path)
    found: dict[str, bytes] = {}
    try:
        for folder in children(group):
            child = entered(group, folder)
            if child is not None:
                try:
                    _read_once(child, name, folder, found)
                finally:
                    posix.close(child.fd)
    finally:
        posix.close(group.fd)
    return found


def _read_once(group: files.Group, name: str, key: str, found: "dict[str, bytes]") -> None:
    opened = of_group(group, (name,))
    try:
        if opened.names:
            found[key] = opened.read(name)
    except Gone:
        pass
    finally:
        opened.close()


def children(group: files.Group) -> "list[str]":
    """Names of the cgroups directly below one. Raises Gone, Refused."""
    try:
        with posix.scandir(group.fd) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError as error:
        if error.errno in GONE:
            raise Gone("the cgroup was removed", group.name, errno=error.errno or 0) from None
        raise from_os(error, group.name) from None


def entered(group: files.Group, child: str) -> "files.Group | None":
    """One below, open; None when it has gone meanwhile."""
    try:
        fd = posix.open(child, _FOLDER, dir_fd=group.fd)
    except OSError:
        return None
    return files.Group(fd, group.name + "/" + child, group.device)


def of_machine(proc: str, names: "tuple[str, ...]") -> Meters:
    """The named files below /proc that exist."""
    fds: dict[str, int] = {}
    for name in names:
        if name not in OF_THE_MACHINE:
            raise Refused("not a file that we read", proc, name)
        try:
            fds[name] = posix.open(proc + "/" + name, _READ)
            posix.pread(fds[name], 1, 0)
        except OSError:
            _forget(fds, name)
    return Meters(proc, fds)


def _open(group: files.Group, name: str, fds: "dict[str, int]") -> None:
    """Raises Refused when no more files can be opened, or it is no plain file of the cgroup's file system."""
    try:
        fds[name] = posix.open(name, _READ, dir_fd=group.fd)
    except OSError as error:
        if error.errno in GONE:
            return
        raise from_os(error, group.name, name) from None
    status = posix.fstat(fds[name])
    if status.st_mode & 0o170000 != 0o100000 or status.st_dev != group.device:
        raise Refused("not a plain file of this file system", group.name, name)
    try:
        posix.pread(fds[name], 1, 0)
    except OSError:
        _forget(fds, name)


def _forget(fds: "dict[str, int]", name: str) -> None:
    fd = fds.pop(name, None)
    if fd is not None:
        posix.close(fd)
