"""Which CPU floors the files for the hook promise, so that a new one is planned beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from adapters.machine import Promised
from kernel import cache

RUN: Final = Path("/run/j10ce")
"""The hook's folder."""
PODS: Final = "pods"


def read(folder: Path) -> tuple[Promised, ...]:
    """The pods with a file there that has a CPU floor; bad files are passed over, as the hook does."""
    found = []
    try:
        files = sorted(folder.iterdir())
    except OSError:
        return ()
    for file in files:
        try:
            cpu = cache.promised(file.read_bytes(), file.name)
        except (OSError, cache.CacheBad):
            continue
        if cpu:
            found.append(Promised(file.name, cpu))
    return tuple(found)
