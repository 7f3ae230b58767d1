"""A pod and a node as two network namespaces, joined by a veth, and processes in them."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
_CLONE_NEWNET = 0x40000000
_counter = itertools.count()
POD4, NODE4 = "10.99.0.2", "10.99.0.1"
POD6, NODE6 = "fd99::2", "fd99::1"
INTERFACE = "veth0"


@dataclass(frozen=True)
class Joined:
    """Names of the two namespaces. In both the interface is called veth0."""

    pod: str
    node: str

    def index(self, name: str) -> int:
        """The interface's index in that namespace."""
        return int(ip("-n", name, "-o", "link", "show", INTERFACE).partition(":")[0])


@contextlib.contextmanager
def joined() -> Iterator[Joined]:
    """For the time of the block."""
    stem = f"j10ce-bpf-{os.getpid()}-{next(_counter)}"
    made = Joined(f"{stem}-pod", f"{stem}-node")
    try:
        for name in (made.pod, made.node):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        peer = ("peer", "name", INTERFACE, "netns", made.node)
        ip("-n", made.pod, "link", "add", INTERFACE, "type", "veth", *peer)
        for name, four, six in ((made.pod, POD4, POD6), (made.node, NODE4, NODE6)):
            ip("-n", name, "addr", "add", f"{four}/24", "dev", INTERFACE)
            ip("-n", name, "addr", "add", f"{six}/64", "dev", INTERFACE, "nodad")
            ip("-n", name, "link", "set", INTERFACE, "up")
        yield made
    finally:
        for name in (made.pod, made.node):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def ip(*words: str) -> str:
    """ip(8); its output."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
    return done.stdout


def inside(name: str, work: Callable[[], T]) -> T:
    """The work's result, done in a namespace by a thread that ends with it."""
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            fd = os.open(f"/run/netns/{name}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                assert ctypes.CDLL(None, use_errno=True).setns(fd, _CLONE_NEWNET) == 0
            finally:
                os.close(fd)
            results.append(work())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]
