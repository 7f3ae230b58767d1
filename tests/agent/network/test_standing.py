"""What a node says it keeps of the network, by what is known of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.network.ladder import Choice, Choices, Means
from agent.network.shaper import Round
from agent.network.shaping import Shaped
from agent.network.standing import Standing, floor_obstacle, limit_obstacle, network_state, promise_states
from qos.cluster.network_state import LABEL, LinkState
from qos.cluster.node_report import PromiseState
from qos.network.bands import Amount, Bands, Configuration
from qos.network.planning import NOTHING_YET
from qos.network.wanted import Direction, Link
from tests.qos.network.nodes import MBIT

ETH = Link(2, "eth0", egress=940 * MBIT, ingress=900 * MBIT)
CHOICES = Choices(Choice(Means.HTB_TCX), Choice(Means.IFB), Choice(Means.TBF), "fq_codel")


def last(shaped: Shaped, configuration: Configuration = Configuration()) -> Round:  # noqa: B008 - frozen
    return Round(NOTHING_YET, shaped, 0.1, {}, ETH, configuration, {})


WELL = Standing(CHOICES, ETH, "", {Direction.EGRESS: LABEL}, "", last(Shaped(0, {})))
NONE = Choice(Means.NONE, ("not htb: htb: Operation not supported",))
ANOTHERS = {2: "mq 1: at eth0 was put there by another"}


def test_all_is_kept() -> None:
    floor, limit = floor_obstacle(WELL), limit_obstacle(WELL)
    assert promise_states(floor, limit, CHOICES) == (
        PromiseState("floor (network)", True),
        PromiseState("limit (network)", True),
    )
    assert network_state(WELL, floor).link == LinkState("eth0", 940_000_000, LABEL, 900_000_000, "")


@pytest.mark.parametrize(
    ("seen", "floor", "limit"),
    [
        (Standing(), "NotShapedYet", "NotShapedYet"),
        (Standing(failure="netlink: EPERM"), "ShapingFailed", "ShapingFailed"),
        (replace(WELL, choices=replace(CHOICES, sending=NONE)), "KernelLacks", "KernelLacks"),
        (replace(WELL, choices=replace(CHOICES, pods=NONE)), "", "KernelLacks"),
        (replace(WELL, link=None, link_problem="eth0 is a veth"), "LinkUnknown", "LinkUnknown"),
        (replace(WELL, link=replace(ETH, egress=0)), "LinkUnknown", ""),
        (
            replace(
                WELL, link=replace(ETH, egress=0), last=last(Shaped(0, {}), Configuration(total_egress=10**8))
            ),
            "",
            "",
        ),
        (replace(WELL, pins="/sys/fs/bpf is no BPF file system"), "NoBPFFileSystem", "NoBPFFileSystem"),
        (replace(WELL, failure="netlink does not answer"), "ShapingFailed", "ShapingFailed"),
        (replace(WELL, last=None), "NotShapedYet", "NotShapedYet"),
        (replace(WELL, last=last(Shaped(0, {}, foreign=ANOTHERS))), "ForeignQdisc", "ForeignQdisc"),
        (replace(WELL, last=last(Shaped(0, {2: "refused"}))), "ShapingFailed", "ShapingFailed"),
        (replace(WELL, last=last(Shaped(0, {}, "no map"))), "ShapingFailed", "ShapingFailed"),
        (replace(WELL, last=last(Shaped(0, {7: "tbf"}, foreign={7: "tbf"}))), "", ""),
        (
            replace(WELL, last=last(Shaped(0, {}), Configuration(Bands(host=Amount(percent=100))))),
            "NothingToPromise",
            "",
        ),
    ],
)
def test_each_obstacle_has_its_reason(seen: Standing, floor: str, limit: str) -> None:
    found = floor_obstacle(seen), limit_obstacle(seen)
    assert tuple(one.reason if one else "" for one in found) == (floor, limit)
    assert all(one.message for one in found if one)
    for state, one in zip(promise_states(*found, seen.choices), found, strict=True):
        assert (state.enforced, one is None or state.message == str(one)) == (one is None, True)


def test_a_limit_is_kept_where_it_can_be_policed_whatever_becomes_of_trees() -> None:
    policing = replace(CHOICES, policing=Choice(Means.POLICER_TCX))
    foreign = last(Shaped(0, {2: "mq 1: at eth0 was put there by another"}, foreign={2: "mq 1: at eth0"}))
    no_htb = replace(policing, sending=NONE)
    for seen in (
        replace(WELL, choices=policing, last=foreign),
        replace(WELL, choices=no_htb),
        replace(WELL, choices=policing, link=None),
    ):
        assert floor_obstacle(seen) is not None
        assert limit_obstacle(seen) is None
    no_pins = limit_obstacle(replace(WELL, choices=no_htb, pins="no BPF file system"))
    assert no_pins is not None
    assert no_pins.reason == "NoBPFFileSystem"
    not_loaded = limit_obstacle(replace(WELL, choices=policing, last=last(Shaped(0, {}, "program police"))))
    assert not_loaded is not None
    policed_pods = replace(CHOICES, pods=Choice(Means.POLICER_TCX))
    assert limit_obstacle(replace(WELL, choices=policed_pods)) is None


def test_what_the_configuration_contradicts_is_said_of_each_direction() -> None:
    full = Configuration(Bands(host=Amount(percent=100)))
    seen = replace(WELL, last=last(Shaped(0, {}), full))
    [said] = network_state(seen, None).contradictions
    assert said.startswith("egress: the minima of host and bands are together")


def test_why_nothing_better_is_used_is_said_where_it_works() -> None:
    choices = replace(CHOICES, sending=Choice(Means.HTB_CLSACT, ("not tcx: EINVAL",)))
    assert promise_states(None, None, choices)[0].message == "not tcx: EINVAL"
    techniques = network_state(replace(WELL, choices=choices), None).techniques
    assert [one.traffic for one in techniques] == ["ToLink", "FromLink", "ToPods", "Queues"]
    assert (techniques[0].message, techniques[1].technique) == ("not tcx: EINVAL", "nothing")
