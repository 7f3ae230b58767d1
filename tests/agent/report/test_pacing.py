"""When reports are written: one node's moments, and what 5,000 nodes come to together."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from dataclasses import replace

import pytest

from agent.report.pacing import (
    CALM_SECONDS,
    HEARTBEAT_SECONDS,
    RATE,
    SHORTEST_SECONDS,
    Pacing,
)
from qos.cluster.node_report import NodeReport, PolicyState, UsageState

POLICY = PolicyState("shop/checkout", "u", 2, 2, 2)
REPORT = NodeReport("0.1.0", "6.12.0", "v2", "containerd 2.1.4", policies=(POLICY,))
UNDER_WAY = replace(REPORT, policies=(replace(POLICY, verified=1),))


def never() -> float:
    return 0.0


def small() -> Pacing:
    """A small cluster's, that has written REPORT at 0."""
    pacing = Pacing(0.0, never, nodes=3)
    assert pacing.due(REPORT, 0.0)
    pacing.wrote(REPORT, 0.0)
    return pacing


def test_what_matters_is_written_at_the_next_moment() -> None:
    pacing = small()
    assert pacing.next == SHORTEST_SECONDS
    assert pacing.due(UNDER_WAY, pacing.next)


@pytest.mark.parametrize(
    "noise",
    [
        replace(REPORT, pressure={"cpu": "High"}),
        replace(REPORT, repaired=1),
        replace(REPORT, usage=UsageState(1.0, {"cpu": 1})),
        replace(REPORT, policies=(replace(POLICY, deficit_seconds=1.0),)),
    ],
)
def test_what_changes_all_the_time_waits(noise: NodeReport) -> None:
    pacing = small()
    assert not pacing.due(noise, CALM_SECONDS - 1)
    assert pacing.due(noise, CALM_SECONDS)


@pytest.mark.parametrize("nodes", [3, 900, 1000, 1300, 1500, 1700, 1800])
def test_what_is_measured_all_the_time_is_written_about_once_a_minute(nodes: int) -> None:
    """Though a moment is met a little late or early: rescheduling waits for it."""
    rnd = random.Random(nodes)
    pacing, written = Pacing(0.0, rnd.random, nodes), []
    while pacing.next < 3600:
        now = pacing.next + 0.05 * rnd.random()
        report = replace(REPORT, usage=UsageState(now, {"cpu": 1}))
        if pacing.due(report, now):
            pacing.wrote(report, now)
            written.append(now)
    between = [later - sooner for sooner, later in itertools.pairwise(written)]
    assert 30 <= min(between) <= max(between) <= 91


def test_a_heartbeat_comes_without_any_change() -> None:
    pacing = small()
    assert not pacing.due(REPORT, HEARTBEAT_SECONDS - SHORTEST_SECONDS)
    assert pacing.due(REPORT, HEARTBEAT_SECONDS)


STALE_SECONDS = 900.0
"""As extender.node_reports has it."""


def gaps(nodes: int, seed: int, *, failures: int = 0) -> list[float]:
    """Seconds between an agent's writes in six hours: nodes come and go, before each write so many fail.

    The nodes are counted as the writer does: every half hour, after a moment.
    """
    rnd, count, counted, last, failed = random.Random(seed), nodes, 0.0, 0.0, 0
    pacing, found = Pacing(0.0, rnd.random, nodes), []
    while (now := pacing.next) < 6 * 3600:
        if pacing.due(REPORT, now):
            failed += 1
            if failed > failures:
                pacing.wrote(REPORT, now)
                found.append(now - last)
                last, failed = now, 0
        if now - counted >= 1800:
            counted, count = now, count + rnd.choice((-3, -1, 1, 4))
            pacing.resize(count, now)
    return found


@pytest.mark.parametrize("nodes", [3, 5000, 8990])
def test_no_two_heartbeats_are_further_apart_than_one_may_be(nodes: int) -> None:
    assert max(max(gaps(nodes, seed)) for seed in range(20)) <= HEARTBEAT_SECONDS + SHORTEST_SECONDS


@pytest.mark.parametrize(("nodes", "failures"), [(5_000, 3), (10_000, 1), (21_000, 0)])
def test_a_report_does_not_go_stale_where_the_page_says_so(nodes: int, failures: int) -> None:
    assert max(max(gaps(nodes, seed, failures=failures)) for seed in range(20)) < STALE_SECONDS


