"""What the doctor says of a node's network."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.findings import Finding, Grade
from agent.network.ladder import Choice, Choices, Means
from agent.network.seen import SeenNetwork
from agent.network.shaper import Round
from agent.network.shaping import Shaped
from agent.network.standing import Standing
from agent.network_doctor import NetworkFacts, network_findings
from qos.cluster.network_state import FROM_LINK, TO_LINK, LinkState, Obstacle, Technique
from qos.network.bands import DEFAULT
from qos.network.wanted import Direction, Link, Wanted

CHOICES = Choices(Choice(Means.HTB_TCX), Choice(Means.IFB), Choice(Means.TBF), "fq_codel")
LINK = Link(2, "eth0", 125_000_000, 0)
ROUND = Round(Wanted(), Shaped(0, {}), 0.0, {}, LINK, DEFAULT, {})
WELL = Standing(CHOICES, LINK, "", {Direction.EGRESS: "Interface"}, "", ROUND)
OFF = NetworkFacts(False, None, WELL)
SAID = SeenNetwork(
    LinkState("eth0", 10**9, "Label"),
    "",
    2,
    0,
    (Technique(TO_LINK, Means.HTB_TCX.value), Technique(FROM_LINK, Means.NONE.value, "not shaped here")),
    None,
    None,
    (),
    (),
)


def of(facts: NetworkFacts) -> dict[str, Finding]:
    return {one.subject: one for one in network_findings(facts)}


def test_a_node_that_could() -> None:
    found = of(OFF)
    assert {one.grade for one in found.values()} == {Grade.WORKS}
    assert "j10ce install --agent --network-floors" in found["network floors"].do
    assert found["network: link"].text == "eth0 sends 1G bits/s (Interface)"
    assert found["network: queues"].text == "fq_codel"
    assert "network: link receives" not in found


@pytest.mark.parametrize(
    ("standing", "words"),
    [
        (replace(WELL, pins="/sys/fs/bpf is no BPF file system"), "NoBPFFileSystem: /sys/fs/bpf"),
        (replace(WELL, link=None, link_problem="no default route"), "LinkUnknown: no default route"),
        (replace(WELL, last=ROUND._replace(shaped=Shaped(0, {}, foreign={2: "mq 1:"}))), "mq 1:"),
        (replace(WELL, choices=replace(CHOICES, sending=Choice(Means.NONE, ("htb: no",)))), "htb: no"),
    ],
)
def test_a_node_that_could_not_says_why(standing: Standing, words: str) -> None:
    """No floor is missed by that: nobody has asked for one."""
    found = of(replace(OFF, tried=standing))["network floors"]
    assert found.grade is Grade.LIMITED
    assert words in found.text
    assert not any(one.grade is Grade.BROKEN for one in network_findings(replace(OFF, tried=standing)))


def test_an_agent_that_shapes_and_cannot_is_broken() -> None:
    on = NetworkFacts(True, SAID, replace(WELL, link=None))
    assert {one.grade for one in of(on).values()} == {Grade.WORKS}
    assert of(on)["network: pods send"].text == Means.HTB_TCX.value
    foreign = replace_said(on, floors=Obstacle("ForeignQdisc", "mq 1: at eth0"), contradictions=("one",))
    found = of(foreign)
    assert found["network floors"].grade is Grade.BROKEN
    assert found["network floors"].text == "ForeignQdisc: mq 1: at eth0"
    assert found["network floors"].do
    assert found["network: bands"].grade is Grade.LIMITED
    assert of(NetworkFacts(True, None, WELL))["network floors"].grade is Grade.LIMITED


def replace_said(facts: NetworkFacts, **changes: object) -> NetworkFacts:
    assert facts.said is not None
    fields = {name: getattr(facts.said, name) for name in facts.said.__struct_fields__}
    return replace(facts, said=SeenNetwork(**(fields | changes)))


def test_a_worse_rung_says_what_to_do() -> None:
    worse = replace(CHOICES, leaf="bfifo", leaf_reason="fq_codel: Specified qdisc kind is unknown")
    [queues] = [one for one in network_findings(replace(OFF, tried=replace(WELL, choices=worse)))
                if one.subject == "network: queues"]  # fmt: skip
    assert queues.grade is Grade.LIMITED
    assert "sch_fq_codel" in queues.do


def test_what_an_agent_that_ended_left_is_named() -> None:
    found = of(replace(OFF, left=("htb 10ce: at eth0",)))["network: left"]
    assert "htb 10ce: at eth0" in found.text
    assert "j10ce network uninstall" in found.do
