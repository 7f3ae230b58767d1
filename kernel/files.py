"""One cgroup (or one /proc/PID) and its files: opened by dir_fd, read and written by name.

Nothing is opened by a whole path below the mountpoint: each component by itself, never through a symbolic
link, never blocking. Only names of kernel/allowed.py are written; READABLE ones can be read besides.
"""

import posix

from kernel.allowed import ALLOWED
from kernel.refused import GONE, Gone, Refused, from_os

READABLE = frozenset(
    (
        "cgroup",
        "cgroup.controllers",
        "cgroup.events",
        "cgroup.procs",
        "cgroup.subtree_control",
        "cgroup.type",
        "cpuset.cpus.effective",
        "cpuset.effective_cpus",
        "cpuset.effective_mems",
        "cpuset.mems.effective",
        "memory.current",
        "memory.memsw.usage_in_bytes",
        "memory.usage_in_bytes",
        "stat",
    )
)
"""Files that are read, never written."""

LIMIT = 65536
"""Longer contents are refused."""

_FOLDER = posix.O_RDONLY | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC
_READ = posix.O_RDONLY | posix.O_NONBLOCK | posix.O_NOFOLLOW | posix.O_CLOEXEC | posix.O_NOCTTY
_WRITE = posix.O_WRONLY | posix.O_NONBLOCK | posix.O_NOFOLLOW | posix.O_CLOEXEC | posix.O_NOCTTY


class Group:
    """An open cgroup, or an open /proc/PID.

    `fd`: its folder; `name`: its path from the hierarchy's root, or /proc/PID; `device`: of the file system
    that its files must be on (st_dev). `close()` when done. All methods raise Refused, with the errno where
    it was the kernel, and Gone when the process has ended or the cgroup was removed.
    """

    __slots__ = ("_open", "device", "fd", "name")

    def __init__(self, fd: int, name: str, device: int) -> None:
        self.fd = fd
        self.name = name
        self.device = device
        self._open: dict[str, int] = {}

    def read(self, file: str) -> str:
        """The file's text as the kernel gives it, with its newline."""
        if file not in ALLOWED and file not in READABLE:
            raise Refused("not a file that we read", self.name, file)
        fd = self._open.get(file)
        try:
            if fd is None:
                fd = self._open[file] = self._opened(file, _READ)
            data = posix.pread(fd, LIMIT + 1, 0)
        except OSError as error:
            raise self._refusal(error, file) from None
        if len(data) > LIMIT:
            raise Refused("longer than " + str(LIMIT) + " bytes", self.name, file)
        if not data.isascii():
            raise Refused("not ASCII", self.name, file)
        return data.decode()

    def has(self, file: str) -> bool:
        """Whether this kernel has the file, in this cgroup."""
        try:
            posix.stat(file, dir_fd=self.fd, follow_symlinks=False)
        except OSError:
            return False
        return True

    def identity(self, file: str) -> "tuple[int, int]":
        """(st_dev, st_ino): the same file, wherever its hierarchy is mounted; never used anew."""
        try:
            status = posix.stat(file, dir_fd=self.fd, follow_symlinks=False)
        except OSError as error:
            raise self._refusal(error, file) from None
        return status.st_dev, status.st_ino

    def write(self, file: str, value: str) -> None:
        """Write the value in one call. Whether the kernel took it as it is only reading shows."""
        if file not in ALLOWED:
            raise Refused("not a file that we write", self.name, file, value)
        if self.name == "/":
            raise Refused("the root cgroup is not ours to write", self.name, file, value)
        data = value.encode() or b"\n"  # a write of nothing does nothing
        try:
            fd = self._opened(file, _WRITE)
            try:
                done = posix.write(fd, data)
            finally:
                posix.close(fd)
        except OSError as error:
            raise self._refusal(error, file, value) from None
        if done != len(data):
            raise Refused("only " + str(done) + " bytes were taken", self.name, file, value)

    def close(self) -> None:
        """Close the cgroup and what was opened in it."""
        for fd in self._open.values():
            posix.close(fd)
        self._open.clear()
        posix.close(self.fd)

    def _refusal(self, error: OSError, file: str, value: str = "") -> Refused:
        """A file that is missing is one thing, a cgroup or a process that has ended another: Gone."""
        if error.errno in GONE and not (self.has("cgroup.procs") or self.has("cgroup")):
            return Gone("it has ended", self.name, file, value, error.errno or 0)
        return from_os(error, self.name, file, value)

    def _opened(self, file: str, flags: int) -> int:
        fd = posix.open(file, flags, dir_fd=self.fd)
        status = posix.fstat(fd)
        if status.st_mode & 0o170000 != 0o100000 or status.st_dev != self.device:
            posix.close(fd)
            raise Refused("not a plain file of this file system", self.name, file)
        return fd


def opened(mountpoint: str, path: str) -> Group:
    """The cgroup at `path`, from the root of the hierarchy that is mounted there; "/" is the root itself.

    Raises Refused for "..", for a symbolic link anywhere below the mountpoint, and for another file system.
    """
    *above, found = walked(mountpoint, path)
    for group in above:
        group.close()
    return found


def walked(mountpoint: str, path: str) -> "list[Group]":
    """The cgroup at `path`, as opened() gives it, after all above it, from the root on."""
    parts = path.split("/")[1:] if path != "/" else []
    if path[:1] != "/" or not all(parts) or ".." in parts or "." in parts or "\0" in path:
        raise Refused("not a path from the hierarchy's root", path)
    groups = [_root(mountpoint)]
    device = groups[0].device
    try:
        for part in parts:
            above = groups[-1]
            fd = posix.open(part, _FOLDER, dir_fd=above.fd)
            groups.append(Group(fd, above.name.rstrip("/") + "/" + part, device))
        if posix.fstat(groups[-1].fd).st_dev == device:
            return groups
        refusal = Refused("not of the file system mounted at " + mountpoint, path)
    except OSError as error:
        refusal = from_os(error, path)
        if error.errno in GONE:
            refusal = Gone("there is no such cgroup", path, errno=error.errno or 0)
    for group in groups:
        group.close()
    raise refusal


def _root(mountpoint: str) -> Group:
    try:
        fd = posix.open(mountpoint, posix.O_RDONLY | posix.O_DIRECTORY | posix.O_CLOEXEC)
        return Group(fd, "/", posix.fstat(fd).st_dev)
    except OSError as error:
        raise from_os(error, mountpoint) from None
