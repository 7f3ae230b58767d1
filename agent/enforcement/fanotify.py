"""fanotify(7): reports at once who writes which file of a file system. By ctypes: Python has no binding of
it.

Marks of whole file systems need CAP_SYS_ADMIN, and a kernel of 4.20 or newer. Events carry an open descriptor
of the file and the writer's pid (0: of a pid namespace that we do not see).
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

_CLOEXEC: Final = 0x1
_NONBLOCK: Final = 0x2
_CLASS_NOTIF: Final = 0x0
_MARK_ADD: Final = 0x1
_MARK_FILESYSTEM: Final = 0x100
_MODIFY: Final = 0x2
_Q_OVERFLOW: Final = 0x4000
_AT_FDCWD: Final = -100
_METADATA: Final = struct.Struct("=IBBHQii")
"""event_len, vers, reserved, metadata_len, mask, fd, pid of linux/fanotify.h."""
_VERSION: Final = 3
_AT_ONCE: Final = 64
"""The most events a read: each is an open descriptor, and a process may have but 1024 of them."""
_MOST: Final = 256
"""The most events a call; then others have their turn."""
_ENDED: Final = (errno.ENODEV, errno.ENOENT, errno.ESTALE, 518)
"""The file's cgroup was removed before its event was read; 518 is the kernel's own EOPENSTALE."""


class Written(NamedTuple):
    """A file was written. `identity`: its (st_dev, st_ino)."""

    identity: tuple[int, int]
    pid: int


class Fanotify:
    """Tells of every write in the file systems mounted there; `fd` is readable when there is something.

    Raises OSError: EPERM without CAP_SYS_ADMIN, ENOSYS or EINVAL where the kernel cannot.
    """

    def __init__(self, mountpoints: Iterable[str]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.fanotify_mark.argtypes = [
            ctypes.c_int, ctypes.c_uint, ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p,
        ]  # fmt: skip
        self.lost = 0
        """How often events were lost: the queue was full, or there were no descriptors left."""
        self.fd = self._checked(
            self._libc.fanotify_init(_CLASS_NOTIF | _CLOEXEC | _NONBLOCK, os.O_RDONLY | os.O_CLOEXEC), "init"
        )
        try:
            for mountpoint in mountpoints:
                self._checked(
                    self._libc.fanotify_mark(
                        self.fd, _MARK_ADD | _MARK_FILESYSTEM, _MODIFY, _AT_FDCWD, os.fsencode(mountpoint)
                    ),
                    mountpoint,
                )
        except OSError:
            self.close()
            raise

    def read(self) -> Iterator[Written]:
        """What was written since, the oldest first; at most some hundred, then `fd` stays readable."""
        for _ in range(_MOST // _AT_ONCE):
            try:
                data = os.read(self.fd, _AT_ONCE * _METADATA.size)
            except BlockingIOError:
                return
            except OSError as error:
                self.lost += error.errno not in _ENDED
                continue
            for event in _METADATA.iter_unpack(data):
                yield from self._taken(*event)

    def close(self) -> None:
        """Stop watching."""
        os.close(self.fd)

    def _taken(
        self, length: int, version: int, _: int, __: int, mask: int, fd: int, pid: int
    ) -> Iterator[Written]:
        if version != _VERSION or length != _METADATA.size or mask & _Q_OVERFLOW or fd < 0:
            self.lost += 1
            return
        try:
            status = os.fstat(fd)
        finally:
            os.close(fd)
        yield Written((status.st_dev, status.st_ino), pid)

    def _checked(self, result: int, what: str) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"fanotify: {os.strerror(number)}", what)
        return result
