"""Floors, bands and what is idle, with real traffic: plans of qos.network, made by the agent's own code.

Windows begin half a second after each change: that is how soon what is lent has to be back.
"""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest

from agent.network import messages
from qos.bandwidth import Band, Bounds
from qos.network.bands import DEFAULT
from qos.network.planning import plan
from qos.network.wanted import Link, PodTraffic, Wanted
from tests.network.flows import Flows, flood, flowing, in_namespace
from tests.network.node import WORLD_4, Node, Pod
from tests.network.test_rates import BOUND, STARVED, TRIES, M

log = logging.getLogger(__name__)

LINK = 200 * M
SOON = 0.5
WINDOW = 1.0
PACKETS = 4 * 65_536 / (LINK * WINDOW)
"""Of a window: what comes in packets of many segments at its ends; a sixteenth of 2 % of the link."""
L0 = 0.93
"""Of a link: what the host and the other bands do not keep for themselves (qos.network.bands)."""
CONFIGURATION = replace(DEFAULT, leaf="bfifo")


class Planned:
    """Pods with what they are promised, as the node's plan has it."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.pods: dict[Pod, PodTraffic] = {}
        self.wanted = Wanted()

    def pod(self, band: Band, floor: int = 0, limit: int | None = None) -> Pod:
        pod = self.node.pod()
        self.set(pod, band, floor, limit)
        return pod

    def set(self, pod: Pod, band: Band, floor: int = 0, limit: int | None = None) -> None:
        self.pods[pod] = PodTraffic(
            uid=pod.address,
            band=band,
            egress=Bounds(floor, limit),
            ingress=Bounds(),
            addresses=(pod.packed, pod.packed6),
            interface=pod.host,
        )

    def reconcile(self, *, short: bool = False) -> None:
        links = [Link(index=self.node.nic, name="eth0", egress=LINK, ingress=LINK)]
        before = self.wanted
        self.wanted = plan(links, self.pods.values(), CONFIGURATION, before)
        assert bool(self.wanted.shortfalls) is short
        self.node.reconcile(*self.wanted.trees, *self.wanted.buckets)
        for address, one in self.wanted.by_address.items():
            if before.by_address.get(address) != one:
                self.node.netlink.one(messages.from_source(self.node.nic, address, one))

    def sending(self, pod: Pod, **how: int) -> AbstractContextManager[Flows]:
        port = 5001 + self.node.pods.index(pod)
        return flowing(pod.namespace, self.node.world, WORLD_4, port=port, **how)


@pytest.fixture(name="planned")
def _planned(node: Node) -> Planned:
    return Planned(node)


def rates(*flows: Flows, least: Sequence[float], together: float = 0) -> list[float]:
    """Of each over a window that begins soon, in parts of the link; within 5 % of at least so much, each and
    together.

    As in test_rates: again, where less came and threads of the test got no CPU for over 2 % of the window.
    """
    time.sleep(SOON)
    for _ in range(TRIES):
        waited = max(one.waited() for one in flows)
        time.sleep(WINDOW)
        until = time.monotonic()
        found = [one.rate(until - WINDOW, until) / LINK for one in flows]
        waited = max(one.waited() for one in flows) - waited
        log.info("parts of the link: %s, waited %.3f s", " ".join(f"{one:.3f}" for one in found), waited)
        assert sum(found) < 1 + BOUND
        pairs = [*zip(found, least, strict=True), (sum(found), together)]
        if all(have > (1 - BOUND) * need - PACKETS for have, need in pairs):
            return found
        assert waited > STARVED * WINDOW, found
    raise AssertionError(f"{found} and no CPU in all tries")


def test_what_is_idle_is_lent_and_given_back(planned: Planned) -> None:
    floored, other = planned.pod(Band.L1, floor=120 * M), planned.pod(Band.L1)
    planned.reconcile()
    with planned.sending(other) as borrowing:
        rates(borrowing, least=[1])
        with planned.sending(floored, count=2) as own:
            rates(own, borrowing, least=[120 / 200, 0.02], together=1)  # its floor, and its band's minimum
        rates(borrowing, least=[1])


def test_pods_of_a_band_have_their_floors_at_once_and_share_the_rest(planned: Planned) -> None:
    pods = [planned.pod(Band.L1, floor=floor * M) for floor in (90, 50, 10)]
    planned.reconcile()
    with planned.sending(pods[0]) as one, planned.sending(pods[1]) as two, planned.sending(pods[2]) as three:
        rates(one, two, three, least=[90 / 200, 50 / 200, 10 / 200], together=1)


def test_a_pod_with_a_floor_takes_no_more_of_the_rest_than_each_that_shares_a_leaf(planned: Planned) -> None:
    """Its floor and a quarter of the rest: with one turn for all three, or turns of few packets, it had more.

    bfifo shares by chance among the three: their sum counts.
    """
    own, *sharing = planned.pod(Band.L0, floor=80 * M), *(planned.pod(Band.L0) for _ in range(3))
    planned.reconcile()
    with contextlib.ExitStack() as sending:
        flows = [sending.enter_context(planned.sending(pod)) for pod in (own, *sharing)]
        found = rates(*flows, least=[80 / 200, 0, 0, 0], together=1)
        assert sum(found[1:]) > 0.9 * 3 / 4 * (1 - 80 / 200)


def test_a_lower_band_borrows_and_gives_back(planned: Planned) -> None:
    high, low = planned.pod(Band.L0), planned.pod(Band.L2)
    planned.reconcile()
    with planned.sending(low) as borrowing:
        rates(borrowing, least=[1])
        with planned.sending(high) as own:
            rates(own, borrowing, least=[L0, 0.02])
        rates(borrowing, least=[1])


def test_a_flood_of_the_lowest_band_leaves_the_first_its_throughput_and_latency(planned: Planned) -> None:
    high, low = planned.pod(Band.L0, floor=100 * M), planned.pod(Band.L2)
    planned.reconcile()
    alone = latency(planned.node, high)
    with flood(low.namespace, WORLD_4, 2 * LINK):
        flooded = latency(planned.node, high)
        with planned.sending(high, count=4) as own:
            rates(own, least=[L0])
    log.info("latency alone %.2f ms, in the flood %.2f ms", alone, flooded)
    assert flooded < alone + 5  # one packet of 64 kB takes 2.6 ms on this link
    drops = planned.node.run("tc", "-s", "class", "show", "dev", "eth0", "classid", "10ce:8")
    assert int(re.search(r"dropped (\d+)", drops)[1]) > 0  # there was a flood


def latency(node: Node, pod: Pod) -> float:
    """The median round trip to the world, in milliseconds."""
    argv = ["ip", "netns", "exec", pod.namespace, "ping", "-c", "60", "-i", "0.02", WORLD_4]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    times = sorted(float(one) for one in re.findall(r"time=([\d.]+)", done.stdout))
    assert len(times) >= 58  # none is lost
    return times[len(times) // 2]


def test_a_limit_is_changed_while_traffic_flows(planned: Planned) -> None:
    pod = planned.pod(Band.L1, limit=40 * M)
    planned.reconcile()
    with planned.sending(pod, count=4) as flows:
        for limit in (40, 100, 20):
            planned.set(pod, Band.L1, limit=limit * M)
            planned.reconcile()
            [rate] = rates(flows, least=[limit / 200])
            assert rate < (1 + BOUND) * limit / 200
        stalls = [after - before for before, after in zip(flows.times, flows.times[1:], strict=False)]
    log.info("longest stall %.0f ms", max(stalls) * 1e3)
    assert max(stalls) < 0.25


def test_no_packet_is_lost_by_changing_limits(planned: Planned) -> None:
    """Numbered datagrams at a tenth of any of the limits: all of them come, in order."""
    pod, other = planned.pod(Band.L1, limit=40 * M), planned.pod(Band.L1, floor=M)
    planned.reconcile()
    receiver = in_namespace(planned.node.world, socket.AF_INET, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    receiver.bind(("", 7000))
    receiver.settimeout(10)
    sender = in_namespace(pod.namespace, socket.AF_INET, socket.SOCK_DGRAM)
    for step in range(40):
        planned.set(pod, Band.L1, limit=(20 + step) * M)
        planned.set(other, Band.L1, floor=(1 + step) * M)
        for number in range(10):
            sender.sendto((step * 20 + number).to_bytes(4, "big"), (WORLD_4, 7000))
        planned.reconcile()
        for number in range(10, 20):
            sender.sendto((step * 20 + number).to_bytes(4, "big"), (WORLD_4, 7000))
    came = [int.from_bytes(receiver.recv(100), "big") for _ in range(40 * 20)]
    assert came == list(range(40 * 20))
    sender.close()
    receiver.close()
