"""250 pods on a node, some of which send, and rounds all the while: pods come, go, and are promised else."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from agent.network.ladder import Choice, Means, choose
from agent.network.probes import probe
from qos.bandwidth import Band, Bounds
from qos.network.wanted import PodTraffic
from tests.network.flows import Flows, flowing, numbered
from tests.network.node import WORLD_4, WORLD_6, Node
from tests.network.test_rates import BOUND, STARVED, TRIES, M
from tests.network.test_shaping import Shaper, shaping_node, traffic

log = logging.getLogger(__name__)

IDLE = 246
SECONDS = 2.0


WAYS = [
    pytest.param(Means.HTB_TCX, id="tcx"),
    pytest.param(Means.HTB_CLSACT, id="clsact", marks=pytest.mark.full),
]


@pytest.fixture(name="shaper", params=WAYS)
def _shaper(request: pytest.FixtureRequest, node: Node, tmp_path: Path, bpffs: str) -> Iterator[Shaper]:
    choices = replace(choose(probe()), sending=Choice(request.param), policing=Choice(Means.NONE))
    with shaping_node(node, tmp_path, bpffs, choices) as made:
        yield made


def idle(at: int, interface: int, step: int) -> PodTraffic:
    """One of many; what it is promised is another at each step."""
    address = bytes(10) + b"\xff\xff\x0a\x0b" + at.to_bytes(2, "big")
    floor, limit = M // 10 + (at + step) % 7 * 1000, M + (at + step) % 5 * 10_000
    return PodTraffic(f"idle{at}", Band(at % 3), Bounds(floor), Bounds(0, limit), (address,), (), interface)


class Rounds:
    """Some each second. busy: pods that are in each of them."""

    def __init__(self, shaper: Shaper, *busy: PodTraffic) -> None:
        self.shaper, self.busy = shaper, busy
        self.shaping = shaper.start()
        self.interfaces = shaper.node.links(IDLE)
        self.made = 0
        self.failures: list[str] = []

    def make(self) -> None:
        step = self.made
        here = [idle(at, one, step) for at, one in enumerate(self.interfaces) if (at + step) % 10]
        done = self.shaper.settle(self.shaping, *self.busy, *here)
        if done.unshaped or done.unclassified:
            self.failures.append(f"{done.unshaped} {done.unclassified}")
        self.made += 1

    @contextmanager
    def going_on(self) -> Iterator[None]:
        over = threading.Event()

        def work() -> None:
            while not over.wait(0.2):
                self.make()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def figures(flow: Flows, limit: int, begin: float, end: float) -> tuple[float, float]:
    """Between these times: the rate over the limit, and the longest stall in seconds."""
    rate = flow.rate(begin, end) / limit
    return rate, max(after - before for before, after in pairwise(t for t in flow.times if begin <= t <= end))


def all_kept(flows: Mapping[int, Flows]) -> bool:
    """limit -> flow. False: not all, and the test's own threads got no CPU for a part of the time."""
    waited, begin = max(one.waited() for one in flows.values()), time.monotonic()
    time.sleep(SECONDS)
    end = time.monotonic()
    waited = max(one.waited() for one in flows.values()) - waited
    found = [figures(flow, limit, begin, end) for limit, flow in flows.items()]
    log.info("rates over limits, and longest stalls: %s", found)
    if all(abs(rate - 1) < BOUND and stall < 0.25 for rate, stall in found):
        return True  # more than the limit is too much, too, where what waited before is read late
    assert waited > STARVED * SECONDS, f"rates over limits, and longest stalls: {found}"
    return False


def test_who_sends_does_not_notice(shaper: Shaper) -> None:
    node = shaper.node
    limited, limited6, quiet, receiving = (node.pod() for _ in range(4))
    rounds = Rounds(
        shaper,
        traffic("limited", limited, egress=Bounds(limit=50 * M)),
        traffic("limited6", limited6, egress=Bounds(limit=30 * M)),
        traffic("quiet", quiet, egress=Bounds(floor=M)),
        traffic("receiving", receiving, ingress=Bounds(limit=20 * M)),
    )
    rounds.make()
    with (
        flowing(limited.namespace, node.world, WORLD_4, port=5001) as one,
        flowing(limited6.namespace, node.world, WORLD_6, port=5002, count=8, congestion="bbr") as two,
        flowing(node.world, receiving.namespace, receiving.address, port=5003) as three,
        numbered(quiet.namespace, node.world, WORLD_4) as datagrams,
        rounds.going_on(),
    ):
        flows = {50 * M: one, 30 * M: two, 20 * M: three}
        assert any(all_kept(flows) for _ in range(TRIES))
    log.info("rounds %d, datagrams %d", rounds.made, datagrams.sent)
    assert rounds.failures == []
    assert rounds.made > 2
    assert datagrams.came == list(range(datagrams.sent))
