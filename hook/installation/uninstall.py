"""Takes the hook off a node: the hooks.d file first, the code when no hook runs any more, then the rest."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hook.installation import containerd, record, tree
from hook.installation.errors import InstallationError
from hook.installation.machine import alone, refuse_unprivileged, users
from hook.installation.places import Places
from hook.installation.record import Record

LONGEST_HOOK_SECONDS = 10.0
"""Runtimes kill a hook after 2 s; a tree that is in use longer is kept, and uninstall says so."""

_PAUSE_SECONDS = 0.02
_OF_THE_HOOK = ("hook.lock", "missed")
_OF_OTHERS = ("pods", "floors", "defaults")


@dataclass(frozen=True, slots=True)
class Removed:
    """What uninstall did. kept: what it left, each with the reason."""

    paths: tuple[str, ...]
    kept: tuple[str, ...]


def uninstall(places: Places) -> Removed:
    """Leave the machine as it was before the first install; nothing to do is no error."""
    refuse_unprivileged("uninstall")
    found = record.read(places)
    if found is None and not places.home.is_dir():
        return Removed((), ())
    containerd.refuse_if_used(places)
    if found is not None:
        places = Places(places.root, found.hooks_dir)
    with alone(places.home):
        return remove(places, found)


def remove(places: Places, found: Record | None) -> Removed:
    """Remove what the record names; the caller has made sure that nobody else does."""
    gone: list[str] = []
    try:
        for path in (places.definition, places.base_spec):
            if path.exists():
                path.unlink()
                tree.sync(path.parent)
                gone.append(str(path))
        for old in tree.trees(places.home):
            _wait_until_unused(old)
            shutil.rmtree(old)
            gone.append(str(old))
        places.record.unlink(missing_ok=True)
    except OSError as error:
        raise InstallationError(f"{error.filename}: {error.strerror}") from error
    gone += _clean_run(places.run)
    for folder in sorted(found.made if found else (str(places.home),), key=len, reverse=True):
        with suppress(OSError):  # somebody else's file is in it: it is theirs now
            Path(folder).rmdir()
            gone.append(folder)
    return Removed(tuple(gone), tuple(_kept(places, found)))


def _wait_until_unused(old: Path) -> None:
    deadline = time.monotonic() + LONGEST_HOOK_SECONDS
    while pids := users(old):
        if time.monotonic() > deadline:
            raise InstallationError(
                f"{old} is still used by process {pids[0]}. New containers start without the hook already; "
                f"run `j10ce hook uninstall` again when that process has ended"
            )
        time.sleep(_PAUSE_SECONDS)


def _clean_run(run: Path) -> list[str]:
    """Remove what the hook wrote; of what others wrote for it only empty folders."""
    gone = []
    for name in _OF_THE_HOOK:
        path = run / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
            gone.append(str(path))
        elif os.path.lexists(path):
            path.unlink()
            gone.append(str(path))
    for folder in (*(run / name for name in _OF_OTHERS), run):
        with suppress(OSError):
            folder.rmdir()
            gone.append(str(folder))
    return gone


def _kept(places: Places, found: Record | None) -> Iterator[str]:
    if places.config.exists():
        yield f"{places.config}: the administrator's"
    if places.run.is_dir():
        yield f"{places.run}: settings that others wrote"
    for folder in found.made if found else ():
        if Path(folder).is_dir():
            yield f"{folder}: it holds files of others"
