"""Small files of root's: written as a whole or not at all, read only if nobody else could write them."""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
_MAKE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHERS_MAY_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


class Untrusted(Exception):  # noqa: N818 - reads as what it is
    """Others could have written it; the message names the path and says what to do."""


def make_folder(folder: Path) -> None:
    """The folder, made where it is missing (mode 0700). Untrusted; OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise Untrusted(f"{folder}: is not a folder itself: remove it")
    _require_ours(folder, status)


def write(file: Path, data: bytes) -> None:
    """Put the file, mode 0600, synchronised: a reader sees the old one or the new one, whatever happens.

    OSError: the disk refused (full, read-only ...); then the old file is as it was.
    """
    passing = file.with_name(f".{file.name}.{os.getpid()}.{time.monotonic_ns()}")
    fd = os.open(passing, _MAKE, 0o600)
    try:
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        passing.rename(file)
    except OSError:
        with suppress(OSError):
            passing.unlink()
        raise
    _synchronise(file.parent)


def read(file: Path, most: int) -> bytes:
    """The file's bytes. FileNotFoundError; OSError; Untrusted: not plain, not ours, or above `most` bytes."""
    fd = os.open(file, _READ)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise Untrusted(f"{file}: is not a plain file: remove it")
        _require_ours(file, status)
        if status.st_size > most:
            raise Untrusted(f"{file}: {status.st_size} bytes, more than {most}: remove it")
        with os.fdopen(fd, "rb", closefd=False) as stream:
            return stream.read(most)
    finally:
        os.close(fd)


def sweep(folder: Path) -> None:
    """Remove the drafts of writers that were killed on the way. Errors are passed over."""
    with suppress(OSError):
        for passing in folder.glob(".*.*.*"):
            pid = passing.name.split(".")[-2]
            if pid.isdecimal() and (int(pid) == os.getpid() or not Path(f"/proc/{pid}").exists()):
                with suppress(OSError):
                    passing.unlink()


def _require_ours(path: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid() or status.st_mode & _OTHERS_MAY_WRITE:
        mode = stat.S_IMODE(status.st_mode)
        raise Untrusted(
            f"{path}: owner {status.st_uid}, mode {mode:04o}: only uid {os.geteuid()} may own it and write it"
        )


def _synchronise(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
