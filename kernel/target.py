"""What is opened for each level of a container, in each hierarchy: from its first process, or from paths."""

import posix

from kernel import files, hierarchies, membership
from kernel.allowed import ALLOWED
from kernel.files import Group
from kernel.refused import GONE, Gone, Refused, from_os

PROCESS = -1
"""The level that means /proc/PID (qos.plan.settings.PROCESS)."""

_FOLDER = posix.O_RDONLY | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC
_CHUNK = 65536


class Target:
    """A container's cgroups and first process. Opens what is asked for, once; `close()` when done.

    `cgroup`: the container's path in the memory, else the cpu, else the unified, else any hierarchy: what
    membership.pod_uid and qos_class take. Use as a context manager, too.
    """

    __slots__ = ("_groups", "_mounts", "_own", "_process", "cgroup")

    def __init__(
        self, mounts: "dict[str, str]", own: "dict[str, str]", process: "Group | None" = None
    ) -> None:
        """`mounts` as hierarchies.mounts gives them; `own`: the container's path in each hierarchy."""
        self._mounts = mounts
        self._own = own
        self._process = process
        self._groups: dict[str, list[Group]] = {}
        named = [own[name] for name in ("memory", "cpu", "", *own) if name in own and name in mounts]
        self.cgroup = named[0] if named else ""

    def group(self, file: str, level: int) -> Group:
        """Where `file` of that level is. Raises Refused: no such hierarchy here, or a level at the root."""
        hierarchy = ALLOWED[file][0] if file in ALLOWED else ""
        if (hierarchy == "process") != (level == PROCESS) or level < PROCESS:
            raise Refused("not a file of level " + str(level), self.cgroup, file)
        if level == PROCESS:
            if self._process is None:
                raise Refused("no process was named", self.cgroup, file)
            return self._process
        if hierarchy not in self._mounts or hierarchy not in self._own:
            hierarchy = hierarchies.UNIFIED
        groups = self._groups.get(hierarchy)
        if groups is None:
            groups = self._groups[hierarchy] = self._walked(hierarchy, file)
        if level >= len(groups) - 1:
            raise Refused("level " + str(level) + " is not below the root", groups[-1].name, file)
        return groups[-1 - level]

    def parents(self) -> "set[str]":
        """Paths of the cgroups of level 1: one path, unless the hierarchies differ."""
        return {path.rpartition("/")[0] for name, path in self._own.items() if name in self._mounts}

    def _walked(self, hierarchy: str, file: str) -> "list[Group]":
        """The cgroups from the root down to the container's: all levels cost one walk."""
        mountpoint, path = self._mounts.get(hierarchy), self._own.get(hierarchy)
        if mountpoint is None or path is None:
            raise Refused("no hierarchy with it is mounted, or the container is not in it", self.cgroup, file)
        return files.walked(mountpoint, path)

    def close(self) -> None:
        """Close everything that was opened."""
        for groups in self._groups.values():
            for group in groups:
                group.close()
        self._groups.clear()
        if self._process is not None:
            self._process.close()
            self._process = None

    def __enter__(self) -> "Target":  # noqa: PYI034 - Self is 3.11, and typing
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def from_pid(
    pid: int, container_id: str, proc: str = "/proc", mounts: "dict[str, str] | None" = None
) -> Target:
    """The container whose first process this is. mounts: as hierarchies.mounts gives them; None: look.

    /proc/PID is opened once: a pid used anew is never meant. Raises Gone when the process has ended, Refused
    for a pid of 1 or less and where no hierarchy has the container's id in its path.
    """
    if pid <= 1:
        raise Refused("not a container's process", proc + "/" + str(pid))
    opened = process(pid, proc)
    try:
        paths = membership.paths(opened.read("cgroup"))
        if mounts is None:
            mounts = _mounts(proc, paths)
        target = Target(mounts, _own(paths, mounts, container_id), opened)
    except Refused as refused:
        try:
            if _is_zombie(opened):
                raise Gone("the process has ended", opened.name) from None
            raise refused
        finally:
            opened.close()
    return target


def _is_zombie(process: Group) -> bool:
    """On cgroup v1 such a process is shown in the root of every hierarchy."""
    try:
        return process.read("stat").rpartition(")")[2][1:2] in ("Z", "X")
    except Refused as refused:
        return isinstance(refused, Gone)


def process(pid: int, proc: str = "/proc") -> Group:
    """/proc/PID, open: a process, whichever has its pid later. Raises Gone, Refused."""
    name = proc + "/" + str(pid)
    try:
        fd = posix.open(name, _FOLDER)
        return Group(fd, name, posix.fstat(fd).st_dev)
    except OSError as error:
        if error.errno in GONE:
            raise Gone("the process has ended", name, errno=error.errno or 0) from None
        raise from_os(error, name) from None


def _own(paths: "dict[str, str]", mounts: "dict[str, str]", container_id: str) -> "dict[str, str]":
    """The container's path in each mounted hierarchy that shows its id. Raises Refused where none does."""
    own: dict[str, str] = {}
    refusal = Refused("no cgroup hierarchy is mounted: neither cgroup2 nor a v1 controller")
    for hierarchy, path in paths.items():
        if hierarchy in mounts:
            try:
                own[hierarchy] = membership.container_path(path, container_id)
            except Refused as refused:
                if path != "/" or not refusal.group:
                    refusal = refused
    if not own:
        raise refusal
    return own


def _mounts(proc: str, wanted: "dict[str, str]") -> "dict[str, str]":
    """Mounts of the hierarchies the process is in; stops reading when all are found."""
    name = proc + "/self/mountinfo"
    text, found, size = b"", dict[str, str](), 0
    try:
        fd = posix.open(name, posix.O_RDONLY | posix.O_CLOEXEC)
        try:
            while chunk := posix.read(fd, _CHUNK):
                text += chunk
                size += len(chunk)
                cut = text.rfind(b"\n") + 1
                more = hierarchies.mounts(text[:cut].decode("utf-8", "surrogateescape"))
                for hierarchy, mountpoint in more.items():
                    found.setdefault(hierarchy, mountpoint)
                text = text[cut:]
                if found.keys() >= wanted.keys() & _KNOWN:
                    break
        finally:
            posix.close(fd)
    except OSError as error:
        raise from_os(error, name) from None
    return found


_KNOWN = frozenset((*hierarchies.CONTROLLERS, hierarchies.UNIFIED))
