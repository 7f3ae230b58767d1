"""The budgets' file: what was spent outlives the agent and the machine's restarts.

A monotonic clock ends with the boot, a wall clock is set by people. So the file holds both: within one boot
the monotonic one says how long ago it was written, and after another the wall clock, never less than nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
from pathlib import Path
from typing import Final

import msgspec

from agent.deficit.budget import WINDOWS, Bucket, Budget, Budgets

log = logging.getLogger(__name__)

VERSION: Final = 1


class Clocks(msgspec.Struct, frozen=True):
    """One moment: seconds of the monotonic clock, which boot it is of, and seconds since 1970."""

    monotonic: float
    boot: str
    wall: float


class _Content(msgspec.Struct, frozen=True):
    """`time`: of the budgets' clock when it was written. Policies: namespace/name -> window -> buckets."""

    version: int
    clocks: Clocks
    time: float
    policies: dict[str, dict[str, list[Bucket]]]


def load(path: Path, now: Clocks) -> tuple[Budgets, float]:
    """The budgets, and the offset of their clock from the monotonic one.

    A file that is missing, damaged or of a newer version: none were spent. What cannot be read is put aside
    with the ending .unread, and logged.
    """
    try:
        content = msgspec.json.decode(path.read_bytes(), type=_Content)
        if content.version != VERSION:
            raise ValueError(f"version {content.version}, expected {VERSION}")
        budgets = {key: _budget(windows) for key, windows in content.policies.items()}
    except FileNotFoundError:
        return Budgets(), -now.monotonic
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        log.warning("budgets unread path=%s why=%s: counting begins anew", path, error)
        with contextlib.suppress(OSError):
            path.replace(path.with_name(f"{path.name}.unread"))
        return Budgets(), -now.monotonic
    return Budgets(budgets), content.time + _age(content.clocks, now) - now.monotonic


def save(path: Path, budgets: Budgets, offset: float, now: Clocks) -> None:
    """Write the file: encoded() and write()."""
    write(path, encoded(budgets, offset, now))


def encoded(budgets: Budgets, offset: float, now: Clocks) -> bytes:
    """What the file will hold."""
    policies = {key: one.buckets for key, one in budgets.policies.items()}
    return msgspec.json.encode(_Content(VERSION, now, offset + now.monotonic, policies))


def write(path: Path, data: bytes) -> None:
    """Write the file, mode 0600: whole and on the disk, or the old one stays and OSError is raised."""
    passing = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fd = os.open(passing, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:  # noqa: PTH123 - of a descriptor
            file.write(data)
            file.flush()
            os.fsync(fd)
        passing.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            passing.unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _age(then: Clocks, now: Clocks) -> float:
    """Seconds since the file was written."""
    if then.boot == now.boot and then.boot:
        return max(0.0, now.monotonic - then.monotonic)
    return max(0.0, now.wall - then.wall)


def _budget(windows: dict[str, list[Bucket]]) -> Budget:
    """ValueError for seconds that cannot be. Windows that are no longer counted are dropped."""
    for buckets in windows.values():
        for earlier, later in itertools.pairwise(buckets):
            if earlier[0] >= later[0]:
                raise ValueError(f"bucket {later[0]} after {earlier[0]}")
        for number, wanted, deficit in buckets:
            if not 0 <= deficit <= wanted * 1.000001 < float("inf"):
                raise ValueError(f"bucket {number}: {deficit} of {wanted} seconds")
    return Budget({name: list(windows.get(name, [])) for name in WINDOWS})
