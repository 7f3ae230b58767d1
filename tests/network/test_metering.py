"""What is counted of pods' networks, and whose floors are missed, with real traffic."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from agent.deficit.judge import NOTHING, Judged
from agent.network import counting, probes
from agent.network.ladder import Choice, Means, choose
from agent.network.leaving import leave, remaining
from agent.network.metering import Metering
from agent.network.metrics import NetworkCollector, of_pods
from agent.network.namespaces import inside
from agent.network.netlink import Netlink
from agent.network.records import Counters
from agent.network.sending import Way
from agent.network.shaper import Round
from agent.network.shaping import Shaped
from qos.bandwidth import Band, Bounds
from qos.network.wanted import Direction, Link
from tests.network.flows import ETHERNET, FRAME, IPV4, TCP, Flows, flowing, frames, received
from tests.network.node import WORLD_4, Node
from tests.network.test_rates import STARVED, TRIES, M
from tests.network.test_shaping import shaping_node, traffic
from tests.network.test_sharing import CONFIGURATION, LINK, Planned
from tests.waiting import until

SECONDS = 3.3
"""Three whole intervals."""


class Rounds(Planned):
    """As an agent's Shaper has them."""

    def last(self) -> Round:
        pods = {one.uid: one for one in self.pods.values()}
        link = Link(self.node.nic, "eth0", LINK, LINK)
        return Round(self.wanted, Shaped(0, {}), 0.0, pods, link, CONFIGURATION, {})

    def inside(self, work: Callable[[], None]) -> None:
        inside(Path("/run/netns") / self.node.name, work)

    def judged(self) -> dict[str, Judged]:
        """Of each pod, by uid, in SECONDS."""
        found: defaultdict[str, Judged] = defaultdict(lambda: NOTHING)

        def take(_: float, new: Mapping[Way, Judged]) -> None:
            for way, one in new.items():
                assert way.direction is Direction.EGRESS
                before = found[way.uid]
                found[way.uid] = Judged(before.wanted + one.wanted, before.deficit + one.deficit)

        async def work() -> None:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(Metering(self.last, take).run(), SECONDS)

        self.inside(lambda: asyncio.run(work()))
        return dict(found)

    def judged_while(self, *flows: Flows) -> dict[str, Judged]:
        """Again, where floors were missed and threads of the test got no CPU for a part of the time."""
        for _ in range(TRIES):
            waited = max(one.waited() for one in flows)
            found = self.judged()
            waited = max(one.waited() for one in flows) - waited
            if waited < STARVED * SECONDS or not any(one.deficit for one in found.values()):
                break
        return found


@pytest.fixture(name="rounds")
def _rounds(node: Node) -> Rounds:
    return Rounds(node)


def test_floors_that_are_kept_are_wanted_and_not_missed(rounds: Rounds) -> None:
    """One of a pod that would send more, one of a pod that sends nothing; all else is taken by others."""
    floored = rounds.pod(Band.L1, floor=80 * M)
    rounds.pod(Band.L1, floor=40 * M)
    other = rounds.pod(Band.L0)
    rounds.reconcile()
    with rounds.sending(floored, count=2) as own, rounds.sending(other) as others:
        found = rounds.judged_while(own, others)
    assert found.keys() == {floored.address}
    assert found[floored.address].wanted == pytest.approx(2, rel=0.3)
    assert found[floored.address].deficit == 0


def test_a_floor_that_cannot_be_kept_whole_is_missed(rounds: Rounds) -> None:
    """More was promised than the link has: the second is granted 30 of its 100 Mbit/s."""
    first, second = rounds.pod(Band.L1, floor=150 * M), rounds.pod(Band.L1, floor=100 * M)
    rounds.reconcile(short=True)
    with rounds.sending(first, count=2) as one, rounds.sending(second, count=2) as two:
        found = rounds.judged_while(one, two)
    assert found[second.address].deficit == found[second.address].wanted > 0.9
    assert found[first.address].deficit < found[first.address].wanted


