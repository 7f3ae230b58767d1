"""Where nothing can queue: what passes a policer, with real traffic.

Within 10 %, the first second included.
"""

from __future__ import annotations

import ipaddress
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.network.bpf.difference import address_entries, limit_entries
from agent.network.bpf.installed import Done, Installed
from agent.network.bpf.links import Hook
from agent.network.bpf.pins import Pins
from qos.network.wanted import Direction, class_id
from tests.network.bpf import rig
from tests.network.bpf.rig import POD4, Joined, inside
from tests.waiting import until

POD = class_id(5)
KEY = bytes(10) + b"\xff\xff" + ipaddress.ip_address(POD4).packed
MEGABIT = 1_000_000 // 8
OF_TCP = 1514 / 1448
"""Bytes of a full frame for each that TCP carries in it."""


@pytest.fixture
def policed(pair: Joined, pins: Pins) -> Iterator[Installed]:
    """At the host's end of the pod's veth, as the agent does it; a server at the host."""
    with Installed(pins, ["police"]) as made, rig.iperf3_server(pair.node):
        made.fill("by_address", address_entries({KEY: POD}))
        hang_in(pair, made)
        yield made


def hang_in(pair: Joined, of: Installed) -> list[Done]:
    index = pair.index(pair.node)
    return inside(
        pair.node,
        lambda: [
            of.attach("police_tx", Hook.TCX_INGRESS, index), of.attach("police_rx", Hook.TCX_EGRESS, index)
        ],
    )  # fmt: skip


def limit(of: Installed, direction: Direction, megabits: int) -> None:
    of.fill("limits", limit_entries({(POD, direction): megabits * MEGABIT}))


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize(
    ("megabits", "congestion"),
    [
        (10, "cubic"),
        (100, "bbr"),
        pytest.param(10, "bbr", marks=pytest.mark.full),
        pytest.param(100, "cubic", marks=pytest.mark.full),
    ],
)
def test_tcp_receives_its_limit(
    pair: Joined, policed: Installed, direction: Direction, megabits: int, congestion: str
) -> None:
    limit(policed, direction, megabits)
    way = ["-R"] if direction is Direction.INGRESS else []
    said = rig.iperf3(pair.pod, "-t", "4", "-C", congestion, *way)
    received = said["end"]["sum_received"]["bits_per_second"] * OF_TCP / 1e6
    assert received == pytest.approx(megabits, rel=0.1)


def received(name: str) -> tuple[int, float]:
    """Bytes that veth0 has received there, and when that was."""

    def read() -> tuple[int, float]:
        lines = Path("/proc/thread-self/net/dev").read_text().splitlines()
        count = next(line for line in lines if f"{rig.INTERFACE}:" in line).split()[1]
        return int(count), time.monotonic()

    return inside(name, read)


def rate(name: str, megabytes: float) -> float:
    """Megabits a second at which veth0 there receives the next so many megabytes."""
    first, began = received(name)
    until(lambda: received(name)[0] - first > megabytes * 1e6, f"{megabytes} MB")
    last, ended = received(name)
    return (last - first) * 8 / 1e6 / (ended - began)


def dropped(of: Installed) -> int:
    """Packets above the limit of what the pod sends."""
    bucket = of.maps["buckets"].items().get(struct.pack("=II", POD, 0))
    return struct.unpack_from("=Q", bucket, 40)[0] if bucket else 0


@pytest.fixture
def flood(pair: Joined, pins: Pins) -> Iterator[Installed]:
    """200 Mbit/s of UDP run on, and get a limit of 20: the bucket is new, and iperf3's start cannot save up
    in it. The policer is at the pod's own end, so that the host's counts what has passed.
    """
    with Installed(pins, ["police"]) as made, rig.iperf3_server(pair.node):
        made.fill("by_address", address_entries({KEY: POD}))
        index = pair.index(pair.pod)
        inside(pair.pod, lambda: made.attach("police_tx", Hook.TCX_EGRESS, index))
        options = ("-u", "-b", "200M", "-l", "1400", "-t", "60")
        with rig.start(pair.pod, "iperf3", "-c", rig.NODE4, *options) as process:
            try:
                until(lambda: rate(pair.node, 1) > 50, "the flood")
                limit(made, Direction.EGRESS, 20)
                yield made
            finally:
                process.kill()


def test_a_flood_gets_the_limit_from_its_first_second_on(pair: Joined, flood: Installed) -> None:
    assert rate(pair.node, 2.5) == pytest.approx(20, rel=0.1)
    assert rate(pair.node, 2.5) == pytest.approx(20, rel=0.1)


def test_a_limit_changes_and_goes_while_traffic_runs(pair: Joined, flood: Installed) -> None:
    limit(flood, Direction.EGRESS, 40)
    assert rate(pair.node, 5) == pytest.approx(40, rel=0.1)
    limit(flood, Direction.EGRESS, 10)
    assert rate(pair.node, 1.25) == pytest.approx(10, rel=0.1)
    flood.fill("limits", {})
    assert rate(pair.node, 5) > 50


def test_another_agent_goes_on_with_the_bucket_of_the_first(pair: Joined, flood: Installed) -> None:
    """So an upgrade gives nobody a full bucket: nothing is saved up where it was always overdrawn."""
    until(lambda: dropped(flood), "what the limit drops")
    with Installed(flood.pins, ["police"]) as second:
        before = dropped(second)
        limit(second, Direction.EGRESS, 20)
        assert (
            inside(pair.pod, lambda: second.attach("police_tx", Hook.TCX_EGRESS, pair.index(pair.pod)))
            is Done.KEPT
        )
        assert rate(pair.node, 2.5) == pytest.approx(20, rel=0.1)
        assert 0 < before < dropped(second)
        assert second.maps["buckets"].items().keys() == {struct.pack("=II", POD, 0)}
