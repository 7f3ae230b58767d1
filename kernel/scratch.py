"""A cgroup that is made to try something in, and removed again."""

import posix

from kernel import files
from kernel.files import Group
from kernel.refused import from_os

_FOLDER = posix.O_RDONLY | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC


class Scratch:
    """A cgroup of this name below the root of the hierarchy mounted there; a context manager.

    One of the name that was left behind is taken over. It has no process, so it can be removed at once.
    """

    __slots__ = ("_group", "_name", "_root")

    def __init__(self, mountpoint: str, name: str) -> None:
        """Raises Refused where it cannot be made."""
        self._name = name
        self._root = files.opened(mountpoint, "/")
        path = "/" + name
        try:
            try:  # noqa: SIM105 - contextlib is not for kernel/
                posix.mkdir(name, 0o755, dir_fd=self._root.fd)
            except FileExistsError:
                pass
            fd = posix.open(name, _FOLDER, dir_fd=self._root.fd)
        except OSError as error:
            self._root.close()
            raise from_os(error, path) from None
        self._group = Group(fd, path, self._root.device)

    def __enter__(self) -> Group:
        return self._group

    def __exit__(self, *_: object) -> None:
        self._group.close()
        try:  # noqa: SIM105
            posix.rmdir(self._name, dir_fd=self._root.fd)
        except OSError:
            pass  # the next trial takes it over
        self._root.close()


def own_process(proc: str = "/proc") -> Group:
    """This process's own folder in /proc; `close()` it. Raises Refused."""
    name = proc + "/" + str(posix.getpid())
    try:
        fd = posix.open(name, _FOLDER)
        return Group(fd, name, posix.fstat(fd).st_dev)
    except OSError as error:
        raise from_os(error, name) from None
