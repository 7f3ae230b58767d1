"""A node's report: its conditions, and what of it changes without meaning anything for floors."""

from __future__ import annotations

from dataclasses import replace

from qos.cluster.network_state import LinkState, NetworkState, Obstacle
from qos.cluster.node_report import NodeReport, PolicyState, conditions, settled

REPORT = NodeReport("0.1.0", "6.12.0", "v2", "containerd 2.1.4")


def said(report: NodeReport) -> dict[str, tuple[str, str, str]]:
    return {one.type: (one.status, one.reason, one.message) for one in conditions(report)}


def test_all_is_well() -> None:
    well = said(replace(REPORT, policies=(PolicyState("a/b", "u", 2, 2, 2),)))
    assert {name: status for name, (status, _, _) in well.items()} == {
        "Ready": "True",
        "Applied": "True",
        "Undisturbed": "True",
    }


def test_what_is_wrong_is_said_with_its_first_problem() -> None:
    refused = PolicyState("a/b", "u", 2, 1, 1, "memory.min of pod x: EBUSY")
    waits = PolicyState("a/a", "u", 1, 0, 0)
    bad = said(replace(REPORT, policies=(waits, refused), fights=3, not_ready="no container runtime answers"))
    assert bad["Ready"] == ("False", "AgentNotReady", "no container runtime answers")
    assert bad["Applied"] == ("False", "PlanNotApplied", "a/b: memory.min of pod x: EBUSY")
    assert bad["Undisturbed"][:2] == ("False", "Fight")
    assert "3 settings" in bad["Undisturbed"][2]


def test_what_all_pods_lack_is_said_once_a_node_where_it_is_known() -> None:
    assert "AllocatableKept" not in said(REPORT)
    assert said(replace(REPORT, allocatable=""))["AllocatableKept"][0] == "True"
    lack = "4881m of 7910m CPU reach all pods"
    found = said(replace(REPORT, allocatable=lack))["AllocatableKept"]
    assert found == ("False", "WeightOfAllPods", lack)


def test_what_a_node_keeps_of_the_network() -> None:
    assert "NetworkKept" not in said(REPORT)
    network = NetworkState(LinkState("eth0", 10**9, "Label"))
    well = said(replace(REPORT, network=network))
    assert (well["NetworkKept"][:2], well["NetworkConsistent"][0]) == (("True", "Shaped"), "True")
    obstacle = Obstacle("ForeignQdisc", "mq 1: at eth0 was put there by another")
    ill = said(replace(REPORT, network=replace(network, obstacle=obstacle, contradictions=("one", "two"))))
    assert ill["NetworkKept"] == ("False", obstacle.reason, obstacle.message)
    assert ill["NetworkConsistent"] == ("False", "Contradiction", "one; two")


def test_what_is_under_way_is_not_yet_known() -> None:
    waits = PolicyState("a/a", "u", 1, 0, 0)
    assert said(replace(REPORT, policies=(waits,)))["Applied"][:2] == ("Unknown", "InProgress")


def test_settled_is_blind_to_what_changes_all_the_time_and_to_nothing_else() -> None:
    one = PolicyState("a/b", "u", 2, 2, 2)
    report = replace(REPORT, policies=(one,))
    noisy = replace(
        report, pressure={"cpu": "High"}, repaired=7, policies=(replace(one, deficit_seconds=8.0),)
    )
    assert settled(noisy) == settled(report)
    for change in (
        replace(report, fights=1),
        replace(report, not_ready="x"),
        replace(report, kernel="6.13.0"),
        replace(report, policies=(replace(one, verified=1),)),
        replace(report, policies=()),
        replace(report, network=NetworkState()),
        replace(report, allocatable="less"),
    ):
        assert settled(change) != settled(report)
