"""The far end of a node's link: a wire that everybody shares, and traffic that waits when told to."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from lab.node import network
from lab.node.far_end import FarEnd
from lab.node.network import Link
from tests.agent.network.namespaces import namespaces
from tests.waiting import until

WIRE = 50_000_000
PODS = "10.85.0.0/22"
POD = "10.85.0.9"
FEW, MANY = 1, 8
SENDING = """
import socket, sys
address, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
import threading
def send():
    with socket.create_connection((address, port)) as there:
        while True:
            there.sendall(bytes(1 << 18))
for _ in range(count):
    threading.Thread(target=send, daemon=True).start()
sys.stdin.read()
"""


@pytest.fixture
def linked() -> Iterator[tuple[str, Link]]:
    """A namespace that is a node with a pod's address, and its link to this machine."""
    with namespaces() as made:
        [name] = made.add("far")
        link = network.connect(made.process(name))
        route = f"route change default via {link.machine} src {POD}"
        made.batch(name, [f"address add {POD}/22 dev lo", route])
        yield name, link


@contextlib.contextmanager
def sending(namespace: str, address: str, port: int, count: int) -> Iterator[None]:
    argv = ["ip", "netns", "exec", namespace, sys.executable, "-c", SENDING, address, str(port), str(count)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        yield
        process.communicate()


def test_all_share_the_wire_and_wait_when_told_to(linked: tuple[str, Link]) -> None:
    namespace, link = linked
    with FarEnd(link.node, WIRE, PODS, ["one", "other"]) as far:
        address, ports = far.reached.address, far.reached.ports
        assert address == link.machine
        few = sending(namespace, address, ports["one"][0], FEW)
        with few, sending(namespace, address, ports["other"][0], MANY):
            with far.flowing():
                until(
                    lambda: sum(one["egress"] for one in far.rates(0.5).values()) > 0.9 * WIRE, "it is full"
                )
                found = far.rates(2.0)
            far.rates(0.1)
            idle = far.rates(0.5)
    sent = [one["egress"] for one in found.values()]
    assert sum(sent) < 1.05 * WIRE
    assert 0 < sent[0] < 0.5 * WIRE
    assert [one["egress"] for one in idle.values()] == [0, 0]


def test_nothing_stays_of_it_though_its_parent_is_killed(linked: tuple[str, Link]) -> None:
    _, link = linked
    lines = (
        "import sys; from lab.node.far_end import FarEnd",
        f"with FarEnd('{link.node}', {WIRE}, '{PODS}', ['one']):",
        " print('there', flush=True); sys.stdin.read()",
    )
    argv = [sys.executable, "-P", "-c", "\n".join(lines)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "there\n"
        assert f"{link.device}w" in links()
        parent.send_signal(signal.SIGKILL)
    until(lambda: f"{link.device}w" not in links(), "its IFB is gone")


def links() -> str:
    return subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout
