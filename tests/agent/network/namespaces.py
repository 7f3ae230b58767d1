"""Network namespaces for a test, gone after it: nothing of the machine's own is touched. Needs root."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from agent.network.namespaces import inside
from agent.network.netlink import Netlink


def ip(*words: str, stdin: str = "") -> None:
    """Run ip(8); its complaint when it fails."""
    done = subprocess.run(["ip", *words], input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"


@dataclass
class Namespaces:
    """prefix: of all names here, so that tests beside each other have their own."""

    prefix: str = field(default_factory=lambda: f"link-{os.getpid()}-{secrets.token_hex(2)}")
    _names: list[str] = field(default_factory=list)
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def add(self, *names: str) -> list[str]:
        """New ones; their full names."""
        full = [f"{self.prefix}-{name}" for name in names]
        self._names += full
        ip("-batch", "-", stdin="".join(f"netns add {name}\n" for name in full))
        return full

    def batch(self, name: str, lines: list[str]) -> None:
        """Lines for ip(8), in one of them."""
        ip("-netns", name, "-batch", "-", stdin="".join(f"{line}\n" for line in lines))

    def process(self, name: str) -> int:
        """The pid of a process in it, of a user of its own as a pod's may be."""
        wait = ["setpriv", "--reuid=65535", "--regid=65535", "--clear-groups", "cat"]
        argv = ["nsenter", f"--net=/run/netns/{name}", *wait]
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self._processes.append(process)
        wanted = Path(f"/run/netns/{name}").stat().st_ino
        while Path(f"/proc/{process.pid}/ns/net").stat().st_ino != wanted:
            assert process.poll() is None
        return process.pid

    def end(self, pid: int) -> None:
        """End a process of ours."""
        (process,) = [one for one in self._processes if one.pid == pid]
        self._processes.remove(process)
        process.send_signal(signal.SIGKILL)
        process.communicate()

    def delete(self, name: str) -> None:
        """Remove one; it ends with its last process."""
        self._names.remove(name)
        ip("netns", "delete", name)

    def close(self) -> None:
        """Remove all."""
        for process in self._processes:
            process.kill()
            process.communicate()
        for name in self._names:
            with contextlib.suppress(AssertionError):
                ip("netns", "delete", name)


@contextlib.contextmanager
def namespaces() -> Iterator[Namespaces]:
    """For the time of the block."""
    made = Namespaces()
    try:
        yield made
    finally:
        made.close()


def netlink(name: str) -> Netlink:
    """Questions to the kernel in a namespace."""
    return inside(Path("/run/netns") / name, Netlink)