def test_a_few_nodes_more_or_less_change_nothing() -> None:
    pacing = Pacing(0.0, lambda: 0.5, nodes=3000)
    before = pacing.interval, pacing.next
    pacing.resize(3500, 10.0)
    pacing.resize(2500, 20.0)
    assert (pacing.interval, pacing.next) == before


def test_moments_that_were_slept_through_leave_the_others_where_they_were() -> None:
    pacing = Pacing(0.0, lambda: 0.5, nodes=3)
    assert pacing.next == 1.0
    pacing.due(REPORT, 8.4)
    assert pacing.next == 9.0


def test_more_nodes_draw_a_wider_lot() -> None:
    pacing = Pacing(0.0, lambda: 0.5, nodes=3)
    pacing.resize(3000, 10.0)
    assert (pacing.interval, pacing.next) == (3000 / RATE, 10.0 + 0.5 * 3000 / RATE)


NODES = 5000
SECONDS = 2400
EDITED = 400.0
RESTARTS = (700.0, 1300.0)
OUTAGE = (1500.0, 1700.0)
TURMOIL = 1900.0


class Fleet:
    """5,000 agents in virtual time, with all that can happen to every node at once.

    At 0 all are started within a second, none has a NodeQoS. Pressure flips and deficits grow everywhere,
    always. At EDITED a policy's edit touches every node within a second. All agents restart one after the
    other during RESTARTS. During OUTAGE every write fails. From TURMOIL on something that matters has changed
    at every moment of every node.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.writes: Counter[int] = Counter()
        self.newest = [-1] * NODES
        self.edit_written = [0.0] * NODES
        self.turn = 0
        self._made = [False] * NODES
        self._restarted = [False] * NODES
        self._edited = [EDITED + self.random.random() for _ in range(NODES)]
        self._pacing = [self._start(self.random.random()) for _ in range(NODES)]

    def _start(self, now: float) -> Pacing:
        return Pacing(now, self.random.random, nodes=NODES)

    def run(self) -> None:
        heap = [(pacing.next, node) for node, pacing in enumerate(self._pacing)]
        heapq.heapify(heap)
        while heap[0][0] < SECONDS:
            now, node = heapq.heappop(heap)
            self._moment(now, node)
            heapq.heappush(heap, (self._pacing[node].next, node))

    def _moment(self, now: float, node: int) -> None:
        restart = RESTARTS[0] + (RESTARTS[1] - RESTARTS[0]) * node / NODES
        if now >= restart and not self._restarted[node]:
            self._restarted[node] = True
            self._pacing[node] = self._start(restart)
            if self._pacing[node].next > now:
                return
        pacing, report = self._pacing[node], self._report(now, node)
        if not pacing.due(report, now):
            return
        self.writes[int(now)] += 1
        if not self._made[node]:
            self._made[node] = True
        elif not OUTAGE[0] <= now < OUTAGE[1]:
            pacing.wrote(report, now)
            if now >= self._edited[node] and not self.edit_written[node]:
                self.edit_written[node] = now

    def _report(self, now: float, node: int) -> NodeReport:
        self.turn += 1
        applied = 2 if now < self._edited[node] else 3
        turmoil = self.turn if now >= TURMOIL else 0
        state = replace(POLICY, applied=applied, pods=3 + turmoil, deficit_seconds=now)
        return replace(REPORT, pressure={"cpu": ("Some", "High")[self.turn % 2]}, policies=(state,))


def test_five_thousand_nodes_stay_below_50_writes_a_second() -> None:
    fleet = Fleet(seed=7)
    fleet.run()
    windows = [sum(fleet.writes[second + k] for k in range(10)) for second in range(SECONDS - 10)]
    assert max(windows) < 500, f"{max(windows) / 10} writes a second in the worst 10 s"
    turmoil = sum(fleet.writes[second] for second in range(int(TURMOIL), SECONDS))
    assert turmoil / (SECONDS - TURMOIL) == pytest.approx(RATE, rel=0.05), "the worst case was reached"
    assert max(fleet.edit_written) < EDITED + 2 * NODES / RATE
    assert min(fleet.edit_written) > 0
