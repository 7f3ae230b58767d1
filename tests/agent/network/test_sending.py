"""Who wanted his floor of the network, and whether he had it."""

from __future__ import annotations

import pytest

from agent.deficit.judge import Judged
from agent.network.counting import Counts
from agent.network.records import Counters
from agent.network.sending import Place, Sending, Way
from qos.network.wanted import Direction

WAY = Way("one", Direction.EGRESS)
PLACE = Place(2, 0x10, 1000)


def counts(sent: int, waiting: int) -> Counts:
    return Counts({2: {0x10: Counters(sent, 0, 0, 0, 0, waiting)}}, {})


class Node:
    """One pod, looked at once a second. sent, waiting: as its class counts now."""

    def __init__(self) -> None:
        self.sending, self.at, self.sent = Sending(), 0.0, 0
        self.place = PLACE

    def second(self, sent: int, *waiting: int) -> Judged | None:
        """One with these looks; the last one ends it."""
        self.at += 1
        self.sent += sent
        for one in waiting[:-1]:
            self.sending.glance(counts(self.sent, one))
        return self.sending.judged(self.at, {WAY: self.place}, counts(self.sent, waiting[-1])).get(WAY)


@pytest.fixture(name="node")
def _node() -> Node:
    node = Node()
    node.second(0, 0)
    return node


def test_a_pod_that_gets_its_floor_wanted_it(node: Node) -> None:
    assert node.second(950, 0) == Judged(1, 0)
    assert node.second(2000, 99) == Judged(1, 0)
    assert not node.sending.suspected


def test_whose_packets_wait_all_along_misses_it(node: Node) -> None:
    assert node.second(100, 99) is None  # whether they did all along is not known of the first second
    assert node.sending.suspected
    assert node.second(949, 1, 5, 99) == Judged(1, 1)
    assert node.second(0, 1) == Judged(1, 1)
    assert node.second(950, 1, 1) == Judged(1, 0)


def test_a_pod_that_is_idle_or_sends_in_bursts_misses_nothing(node: Node) -> None:
    assert node.second(0, 0) is None
    assert node.second(500, 99) is None
    assert node.second(500, 99, 0, 99) is None  # its queue was empty meanwhile
    assert node.second(500, 99, 99, 0) is None
    assert not node.sending.suspected


def test_another_class_or_another_floor_begins_anew(node: Node) -> None:
    node.second(0, 99)
    node.place = PLACE._replace(floor=2000)
    assert node.second(0, 99, 99) is None
    assert node.second(0, 99, 99) == Judged(1, 1)
    node.sent = -1  # a class that was made anew counts from nothing
    assert node.second(0, 99, 99) is None


def test_a_class_that_is_gone_is_forgotten(node: Node) -> None:
    node.second(0, 99)
    assert node.sending.judged(9, {WAY: PLACE}, Counts({}, {})) == {}
    assert not node.sending.suspected
    assert node.second(0, 99) is None
