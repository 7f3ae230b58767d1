"""What there is on this machine: a cgroup's files and children, disks, CPUs, memory. Nothing is written.

Plain text and names, as the kernel gives them; qos/plan/observed.py makes a node's facts of them.
"""

import posix

from kernel import files, hierarchies
from kernel.allowed import ALLOWED
from kernel.refused import GONE, Refused, from_os

_CHUNK = 65536
_KERNEL_THREAD = 0x200000
"""PF_KTHREAD of the kernel's include/linux/sched.h."""
_NO_DISKS = ("loop", "ram", "zram", "sr", "fd", "nbd")
"""Block devices that hold nobody's data, or whose limits mean nothing."""


class Look:
    """A cgroup as it was seen: `values` file -> text, `names` of its files, `children`: names of cgroups."""

    __slots__ = ("children", "names", "values")

    def __init__(
        self, values: "dict[str, str]", names: "frozenset[str]", children: "tuple[str, ...]"
    ) -> None:
        self.values = values
        self.names = names
        self.children = children


def look(mountpoint: str, path: str, wanted: "tuple[str, ...]") -> "Look | None":
    """The cgroup at that path of the hierarchy mounted there; None where there is none.

    wanted: files to read; those it does not have are left out. Raises Refused.
    """
    try:
        group = files.opened(mountpoint, path)
        try:
            names, children = _entries(group.fd)
            values = {name: group.read(name) for name in wanted if name in names and _readable(name)}
        finally:
            group.close()
    except Refused as refused:
        if refused.errno in GONE:
            return None
        raise
    return Look(values, names, children)


def there(mountpoint: str, path: str) -> bool:
    """Whether there is a cgroup at that path of the hierarchy mounted there, by its name: nothing is opened.

    Raises Refused.
    """
    if ".." in path.split("/"):
        raise Refused("not a path from the hierarchy's root", path)
    try:
        return posix.lstat(mountpoint + path).st_mode & 0o170000 == 0o040000
    except OSError as error:
        if error.errno in GONE:
            return False
        raise from_os(error, path) from None


def processes(mountpoint: str, path: str) -> "tuple[int, ...]":
    """The pids of the processes in a cgroup itself, as this process sees them; () where there is none.

    Raises Refused.
    """
    return tuple([int(pid) for pid in _pids(mountpoint, path) if pid != "0"])


def inode(mountpoint: str, path: str) -> int:
    """The inode of a cgroup's folder, which on v2 is the id that BPF knows it by; 0 where there is none.

    Raises Refused.
    """
    try:
        group = files.opened(mountpoint, path)
    except Refused as refused:
        if refused.errno in GONE:
            return 0
        raise
    try:
        return posix.fstat(group.fd).st_ino
    finally:
        group.close()


def threads(mountpoint: str, path: str, proc: str = "/proc") -> int:
    """How many threads are in the cgroup itself, not in one below it; without those of the kernel.

    Nor are programs counted that a thread of the kernel beside them runs, such as modprobe: they end at once.
    Threads are counted where their process is. Raises Refused.
    """
    pids = _pids(mountpoint, path)
    found = [_Process(pid, _stat(proc + "/" + pid)) for pid in pids if pid != "0"]
    kernels = {one.pid for one in found if one.of_kernel}
    theirs = [one.threads for one in found if not one.of_kernel and one.parent not in kernels]
    return sum(theirs) + pids.count("0")


class _Process:
    """What proc_pid_stat(5) says of a process: the fields after its name; [] where it has ended."""

    def __init__(self, pid: str, fields: "list[str]") -> None:
        self.pid = pid
        self.parent = fields[1] if fields else ""
        self.of_kernel = bool(fields) and int(fields[6]) & _KERNEL_THREAD != 0
        self.threads = int(fields[17]) if fields else 0


def _pids(mountpoint: str, path: str) -> "list[str]":
    """Of the processes in a cgroup itself, "0" for one that this process cannot see; [] where there is none.

    Raises Refused.
    """
    try:
        group = files.opened(mountpoint, path)
        try:
            return _text("cgroup.procs", group.fd).split()
        finally:
            group.close()
    except Refused as refused:
        if refused.errno in GONE:
            return []
        raise


def populated(mountpoint: str, path: str) -> bool:
    """Whether there are processes in a cgroup of v1 or in one below it; v2 says so in cgroup.events.

    A cgroup that tells nobody its processes counts as one that has some. Raises Refused.
    """
    found = look(mountpoint, path, ("cgroup.procs",))
    if found is None:
        return False
    if found.values.get("cgroup.procs", "?").strip():
        return True
    return any(populated(mountpoint, path.rstrip("/") + "/" + name) for name in found.children)


def mounts(proc: str = "/proc") -> "dict[str, str]":
    """Where each hierarchy is mounted: v1 controller -> mountpoint, "" -> that of cgroup v2."""
    return hierarchies.mounts(_text(proc + "/self/mountinfo"))


def memory(proc: str = "/proc") -> int:
    """The machine's memory in bytes (MemTotal of proc_meminfo(5))."""
    for line in _text(proc + "/meminfo").split("\n"):
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    raise Refused("says no MemTotal", proc + "/meminfo")


def cpus(sys: str = "/sys") -> str:
    """The CPUs that are online, as a list: 0-3,8."""
    return _text(sys + "/devices/system/cpu/online").strip()


def disks(sys: str = "/sys") -> "tuple[str, ...]":
    """The disks as MAJOR:MINOR, without loop devices, RAM disks and the like; () where none is to be seen."""
    try:
        names = sorted(posix.listdir(sys + "/block"))
    except OSError:
        return ()
    kept = [name for name in names if name.rstrip("0123456789") not in _NO_DISKS]
    return tuple([number for name in kept if (number := _number(sys + "/block/" + name + "/dev"))])


def _number(dev: str) -> str:
    """MAJOR:MINOR; "" of a disk that was detached meanwhile."""
    try:
        return _text(dev).strip()
    except Refused as refused:
        if refused.errno in GONE:
            return ""
        raise


def _entries(fd: int) -> "tuple[frozenset[str], tuple[str, ...]]":
    names, children = set(), []
    with posix.scandir(fd) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                children.append(entry.name)
            else:
                names.add(entry.name)
    return frozenset(names), tuple(sorted(children))


def _readable(name: str) -> bool:
    return name in ALLOWED or name in files.READABLE


def _stat(process: str) -> "list[str]":
    """Of a process, given its folder in /proc."""
    try:
        return _text(process + "/stat").rpartition(")")[2].split()
    except Refused:
        return []


def _text(path: str, folder: "int | None" = None) -> str:
    data = b""
    try:
        fd = posix.open(path, posix.O_RDONLY | posix.O_NOFOLLOW | posix.O_CLOEXEC, dir_fd=folder)
        try:
            while chunk := posix.read(fd, _CHUNK):
                data += chunk
        finally:
            posix.close(fd)
    except OSError as error:
        raise Refused(posix.strerror(error.errno or 0), path, errno=error.errno or 0) from None
    return data.decode("utf-8", "surrogateescape")
