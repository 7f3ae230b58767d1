"""What is reported of a node's network, and when: what passes by itself is nobody's problem."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from agent.network.standing import Standing
from agent.network.unkept import Problem
from agent.network.uplink import Uplink
from agent.network_report import OBSERVES, NetworkReport
from qos.cluster.network_state import Obstacle
from qos.cluster.objects import Selector
from qos.cluster.policy import Policy
from qos.keys import EGRESS_BANDWIDTH, INGRESS_BANDWIDTH
from qos.network.wanted import Direction
from qos.pods.containers import NodePod
from qos.pods.decision import Decided, decided
from tests.agent.network.test_standing import WELL
from tests.fake_time import FakeTime

POLICY = Policy("shop/web", "shop", "web", "u", 1, "1", 0.0, Selector(), {EGRESS_BANDWIDTH: 10**7})
FAILS = replace(WELL, failure="netlink does not answer")
UNKNOWN = Problem(Direction.EGRESS, True, "NotIdentified", "its packets are not told from others' yet")
EXCEEDED = Problem(Direction.EGRESS, True, "LinkExceeded", "1M bits/s are not kept")
CNIS = Problem(Direction.INGRESS, False, "ForeignQdisc", "tbf 1: at veth7 was put there by another")


@dataclass
class Network:
    """Stands for a NodeNetwork."""

    seen: Standing = WELL
    problems: tuple[Problem, ...] | None = ()
    asked: list[str] = field(default_factory=list)

    def standing(self, *_: object) -> Standing:
        return self.seen

    def unkept(self, decided: Decided) -> tuple[Problem, ...] | None:
        self.asked.append(decided.pod.uid)
        return self.problems


class Rig:
    def __init__(self, seen: Standing = WELL) -> None:
        self.clock, self.network = FakeTime(), Network(seen)
        network: Any = self.network
        self.report = NetworkReport(network, Uplink(), self.clock)

    def enforced(self) -> list[bool]:
        return [one.enforced for one in self.report.promises()]


def web(policy: Policy = POLICY, **annotations: str) -> Decided:
    return decided(NodePod("p", "shop", "web-1", (), annotations=annotations), [policy], {}, None)


def test_a_round_that_fails_once_is_no_reason_to_leave_a_node() -> None:
    rig = Rig()
    assert rig.enforced() == [True, True]
    rig.network.seen = FAILS
    assert rig.enforced() == [True, True]
    rig.clock.now += 29
    assert rig.enforced() == [True, True]
    rig.clock.now += 2
    assert rig.enforced() == [False, False]
    assert "netlink does not answer" in rig.report.promises()[0].message
    rig.network.seen = WELL
    assert rig.enforced() == [True, True]
    rig.network.seen = FAILS
    assert rig.enforced() == [True, True], "it is counted anew"


def test_what_was_reported_before_a_restart_holds_on_until_there_is_something_to_say() -> None:
    rig = Rig(Standing())
    assert not rig.report.known()
    rig.network.seen = FAILS
    assert not rig.report.known()
    rig.clock.now += 31
    assert rig.report.known()
    assert Rig().report.known()


def test_what_does_not_pass_is_said_at_once() -> None:
    rig = Rig()
    rig.network.seen = replace(WELL, link=None, link_problem="eth0 has no carrier")
    state = rig.report.state()
    assert state is not None
    assert state.obstacle == Obstacle("LinkUnknown", "eth0 has no carrier")
    assert rig.enforced() == [False, False]


def test_a_pod_that_starts_is_under_way_and_not_refused() -> None:
    rig = Rig()
    rig.network.problems = None
    assert rig.report.of_pod(web()) is None
    rig.network.problems = (UNKNOWN,)
    assert rig.report.of_pod(web()) is None
    rig.clock.now += 31
    assert rig.report.of_pod(web()) == f"floor (network): NotIdentified: {UNKNOWN.text}"
    rig.network.problems = ()
    assert rig.report.of_pod(web()) == ""


def test_what_is_promised_is_what_counts() -> None:
    rig = Rig()
    rig.network.problems = (CNIS,)
    assert rig.report.of_pod(web(**{"kubernetes.io/ingress-bandwidth": "1M"})) == "", "the CNI keeps that"
    limited = replace(POLICY, limit={INGRESS_BANDWIDTH: 10**6})
    assert rig.report.of_pod(web(limited)) == f"limit (network): ForeignQdisc: {CNIS.text}"
    rig.network.problems = (CNIS, EXCEEDED)
    assert rig.report.of_pod(web()) == f"floor (network): LinkExceeded: {EXCEEDED.text}"


def test_a_pod_of_which_nothing_is_promised_costs_nothing() -> None:
    rig = Rig()
    assert rig.report.of_pod(web(replace(POLICY, floor={"cpu": 1000}))) == ""
    assert rig.network.asked == []


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (
            replace(web(), bound={EGRESS_BANDWIDTH: 10**6}),
            (
                "floor (network): 1M of 10M j10ce.io/egress-bandwidth can be kept: the pod requests 1M, so "
                "no more of its floor counts: request the floor"
            ),
        ),
        (
            replace(web(), expected=replace(web().expected, class_name="BE")),
            "floor (network): 0 of 10M j10ce.io/egress-bandwidth can be kept: class BE has no floor",
        ),
    ],
)
def test_what_of_a_floor_does_not_count_is_not_kept(one: Decided, why: str) -> None:
    assert Rig().report.of_pod(one) == why


def test_an_agent_that_shapes_nothing_says_why() -> None:
    off, observes = (NetworkReport(None, Uplink(), FakeTime(), *why) for why in ((), (OBSERVES,)))
    assert off.known()
    assert (off.state(), observes.state()) == (None, None)
    assert "--network-floors" in off.promises()[0].message
    assert "only observes" in observes.promises()[1].message
    assert off.of_pod(web()) == (
        "floor (network): Off: network floors are off on this node: start its agent with --network-floors"
    )


def test_pods_that_are_gone_are_forgotten() -> None:
    rig = Rig()
    rig.network.problems = (UNKNOWN,)
    assert rig.report.of_pod(web()) is None
    rig.report.keep([])
    rig.clock.now += 31
    assert rig.report.of_pod(web()) is None
