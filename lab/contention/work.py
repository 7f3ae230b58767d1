"""Work that runs inside one cgroup and wants all it can get of one resource."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from lab.contention.groups import Group

_SPIN = 'echo $$ >"$0/cgroup.procs" && echo ready && while :; do :; done'
_WORKER = Path(__file__).parent / "worker.py"
_POLL_SECONDS = 0.05
_BLOCK = 1 << 20


class Load:
    """The working processes of one test, until end(), which the end of their cgroups comes before.

    Each has entered its cgroup, and works there or has touched its memory, when the method that starts it
    returns.
    """

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[str]] = []

    def spin(self, group: Group, cpus: int) -> None:
        """Use all the time there is to get of each CPU: one process each, which stays there.

        Bound, because a load balancer that is late (on a busy host it is) would be measured with the weights.
        """
        for cpu in range(cpus):
            self._start(["taskset", "--cpu-list", str(cpu), "sh", "-c", _SPIN, str(group.folder)])

    def hold(self, group: Group, size: int) -> None:
        """Touch `size` bytes of memory once, then keep them without touching them."""
        self._work(group, "hold", size)

    def churn(self, group: Group, size: int) -> None:
        """Touch `size` bytes of memory again and again, from the first page to the last."""
        self._work(group, "churn", size)

    def read(self, group: Group, device: Path) -> None:
        """Read a disk without a pause, past the page cache."""
        self._work(group, "read", _BLOCK, device)

    def write(self, group: Group, device: Path) -> None:
        """Write to a disk without a pause, past the page cache."""
        self._work(group, "write", _BLOCK, device)

    def end(self) -> None:
        """Kill all of them, and wait for them."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        self._processes.clear()

    def _work(self, group: Group, kind: str, size: int, device: Path | None = None) -> None:
        argv = [sys.executable, "-I", "-S", str(_WORKER), str(group.folder), kind, str(size)]
        self._start([*argv, str(device)] if device else argv)

    def _start(self, argv: list[str]) -> None:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self._processes.append(process)
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise ChildProcessError(f"{' '.join(argv)} ended with {process.wait()}")


def wait_until(true: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    """Wait until the condition holds; TimeoutError says what was waited for."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(_POLL_SECONDS)
