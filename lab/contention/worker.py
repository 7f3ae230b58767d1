"""The process that lab/contention/work.py starts: worker.py CGROUP KIND SIZE [DEVICE]; killed at the end."""

from __future__ import annotations

import mmap
import os
import signal
import sys
from pathlib import Path

_PAGE = 4096


def main() -> None:
    """Enter the cgroup, do the kind of work."""
    folder, kind, size, *rest = sys.argv[1:]
    Path(folder, "cgroup.procs").write_text(str(os.getpid()))
    if kind in {"hold", "churn"}:
        _memory(kind, int(size))
    else:
        _disk(kind, int(size), rest[0])


def _memory(kind: str, size: int) -> None:
    """Anonymous memory, each page with something of its own: equal or empty pages could be shared."""
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    _touch(memory, size, 1)
    _ready()
    number = 1
    while kind == "churn":
        number += 1
        _touch(memory, size, number)
    signal.pause()


def _touch(memory: mmap.mmap, size: int, number: int) -> None:
    for place in range(0, size, _PAGE):
        memory[place] = number % 251


def _disk(kind: str, size: int, device: str) -> None:
    """Past the page cache (O_DIRECT), so that each call is one of the disk."""
    reading = kind == "read"
    fd = os.open(device, (os.O_RDONLY if reading else os.O_WRONLY) | os.O_DIRECT)
    memory = mmap.mmap(-1, size)  # O_DIRECT needs a buffer that begins on a page
    _ready()
    while True:
        if not (os.preadv(fd, [memory], 0) if reading else os.pwritev(fd, [memory], 0)):
            raise EOFError(device)


def _ready() -> None:
    print("ready", flush=True)  # noqa: T201 - what work.py waits for


main()
