"""Real traffic on this kernel: rates, floors and counters with fq_codel below each class, on cgroup v2."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from agent.deficit.judge import NOTHING, Judged
from agent.network import counting, ingress
from agent.network.ladder import Choice, Means, choose
from agent.network.metering import INTERVAL_SECONDS, Metering
from agent.network.namespaces import inside
from agent.network.netlink import Netlink
from agent.network.probes import probe
from agent.network.sending import Way
from agent.network.shaper import Round
from agent.network.shaping import Shaped
from lab.contention.groups import Tree
from qos.bandwidth import Band
from qos.network.bands import Configuration
from qos.network.wanted import Bounds, Direction, PodTraffic
from tests.network.flows import Flows, flowing
from tests.network.node import WORLD_4, WORLD_6, bpf_file_system, node
from tests.network.test_rates import M, judged
from tests.network.test_shaping import Shaper, sent, shaping_node, traffic

LINK = 40 * M
"""Slow enough for an emulated machine."""
POLICED = 0.1


@pytest.fixture(name="shaper")
def _shaper(tmp_path: Path) -> Iterator[Shaper]:
    with (
        bpf_file_system(tmp_path) as pins,
        node() as made,
        shaping_node(made, tmp_path, pins, choose(probe())) as shaper,
    ):
        assert shaper.link is not None
        shaper.link = replace(shaper.link, egress=LINK, ingress=LINK)
        yield shaper


def settled(shaper: Shaper, *pods: PodTraffic) -> Shaped:
    """All is made, and found as wanted when it is looked at again."""
    shaping = shaper.start()
    done = shaper.settle(shaping, *pods)
    assert (done.unshaped, done.unclassified) == ({}, "")
    assert shaper.settle(shaping, *pods).changes == 0
    return done


def test_limits_are_exact_above_fq_codel(shaper: Shaper) -> None:
    pod = shaper.node.pod()
    both = {"egress": Bounds(limit=10 * M), "ingress": Bounds(limit=5 * M)}
    settled(shaper, traffic("one", pod, **both))
    assert "fq_codel" in shaper.node.run("tc", "qdisc", "show", "dev", "eth0")
    judged(10 * M, pod.namespace, shaper.node.world, WORLD_4, 1, "cubic")
    judged(10 * M, pod.namespace, shaper.node.world, WORLD_6, 8, "bbr")
    judged(5 * M, shaper.node.world, pod.namespace, pod.address, 1, "cubic")


def test_what_a_pod_sends_is_policed_by_a_filter_of_clsact(shaper: Shaper) -> None:
    means = Choice(Means.POLICER_CLSACT, ("nothing queues",))
    shaper.choices = replace(shaper.choices, sending=means, policing=means)
    pod = shaper.node.pod()
    shaping = shaper.start()
    done = shaper.settle(shaping, traffic("one", pod, egress=Bounds(limit=10 * M)))
    assert {one.rate for one in done.policed} == {10 * M}
    how = (pod.namespace, shaper.node.world, WORLD_4, 8, "cubic", POLICED)
    judged(10 * M, *how, queued=False)


def parts(seconds: float, *flows: Flows) -> list[float]:
    """Of the link, of each, over a time that begins when what was lent is back."""
    time.sleep(1)
    begin = time.monotonic()
    time.sleep(seconds)
    return [one.rate(begin, begin + seconds) / LINK for one in flows]


@pytest.mark.parametrize("direction", list(Direction))
def test_a_floor_holds_beside_a_pod_that_takes_all_it_can(shaper: Shaper, direction: Direction) -> None:
    made = shaper.node
    if direction is Direction.INGRESS:
        assert shaper.link is not None
        ifb = ingress.make_ifbs(made.netlink, {made.nic})[made.nic]
        shaper.link = replace(shaper.link, ifb=ifb)
    owner, other = made.pod(), made.pod()
    floor = {direction.value: Bounds(floor=24 * M)}
    settled(shaper, traffic("owner", owner, **floor), traffic("other", other))
    with ExitStack() as sending:

        def flow(pod: object, port: int, count: int) -> Flows:
            assert isinstance(pod, type(owner))
            ends = (pod.namespace, made.world, WORLD_4)
            if direction is Direction.INGRESS:
                ends = (made.world, pod.namespace, pod.address)
            return sending.enter_context(flowing(*ends, port=port, count=count))

        borrowing = flow(other, 5002, 8)
        [lent] = parts(1, borrowing)
        assert lent > 0.9
        own = flow(owner, 5001, 1)
        kept, rest = parts(2, own, borrowing)
    assert kept > 0.95 * 24 / 40
    assert 0.95 < kept + rest < 1.05


def test_what_waits_below_a_class_is_counted_and_a_floor_that_is_kept_is_not_missed(shaper: Shaper) -> None:
    made = shaper.node
    owner, other = made.pod(), made.pod()
    pods = traffic("owner", owner, egress=Bounds(floor=24 * M)), traffic("other", other)
    settled(shaper, *pods)
    configuration = Configuration(leaf=shaper.choices.leaf)
    by_uid = {one.uid: one for one in pods}
    last = Round(shaper.before, Shaped(0, {}), 0.0, by_uid, shaper.link, configuration, {})
    found: list[Judged] = []

    def take(_: float, judged_ones: Mapping[Way, Judged]) -> None:
        found.append(judged_ones.get(Way("owner", Direction.EGRESS), NOTHING))

    async def work() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(Metering(lambda: last, take).run(), 4.5 * INTERVAL_SECONDS)

    where = Path("/run/netns") / made.name
    with (
        flowing(owner.namespace, made.world, WORLD_4, port=5001, count=4),
        flowing(other.namespace, made.world, WORLD_4, port=5002, count=4),
    ):
        inside(where, lambda: asyncio.run(work()))
    assert sum(one.wanted for one in found) > 0
    assert sum(one.deficit for one in found) <= 1, "the first second, while TCP looks for its rate"

    def look() -> counting.Counts:
        with Netlink() as netlink:
            return counting.read(netlink, shaper.bpf_root)

    before = sent(shaper, "owner")
    counts = inside(where, look)
    own = counts.classes[made.nic][shaper.before.standing["owner"].minor]
    assert before <= own.packets <= sent(shaper, "owner"), "what waits goes on after its sender has ended"
    assert own.bytes / own.packets > 1000
    assert sum(one.drops for one in counts.classes[made.nic].values()) > 0, "fq_codel's, by age or by size"


def test_a_pod_on_the_hosts_network_is_told_by_its_cgroup(shaper: Shaper, tree: Tree) -> None:
    """Cgroup v2 alone, as on today's nodes; the socket is of a container below the pod's cgroup."""
    container = tree.make("kubepods/burstable/pod1/container")
    pod = container.folder.parent.stat().st_ino
    host = PodTraffic("host", Band.L1, Bounds(limit=10 * M), Bounds(), (), (pod,))
    settled(shaper, host)
    before = sent(shaper, "host")
    lines = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
        f"for _ in range(20): s.sendto(bytes(99), ('{WORLD_4}', 9))",
    )
    code = shlex.quote("\n".join(lines))
    command = f"echo $$ > {container.folder}/cgroup.procs; exec {sys.executable} -c {code}"
    subprocess.run(["nsenter", f"--net=/run/netns/{shaper.node.name}", "sh", "-ec", command], check=True)
    assert sent(shaper, "host") == before + 20
