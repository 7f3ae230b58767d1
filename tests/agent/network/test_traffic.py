"""Pods as the plan of a node's network takes them."""

from __future__ import annotations

import socket

from agent.network.traffic import on_host_network, pod_traffic
from agent.network.veths import NO_PROCESS, HostEnd
from agent.nri.records import NriPod
from agent.state import KnownPod
from qos.bandwidth import Band, Bounds
from qos.network.planning import plan
from qos.network.wanted import Link, PodTraffic, Unkept
from qos.pods.containers import NodePod
from qos.pods.traffic import Traffic


def share() -> Traffic:
    return Traffic(Band.L1, Bounds(1000, 2000), Bounds(0, 3000))


def known(uid: str, **fields: object) -> KnownPod:
    return KnownPod(NodePod(uid, "shop", f"pod-{uid}", (), priority=7), **fields)  # type: ignore[arg-type]


def sandbox(uid: str, *addresses: str, own_network: bool | None = True) -> NriPod:
    return NriPod(f"s-{uid}", uid, "shop", f"pod-{uid}", addresses=addresses, own_network=own_network)


ADDRESS = socket.inet_pton(socket.AF_INET, "10.1.0.7")


def test_a_pod_with_a_network_of_its_own() -> None:
    pods = {"a": known("a", addresses=("10.1.0.7",))}
    found = pod_traffic(pods, {"a": share()}, {}, {"a": HostEnd(12)}, {"a": 99})
    wanted = share()
    assert found == (
        PodTraffic("a", Band.L1, wanted.egress, wanted.ingress, (ADDRESS,), (), interface=12, priority=7),
    )


def test_a_pod_with_the_hosts_network_is_known_by_its_cgroup() -> None:
    pods = {"a": known("a", addresses=("192.0.2.1",), host_network=True)}
    (found,) = pod_traffic(pods, {"a": share()}, {}, {"a": HostEnd(12)}, {"a": 99})
    assert (found.addresses, found.cgroup_ids, found.interface) == ((), (99,), 0)
    (nameless,) = pod_traffic(pods, {"a": share()}, {}, {}, {})
    assert nameless.cgroup_ids == ()


def test_before_its_status_is_known_the_runtime_tells() -> None:
    pods = {"a": known("a", provisional=True)}
    (found,) = pod_traffic(pods, {"a": share()}, {"a": sandbox("a", "10.1.0.7")}, {"a": HostEnd(12)}, {})
    assert (found.addresses, found.interface) == ((ADDRESS,), 12)
    told = {"a": sandbox("a", own_network=False)}
    (found,) = pod_traffic(pods, {"a": share()}, told, {}, {"a": 99})
    assert (found.addresses, found.cgroup_ids) == ((), (99,))


def test_what_the_api_server_says_of_the_hosts_network_counts() -> None:
    assert not on_host_network(known("a"), sandbox("a", own_network=False))
    assert on_host_network(known("a", host_network=True), sandbox("a"))
    static = known("a", host_network=True, provisional=True)
    assert on_host_network(static, sandbox("a", own_network=None)), "its mirror is gone, it goes on"
    assert not on_host_network(known("a", provisional=True), sandbox("a", own_network=None))
    assert not on_host_network(known("a", provisional=True), None)


def test_what_has_ended_has_nothing_and_what_it_had_is_anothers() -> None:
    pods = {
        "old": known("old", addresses=("10.1.0.7",), finished=True),
        "new": known("new", addresses=("10.1.0.7",)),
    }
    shares = {"old": share(), "new": share()}
    (found,) = pod_traffic(pods, shares, {}, {"old": HostEnd(12), "new": HostEnd(12)}, {})
    assert (found.uid, found.addresses, found.interface) == ("new", (ADDRESS,), 12)


def test_an_interface_of_two_pods_is_nobodys() -> None:
    pods = {"a": known("a"), "b": known("b")}
    found = pod_traffic(pods, {"a": share(), "b": share()}, {}, {"a": HostEnd(12), "b": HostEnd(12)}, {})
    assert [one.interface for one in found] == [0, 0]


def test_only_pods_of_which_something_is_expected_though_all_may_claim_addresses() -> None:
    pods = {"a": known("a", addresses=("10.1.0.7",)), "b": known("b", addresses=("10.1.0.7",))}
    ends = {"a": NO_PROCESS, "b": HostEnd(0, "macvlan")}
    (found,) = pod_traffic(pods, {"a": share()}, {}, ends, {})
    assert (found.uid, found.addresses) == ("a", ()), "the address is b's, which runs"


def test_a_plan_can_be_made_of_it_and_says_who_cannot_be_told() -> None:
    pods = {"a": known("a", addresses=("10.1.0.7",)), "b": known("b")}
    found = pod_traffic(pods, {"a": share(), "b": share()}, {}, {"a": HostEnd(12)}, {})
    wanted = plan([Link(2, "eth0", 10**8, 10**8)], found)
    assert list(wanted.by_address) == [bytes(10) + b"\xff\xff" + ADDRESS]
    assert [bucket.interface for bucket in wanted.buckets] == [12]
    assert {(one.uid, one.reason) for one in wanted.shortfalls} == {("b", Unkept.NOT_IDENTIFIED)}
