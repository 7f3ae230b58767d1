"""Takes a lab cluster down when the process that wanted it is gone, however it went.

Started beside a temporary cluster with a pipe as its standard input. The pipe's end without the word "keep"
means that the parent died or forgot: the cluster's processes are killed and its folder is removed.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

from lab import processes
from lab.node import remains

KEEP = b"keep"


class Reaper:
    """The parent's side: a child process that waits for our end of the pipe to close."""

    def __init__(self, folder: Path) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-I", "-m", "lab.reaper", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches the whole process group: the reaper must outlive it
        )

    def dismiss(self) -> None:
        """The cluster stays, or is gone already: the reaper ends and does nothing."""
        self._child.communicate(KEEP)


def remove(folder: Path) -> None:
    """Kill every process of a cluster's (or a real node's) folder and remove it. The data is throw-away."""
    for _ in range(10):  # a component may just be starting another
        pids = processes.of_folder(folder)
        if not pids:
            break
        processes.end(pids, folder, signal.SIGKILL)
    remains.remove(folder)
    shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Wait for the pipe's end; see the module's docstring."""
    folder = Path(sys.argv[1])
    if sys.stdin.buffer.read() != KEEP:
        remove(folder)


if __name__ == "__main__":
    main()
