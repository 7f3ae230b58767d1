"""What the hook leaves for the reconciler, a small file each.

RUN/missed: which container started without its settings, and why. RUN/found: what a pod's cgroup held before
the hook wrote into it, by the pod's uid: lines of a path, a file and a value, with a tab between.
"""

import errno
import posix
import time

_FOLDER = posix.O_RDONLY | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC
_NEW = posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_NOFOLLOW | posix.O_CLOEXEC
MOST = 1000
MISSED = "missed"
FOUND = "found"


def leave(run: str, name: str, text: str, kind: str = MISSED) -> str:
    """Write RUN/<kind>/<name> as a whole; "" or why there is none. At most 1000 are kept.

    The oldest are not removed: which containers the reconciler has seen is for the reconciler to say.
    """
    try:
        folder = _open(run, kind)
        try:
            there = [marker for marker in posix.listdir(folder) if marker[0] != "."]
            if len(there) >= MOST and name not in there:
                return f"no marker: {run}/{kind} has {MOST} already"
            _write(folder, name, text)
        finally:
            posix.close(folder)
    except OSError as error:
        return f"no marker: {run}/{kind}: {error.strerror}"
    return ""


def _open(run: str, kind: str) -> int:
    """The folder, made where it is missing, with RUN itself."""
    _make(run, None)
    parent = posix.open(run, _FOLDER)
    try:
        _make(kind, parent)
        return posix.open(kind, _FOLDER, dir_fd=parent)
    finally:
        posix.close(parent)


def _make(name: str, parent: "int | None") -> None:
    try:
        posix.mkdir(name, 0o700, dir_fd=parent)
    except FileExistsError:
        pass
    except OSError as error:
        if error.errno != errno.EROFS:  # it may be there all the same
            raise


def _write(folder: int, name: str, text: str) -> None:
    draft = f".{posix.getpid()}.{time.monotonic_ns()}"  # a pid comes again, after one that was killed
    file = posix.open(draft, _NEW, 0o600, dir_fd=folder)
    try:
        data = text.encode("ascii", "replace")
        if posix.write(file, data) != len(data):
            raise OSError(errno.ENOSPC, "it was not written as a whole")
        posix.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        posix.unlink(draft, dir_fd=folder)
        raise
    finally:
        posix.close(file)
