"""The maps filled at once, and what the programs make of them on the way from a pod to the world."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

import pytest

from agent.network.bpf.filling import Policed, fill, policed, traffic
from agent.network.bpf.installed import Installed
from agent.network.bpf.links import Hook
from agent.network.bpf.pins import Pins
from qos.network.wanted import Direction, class_id
from tests.network.bpf import rig
from tests.network.bpf.rig import NIC, NODE4, POD4, WORLD4, Joined, inside, own_cgroup

DEFAULT, POD = 1, 5
BY_ADDRESS = {bytes(10) + b"\xff\xff" + ipaddress.ip_address(POD4).packed: class_id(POD)}
OVERLAY4 = "10.97.0.2"
PACKETS = 20


@pytest.fixture
def node(pair: Joined) -> Iterator[Joined]:
    """A node with a NIC to the world, and a pod."""
    with rig.world(pair):
        rig.shaped(pair.node, (DEFAULT, POD), NIC)
        yield pair


@pytest.fixture
def both(node: Joined, pins: Pins) -> Iterator[Installed]:
    """classify at the NIC, mark at the host's end of the pod's veth."""
    with Installed(pins, ["classify", "mark"]) as made:
        nic, veth = node.index(node.node, NIC), node.index(node.node)
        inside(node.node, lambda: made.attach("classify", Hook.TCX_EGRESS, nic))
        inside(node.node, lambda: made.attach("mark", Hook.TCX_INGRESS, veth))
        yield made


def pings(name: str, address: str) -> None:
    rig.run(name, "ping", "-q", "-c", str(PACKETS), "-i", "0.002", "-W", "20", address)


@pytest.mark.parametrize("marks", [False, True])
def test_a_masquerade_hides_no_pod_where_marks_are_in_use(node: Joined, both: Installed, marks: bool) -> None:
    """Its packets leave with the node's own address: by that alone they would be the host's."""
    fill(both, by_address=BY_ADDRESS, by_cgroup={}, marks=marks)
    rig.run(node.node, "iptables", "-t", "nat", "-A", "POSTROUTING", "-o", NIC, "-j", "MASQUERADE")
    pings(node.pod, WORLD4)
    assert rig.sent(node.node, NIC)[POD] == (PACKETS if marks else 0)


def test_a_tunnel_hides_no_pod(node: Joined, both: Installed) -> None:
    fill(both, by_address=BY_ADDRESS, by_cgroup={}, marks=True)
    world = f"{node.node}-world"
    for name, end, other, address in (
        (node.node, "10.98.0.1", WORLD4, "10.97.0.1"),
        (world, WORLD4, "10.98.0.1", OVERLAY4),
    ):
        ends = ("local", end, "remote", other, "dstport", "4789")
        rig.ip("-n", name, "link", "add", "overlay", "type", "vxlan", "id", "7", *ends)
        rig.ip("-n", name, "addr", "add", f"{address}/24", "dev", "overlay")
        rig.ip("-n", name, "link", "set", "overlay", "up")
    rig.ip("-n", world, "route", "add", "10.99.0.0/24", "via", "10.97.0.1")
    pings(node.pod, OVERLAY4)
    assert rig.sent(node.node, NIC)[POD] == PACKETS


def test_what_the_node_itself_sends_is_nobodys(node: Joined, both: Installed) -> None:
    fill(both, by_address=BY_ADDRESS, by_cgroup={}, marks=True)
    pings(node.node, WORLD4)
    sent = rig.sent(node.node, NIC)
    assert sent[POD] == 0
    assert sent[DEFAULT] >= PACKETS


def test_only_what_differs_is_written(both: Installed) -> None:
    assert fill(both, by_address=BY_ADDRESS, by_cgroup={7: class_id(POD)}) == 3  # and the settings
    assert fill(both, by_address=BY_ADDRESS, by_cgroup={7: class_id(POD)}) == 0
    assert fill(both, by_address={}, by_cgroup={7: class_id(6)}) == 2


def test_counts_go_on_for_who_stays_and_begin_at_nothing(pair: Joined, pins: Pins) -> None:
    with own_cgroup("pod", "container") as (pod, _), Installed(pins, ["count"]) as counter:
        its = pod.stat().st_ino
        assert fill(counter, by_address={}, by_cgroup={}, counted=[its]) == 2
        counter.attach("count_tx", Hook.CGROUP_EGRESS, str(pod))
        counter.attach("count_rx", Hook.CGROUP_INGRESS, str(pod))
        rig.run(pair.pod, "ping", "-q", "-c", str(PACKETS), "-i", "0.002", "-s", "100", "-W", "20", NODE4)
        frames = PACKETS * (14 + 20 + 8 + 100)
        assert fill(counter, by_address={}, by_cgroup={}, counted=[its, 7]) == 1
        assert traffic(counter) == {its: (PACKETS, PACKETS, frames, frames), 7: (0, 0, 0, 0)}
        assert fill(counter, by_address={}, by_cgroup={}, counted=[7]) == 1
        assert list(traffic(counter)) == [7]


def test_a_bucket_goes_with_its_limit(pair: Joined, pins: Pins) -> None:
    with Installed(pins, ["police"]) as police:
        index = pair.index(pair.node)
        inside(pair.node, lambda: police.attach("police_tx", Hook.TCX_INGRESS, index))
        limits = {(class_id(POD), Direction.EGRESS): 125_000_000, (class_id(POD), Direction.INGRESS): 1}
        fill(police, by_address=BY_ADDRESS, by_cgroup={}, limits=limits)
        pings(pair.pod, NODE4)
        frames = PACKETS * (14 + 20 + 8 + 56)
        assert policed(police) == {(class_id(POD), Direction.EGRESS): Policed(PACKETS, frames, 0, 0)}
        fill(police, by_address=BY_ADDRESS, by_cgroup={})
        assert policed(police) == {}
