"""A pod and a node as two network namespaces, joined by a veth, and processes in them."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from agent.network import namespaces

T = TypeVar("T")
_counter = itertools.count()
POD4, NODE4 = "10.99.0.2", "10.99.0.1"
POD6, NODE6 = "fd99::2", "fd99::1"
INTERFACE = "veth0"
NIC, WORLD4 = "nic0", "10.98.0.2"


@dataclass(frozen=True)
class Joined:
    """Names of the two namespaces. In both the interface is called veth0."""

    pod: str
    node: str

    def index(self, name: str, interface: str = INTERFACE) -> int:
        """The interface's index in that namespace."""
        return int(ip("-n", name, "-o", "link", "show", interface).partition(":")[0])


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


@contextlib.contextmanager
def world(pair: Joined) -> Iterator[str]:
    """The name of a third namespace, beyond the node's interface nic0; the node forwards, and the pod knows
    it.
    """
    name = f"{pair.node}-world"
    try:
        ip("netns", "add", name)
        peer = ("peer", "name", INTERFACE, "netns", name)
        ip("-n", pair.node, "link", "add", NIC, "type", "veth", *peer)
        for where, device, address in ((pair.node, NIC, "10.98.0.1/24"), (name, INTERFACE, f"{WORLD4}/24")):
            ip("-n", where, "addr", "add", address, "dev", device)
            ip("-n", where, "link", "set", device, "up")
        run(pair.node, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
        ip("-n", pair.pod, "route", "add", "default", "via", NODE4)
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def ip(*words: str) -> str:
    """ip(8); its output."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
    return done.stdout


def inside(name: str, work: Callable[[], T]) -> T:
    """The work's result, done in a namespace by a thread that ends with it."""
    return namespaces.inside(Path("/run/netns") / name, work)


def start(name: str, *argv: str) -> subprocess.Popen[str]:
    """A process in a namespace, with its output in a pipe."""
    return subprocess.Popen(
        ["ip", "netns", "exec", name, *argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def run(name: str, *argv: str) -> str:
    """The output of a process in a namespace that is to succeed."""
    with start(name, *argv) as process:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, f"{' '.join(argv)}: {output}"
    return output


def shaped(name: str, minors: tuple[int, ...], interface: str = INTERFACE) -> None:
    """HTB at an interface there as the agent makes it: handle 10ce:, a class for each minor (hexadecimal), 1
    the default.
    """
    tc(name, "qdisc", "add", "dev", interface, "root", "handle", "10ce:", "htb", "default", "1")
    for minor in minors:
        at = ("parent", "10ce:", "classid", f"10ce:{minor:x}")
        tc(name, "class", "add", "dev", interface, *at, "htb", "rate", "1gbit", "quantum", "20000")


def sent(name: str, interface: str = INTERFACE) -> dict[int, int]:
    """Minor of each HTB class at an interface there -> packets that it has sent."""
    shown = tc(name, "-s", "class", "show", "dev", interface)
    pairs = re.findall(r"class htb 10ce:([0-9a-f]+) .*\n Sent \d+ bytes (\d+) pkt", shown)
    return {int(minor, 16): int(packets) for minor, packets in pairs}


def tc(name: str, *words: str) -> str:
    """tc(8); its output."""
    done = subprocess.run(["tc", "-n", name, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"tc {' '.join(words)}: {done.stderr}"
    return done.stdout


@contextlib.contextmanager
def own_cgroup(*names: str) -> Iterator[tuple[Path, ...]]:
    """New cgroups (v2), each in the one before it; this process is in the last."""
    mounted = next(
        Path(line.split()[1])
        for line in Path("/proc/mounts").read_text().splitlines()
        if line.split()[2] == "cgroup2"
    )
    before = mounted / Path("/proc/self/cgroup").read_text().rpartition("0::/")[2].strip()
    made: list[Path] = []
    try:
        folder = mounted
        for name in names:
            folder /= f"j10ce-bpf-{os.getpid()}-{name}"
            folder.mkdir()
            made.append(folder)
        (folder / "cgroup.procs").write_text("0")
        yield tuple(made)
    finally:
        (before / "cgroup.procs").write_text("0")
        for folder in reversed(made):
            folder.rmdir()


@contextlib.contextmanager
def iperf3_server(name: str) -> Iterator[None]:
    """It listens in a namespace for the time of the block."""
    with start(name, "iperf3", "-s", "--forceflush") as process:
        assert process.stdout is not None
        try:
            while "listening" not in (line := process.stdout.readline()):
                assert line, "iperf3 has ended"
            yield
        finally:
            process.kill()


def iperf3(name: str, *options: str) -> Any:
    """What the client says in a namespace."""
    return json.loads(run(name, "iperf3", "-c", NODE4, "-J", *options))
