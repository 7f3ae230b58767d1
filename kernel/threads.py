"""How long the threads of a cgroup, and of those below it, have waited for a CPU. Nothing is written."""

import posix

from kernel import files, meters
from kernel.meters import Meters
from kernel.refused import Gone, from_os

DEEPEST = 4
"""How many levels below are searched: a pod's containers, and what they make."""

_LISTS = ("tasks", "cgroup.threads")
"""Of v1, and of v2."""


class Threads:
    """The threads of a cgroup: its list and those of the cgroups below stay open. `close()` when done.

    What is made directly in it is seen at once; what is made further down when anything changes directly in
    it, or when it is opened anew. Raises Gone where there is no such cgroup, and Refused.
    """

    __slots__ = ("_group", "_links", "_lists")

    def __init__(self, mountpoint: str, path: str) -> None:
        self._lists: list[Meters] = []
        self._links = 0
        self._group = files.opened(mountpoint, path)
        try:
            self._search()
        except BaseException:
            self.close()
            raise

    def ids(self, most: int) -> "list[str]":
        """Thread ids, `most` at the most. Raises Gone, Refused."""
        if posix.fstat(self._group.fd).st_nlink != self._links:
            self._search()
        try:
            return self._listed(most)
        except Gone:  # one below it was removed; if it is this one, searching says so
            self._search()
            return self._listed(most)

    def delays(self, proc: str, most: int) -> "dict[str, tuple[int, int]]":
        """Nanoseconds that each thread has run, and waited for a CPU, by its id; of at most `most` threads.

        From /proc/TID/schedstat (sched-stats.rst), which counts a wait when it ends. A thread that ended
        meanwhile is left out. Raises Gone, Refused.
        """
        found = self.ids(most)
        try:
            folder = posix.open(proc, posix.O_RDONLY | posix.O_DIRECTORY | posix.O_CLOEXEC)
        except OSError as error:
            raise from_os(error, proc) from None
        try:
            fields = {thread: _schedstat(folder, thread) for thread in found}
        finally:
            posix.close(folder)
        return {thread: (int(words[0]), int(words[1])) for thread, words in fields.items() if len(words) > 1}

    def close(self) -> None:
        """Close all that is open; once is enough."""
        for one in self._lists:
            one.close()
        self._lists = []
        if self._group.fd >= 0:
            posix.close(self._group.fd)
            self._group.fd = -1

    def _listed(self, most: int) -> "list[str]":
        found: list[str] = []
        for one in self._lists:
            for name in one.names:
                found += one.whole(name).decode().split()
            if len(found) >= most:
                return found[:most]
        return found

    def _search(self) -> None:
        for one in self._lists:
            one.close()
        self._lists = []
        self._links = posix.fstat(self._group.fd).st_nlink
        own = meters.of_group(self._group, _LISTS)
        self._lists.append(own)
        if not own.names:
            raise Gone("the cgroup was removed", self._group.name)
        self._below(self._group, DEEPEST)

    def _below(self, group: files.Group, deeper: int) -> None:
        for child in meters.children(group) if deeper else ():
            below = meters.entered(group, child)
            if below is None:
                continue
            try:
                self._lists.append(meters.of_group(below, _LISTS))
                self._below(below, deeper - 1)
            finally:
                posix.close(below.fd)


def _schedstat(folder: int, thread: str) -> "list[bytes]":
    try:
        fd = posix.open(thread + "/schedstat", posix.O_RDONLY | posix.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return []
    try:
        return posix.read(fd, 128).split()
    except OSError:
        return []
    finally:
        posix.close(fd)