def test_what_is_counted_is_what_arrives(rounds: Rounds) -> None:
    node = rounds.node
    pod, shared = rounds.pod(Band.L1, limit=10 * M), rounds.pod(Band.L2)
    rounds.pods[pod] = replace(rounds.pods[pod], ingress=Bounds(0, 20 * M))
    registry = CollectorRegistry()
    names = {rounds.pods[one].uid: ("shop", name) for one, name in ((pod, "web"), (shared, "job"))}
    collector = NetworkCollector(rounds.last, lambda: names, registry)
    rounds.reconcile()

    def value(name: str, **labels: str) -> float:
        rounds.inside(lambda: asyncio.run(collector.refresh()))
        found = registry.get_sample_value(f"j10ce_agent_{name}", labels)
        assert found is not None, (name, labels)
        return found

    def arrived() -> tuple[int, int]:
        found: list[tuple[int, int]] = []

        def look() -> None:
            with Netlink() as netlink:
                found.append(received(netlink, "eth0"))

        inside(Path("/run/netns") / node.world, look)
        return found[0]

    web = {"namespace": "shop", "pod": "web", "direction": "egress"}
    link, others = ({"direction": "egress", "class": name} for name in ("link", "L2-shared"))
    before = arrived()
    with rounds.sending(pod, count=2), rounds.sending(shared):
        until(lambda: value("pod_network_packets_total", **web) > 1000, "a second's packets")
        assert value("pod_network_backlog_bytes", **web) > 0
    until(lambda: value("pod_network_backlog_bytes", **web) == 0, "the end of its queue")
    packets, size = (now - then for now, then in zip(arrived(), before, strict=True))
    sent = frames(size - packets * (ETHERNET + IPV4 + TCP))  # the world counts what TCP hands over at once
    assert value("network_class_bytes_total", **link) == pytest.approx(sent, rel=0.01)
    own, of_others = value("pod_network_bytes_total", **web), value("network_class_bytes_total", **others)
    assert own + of_others == pytest.approx(value("network_class_bytes_total", **link), rel=0.01)
    assert own / value("pod_network_packets_total", **web) == pytest.approx(FRAME, rel=0.02)
    assert value("pod_network_overlimits_total", **web) > 0
    assert value("pod_network_bytes_total", **(web | {"direction": "ingress"})) > 0
    assert registry.get_sample_value("j10ce_agent_pod_network_bytes_total", web | {"pod": "job"}) is None


@pytest.mark.parametrize("means", [Means.POLICER_TCX, Means.POLICER_CLSACT])
def test_what_a_policer_drops_is_counted_and_nothing_is_left_of_it(
    node: Node, tmp_path: Path, bpffs: str, means: Means
) -> None:
    """Its agent has ended: only what is pinned, and where it hangs, is left."""
    best, pod = choose(probes.probe()), node.pod()
    choice = Choice(means, ("this kernel lacks what is better",))
    choices = replace(best, sending=choice, policing=choice)
    before = node.everything()
    with shaping_node(node, tmp_path, bpffs, choices) as here:
        limited = traffic("one", pod, egress=Bounds(limit=20 * M))
        assert here.settle(here.start(), limited).policed
        last = Round(here.before, Shaped(0, {}), 0.0, {"one": limited}, here.link, CONFIGURATION, {})

    def look() -> Counters:
        with Netlink() as netlink:
            [(labels, found)] = of_pods(last, counting.read(netlink, bpffs), {"one": ("shop", "web")})
        assert labels == ("shop", "web", "egress")
        return found

    def counted() -> Counters:
        return inside(Path("/run/netns") / node.name, look)

    with flowing(pod.namespace, node.world, WORLD_4):
        until(lambda: counted().drops > 10 and counted().packets > 1000, "dropped packets, and others")
    found = counted()
    assert found.bytes / found.packets > 1000
    assert inside(Path("/run/netns") / node.name, lambda: leave(tmp_path, bpffs)) == []
    assert inside(Path("/run/netns") / node.name, lambda: remaining(bpffs)) == []
    assert node.everything() == before
