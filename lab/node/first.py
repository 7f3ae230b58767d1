"""The first process of a real node's namespaces: mounts what the node sees, then collects what is orphaned.

Run as `python -I -m lab.node.first FILE`, after unshare has made the namespaces. The file says what to mount
(lab.node.mounts); a file `ready` beside it appears when that is done. All ends with this process.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path


def main() -> None:
    """Mount, say so, and wait for children until killed."""
    file = Path(sys.argv[1])
    wanted = json.loads(file.read_text())
    for step in wanted["steps"]:
        _do(step)
    for name, text in wanted["files"].items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    file.with_name("ready").touch()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # none is missed between two looks
    while True:
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
        signal.sigwait({signal.SIGCHLD})


def _do(step: list[str]) -> None:
    """One step: a command's argument list; the first words mkdir, symlink and hostname are ours."""
    if step[0] == "mkdir":
        Path(step[1]).mkdir(parents=True, exist_ok=True)
    elif step[0] == "symlink":
        Path(step[2]).symlink_to(step[1])
    elif step[0] == "hostname":
        socket.sethostname(step[1])
    else:
        subprocess.run(step, check=True)


if __name__ == "__main__":
    main()
