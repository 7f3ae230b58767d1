"""The network on this kernel, which is older than the machine's: programs as filters of clsact, fq_codel."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.network.bpf.installed import Installed
from agent.network.bpf.pins import Pins
from agent.network.ladder import Means, choose
from agent.network.probes import probe
from qos.network.wanted import Bounds
from tests.network.node import WORLD_4, Pod, bpf_file_system, node
from tests.network.test_shaping import MEGABIT, Shaper, sent, shaping_node, traffic

PACKETS = 20


@pytest.fixture
def pins(tmp_path: Path) -> Iterator[str]:
    """A BPF file system of the test's own."""
    with bpf_file_system(tmp_path) as folder:
        yield folder


@pytest.fixture(name="shaper")
def _shaper(tmp_path: Path, pins: str) -> Iterator[Shaper]:
    with node() as made, shaping_node(made, tmp_path, pins, choose(probe())) as shaper:
        yield shaper


@pytest.mark.parametrize("program", ["classify", "count", "mark", "police", "receive"])
def test_every_program_loads(pins: str, program: str) -> None:
    with Pins(pins) as opened, Installed(opened, [program]) as installed:
        assert installed.maps


def send(shaper: Shaper, pod: Pod) -> None:
    """Datagrams to the world."""
    lines = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
        f"for _ in range({PACKETS}): s.sendto(bytes(99), ('{WORLD_4}', 9))",
    )
    shaper.node.run(sys.executable, "-c", "\n".join(lines), namespace=pod.namespace)


def test_what_a_pod_sends_goes_to_its_class(shaper: Shaper) -> None:
    choices = shaper.choices
    assert (choices.sending.means, choices.pods.means) == (Means.HTB_CLSACT, Means.TBF), choices
    assert choices.leaf == "fq_codel", choices
    shaping, pod = shaper.start(), shaper.node.pod()
    bounds = {"egress": Bounds(floor=MEGABIT), "ingress": Bounds(limit=MEGABIT)}
    done = shaper.settle(shaping, traffic("one", pod, **bounds))
    assert (done.unshaped, done.unclassified) == ({}, "")
    before = sent(shaper, "one")
    send(shaper, pod)
    shown = [
        shaper.node.run("tc", "-s", what, "show", "dev", "eth0") for what in ("class", "filter", "qdisc")
    ]
    assert sent(shaper, "one") >= before + PACKETS, "\n".join(shown)
