"""The whole way with real traffic: the BPF program names the class at TCX or clsact; IFB receives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.network import classifying, ingress
from agent.network.bpf.difference import address_entries
from agent.network.bpf.installed import Installed
from agent.network.bpf.links import Hook
from agent.network.bpf.pins import Pins
from agent.network.namespaces import inside
from qos.bandwidth import Band
from qos.network.bands import DEFAULT, divide
from qos.network.tree import Member, banded
from qos.network.wanted import Direction, HtbClass, HtbTree, class_id
from tests.network.node import WORLD_4, WORLD_6, Node
from tests.network.test_rates import M, judged

FIRST, SECOND = 0x20, 0x21


@pytest.fixture(name="program")
def _program(bpffs: str) -> Iterator[Installed]:
    """The classifier, pinned in a file system of the test's own."""
    with Pins(bpffs) as pins, Installed(pins, ["classify"]) as made:
        yield made


@pytest.mark.parametrize("hook", ["tcx", "clsact"])
def test_pods_are_told_apart_by_the_program(node: Node, program: Installed, hook: str) -> None:
    pods = [node.pod(), node.pod()]
    division = divide(DEFAULT.bands(Direction.EGRESS), 500 * M)
    members = [Member(FIRST, Band.L1, 0, 20 * M), Member(SECOND, Band.L0, 0, 80 * M)]
    node.reconcile(banded(node.nic, division, members, {}, "bfifo"))
    by_address = {
        address: class_id(minor)
        for pod, minor in zip(pods, (FIRST, SECOND), strict=True)
        for address in (pod.packed, pod.packed6)
    }
    program.fill("by_address", address_entries(by_address))
    if hook == "tcx":
        namespace = Path("/run/netns") / node.name
        inside(namespace, lambda: program.attach("classify", Hook.TCX_EGRESS, node.nic))
    else:
        classifying.attach(node.netlink, node.nic, program.programs["classify"], "j10ce_classify")
    judged(20 * M, pods[0].namespace, node.world, WORLD_4, 1, "cubic")
    judged(80 * M, pods[1].namespace, node.world, WORLD_6, 4, "cubic")


def test_what_the_nic_receives_is_shaped_at_the_ifb(node: Node) -> None:
    pod = node.pod()
    ifbs = ingress.make_ifbs(node.netlink, {node.nic})
    for change in ingress.changes(ifbs, node.found()):
        node.netlink.one(change.request)
    node.reconcile(whole(ifbs[node.nic], 50 * M))
    judged(50 * M, node.world, pod.namespace, pod.address, 2, "cubic")
    judged(50 * M, node.world, pod.namespace, pod.address6, 1, "bbr")


def whole(interface: int, rate: int) -> HtbTree:
    """All that comes shares so much."""
    root = HtbClass(1, 0, 0, rate, rate, 20_000, rate // 250, "")
    return HtbTree(interface, 2, (root, HtbClass(2, 1, 0, rate, rate, 20_000, rate // 250, "bfifo")))
