"""The processes of a cgroup and of those below it, and one file that each of them has in /proc."""

import posix

from kernel import files, membership, meters, target
from kernel.refused import GONE, Gone, Refused, from_os

TYPE_CHECKING = False  # typing's own would be an import
if TYPE_CHECKING:
    from collections.abc import Callable

DEEPEST = 16
"""How many levels below are searched: a container may run systemd, or containers of its own."""
ROUNDS = 4
"""How often the list is read: a process that forks before it is reached leaves a child as it was."""

_READ = posix.O_RDONLY | posix.O_NOFOLLOW | posix.O_CLOEXEC
_CHUNK = 65536
_ELSEWHERE = "0"
"""What cgroup.procs says of a process that is not in our pid namespace."""


class Reached:
    """What became of a file of many processes. `count`: how many there are; `late`: the values of those that
    did not hold what they shall; `missed`: how many still do not; `why`: of the first of them, "" for none.
    """

    __slots__ = ("count", "late", "missed", "why")

    def __init__(self) -> None:
        self.count = 0
        self.late: list[str] = []
        self.missed = 0
        self.why = ""

    def miss(self, why: str, count: int = 1) -> None:
        """So many processes are not as they shall be."""
        if count and not self.why:
            self.why = why
        self.missed += count


def listed(mountpoint: str, path: str) -> "list[str]":
    """Process ids in the cgroup and below, each once, "0" for those of other pid namespaces.

    Raises Gone where there is no such cgroup, and Refused.
    """
    found: dict[str, None] = {}
    elsewhere: list[str] = []
    group = files.opened(mountpoint, path)
    try:
        _list(group, DEEPEST, found, elsewhere)
    finally:
        posix.close(group.fd)
    return [*found, *elsewhere]


def _list(group: files.Group, deeper: int, found: "dict[str, None]", elsewhere: "list[str]") -> None:
    for pid in _procs(group):
        if pid == _ELSEWHERE:
            elsewhere.append(pid)
        else:
            found[pid] = None
    for child in meters.children(group) if deeper else ():
        below = meters.entered(group, child)
        if below is not None:
            try:
                _list(below, deeper - 1, found, elsewhere)
            except Gone:
                pass  # it was removed meanwhile
            finally:
                posix.close(below.fd)


def _procs(group: files.Group) -> "list[str]":
    """Of one cgroup; a threaded one has none of its own: the list of the domain above has them all."""
    try:
        return _text("cgroup.procs", group.fd).split()
    except OSError as error:
        if error.errno in GONE:
            raise Gone("the cgroup was removed", group.name, errno=error.errno or 0) from None
        if error.errno == _NOT_SUPPORTED:
            return []
        raise from_os(error, group.name, "cgroup.procs") from None


_NOT_SUPPORTED = 95
"""EOPNOTSUPP."""


def look(
    mountpoint: str, path: str, proc: str, file: str, due: "Callable[[str], bool]", most: int
) -> Reached:
    """Whose `file` holds a value that is due to change. Of `most` processes; more are missed. Nothing is
    written. Raises as listed() does.
    """
    reached = Reached()
    _look(mountpoint, path, proc, file, due, most, reached)
    return reached


def reach(
    mountpoint: str, path: str, proc: str, file: str, value: str, due: "Callable[[str], bool]", most: int
) -> Reached:
    """Write `value` into `file` of each process where it is due, until no process is left for which it is.

    A process that ends meanwhile is none. Raises as listed() does.
    """
    for number in range(ROUNDS):
        reached = Reached()
        pids = _look(mountpoint, path, proc, file, due, most, reached)
        for pid in pids:
            try:
                _write(pid, path, proc, file, value)
            except Gone:
                pass
            except Refused as refused:
                reached.miss(refused.text)
        if number == 0:
            first = reached
        if not pids or reached.missed:
            break
    else:
        reached.miss("new processes are started faster than they are reached", len(pids))
    reached.late = first.late
    return reached


def _look(
    mountpoint: str,
    path: str,
    proc: str,
    file: str,
    due: "Callable[[str], bool]",
    most: int,
    reached: Reached,
) -> "list[str]":
    """The processes for which it is due."""
    found, vanished = [], []
    pids = listed(mountpoint, path)
    here = [pid for pid in pids if pid != _ELSEWHERE]
    reached.count = len(pids)
    for pid in here[:most]:
        try:
            value = _text(proc + "/" + pid + "/" + file).strip()
        except OSError as error:
            if error.errno in GONE:
                vanished.append(pid)
            else:
                reached.miss(from_os(error, proc + "/" + pid, file).text)
            continue
        if due(value):
            found.append(pid)
            reached.late.append(value)
    if vanished:  # who has ended is listed no more
        hidden = set(vanished).intersection(listed(mountpoint, path))
        reached.miss("/proc does not show them (mounted with hidepid?)", len(hidden))
    reached.miss("only " + str(most) + " processes are looked at", len(here[most:]))
    reached.miss("they are in no pid namespace that we see", len(pids) - len(here))
    return found


def _write(pid: str, path: str, proc: str, file: str, value: str) -> None:
    """/proc/PID is opened once, and asked for its cgroup: a pid used anew is never meant."""
    process = target.process(int(pid), proc)
    try:
        if not _is_below(process.read("cgroup"), path):
            raise Gone("it has left the cgroup", process.name)
        process.write(file, value)
    finally:
        process.close()


def _is_below(cgroup: str, path: str) -> bool:
    """Whether /proc/PID/cgroup names the cgroup, or one below it, in some hierarchy."""
    return any((own + "/").startswith(path + "/") for own in membership.paths(cgroup).values())


def _text(path: str, folder: "int | None" = None) -> str:
    data = b""
    fd = posix.open(path, _READ, dir_fd=folder)
    try:
        while chunk := posix.read(fd, _CHUNK):
            data += chunk
    finally:
        posix.close(fd)
    return data.decode("ascii", "replace")
