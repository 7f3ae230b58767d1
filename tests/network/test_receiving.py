"""What a node receives, shaped at an IFB: floors hold, and nothing is left when it is switched off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.network import ingress, probes
from agent.network.ladder import Choice, Means, choose
from agent.network.shaping import Shaped
from agent.node_network import NodeNetwork
from qos.network.wanted import Bounds, Link
from tests.network.flows import flowing
from tests.network.node import WORLD_4, Node
from tests.network.test_node_network import MEGABIT, Agent
from tests.network.test_rates import M
from tests.network.test_shaping import Shaper, ping, shaping_node, traffic
from tests.network.test_sharing import LINK, rates
from tests.waiting import eventually


@pytest.fixture(name="shaper", params=[Means.HTB_TCX, Means.HTB_CLSACT], ids=["tcx", "clsact"])
def _shaper(request: pytest.FixtureRequest, node: Node, tmp_path: Path, bpffs: str) -> Iterator[Shaper]:
    choices = replace(choose(probes.probe()), sending=Choice(request.param), policing=Choice(Means.NONE))
    with shaping_node(node, tmp_path, bpffs, choices) as made:
        assert made.link
        ifb = ingress.make_ifbs(node.netlink, {node.nic})[node.nic]
        made.link = replace(made.link, egress=LINK, ingress=LINK, ifb=ifb)
        yield made


def test_a_floor_of_what_a_pod_receives_holds_and_what_is_idle_is_lent(shaper: Shaper) -> None:
    node, shaping = shaper.node, shaper.start()
    owner, other = node.pod(), node.pod()
    pods = [traffic("owner", owner, ingress=Bounds(floor=120 * M)), traffic("other", other)]
    done = shaper.settle(shaping, *pods)
    assert (done.unshaped, done.unclassified) == ({}, "")
    assert shaper.settle(shaping, *pods) == Shaped(0, {})
    with flowing(node.world, other.namespace, other.address6, port=5002, count=4) as borrowing:
        rates(borrowing, least=[1])
        with flowing(node.world, owner.namespace, owner.address, port=5001) as own:
            rates(own, borrowing, least=[0.6, 0.05], together=1)


def test_without_anybody_who_needs_it_nothing_is_redirected_and_all_goes_in_the_end(shaper: Shaper) -> None:
    assert shaper.link
    node, shaping = shaper.node, shaper.start()
    pod = node.pod()
    assert shaper.settle(shaping) == Shaped(0, {})
    assert "mirred" not in node.run("tc", "filter", "show", "dev", "eth0", "ingress")
    floor = traffic("one", pod, ingress=Bounds(floor=10 * M))
    shaper.settle(shaping, floor)
    assert "j10ce-ifb" in node.run("tc", "filter", "show", "dev", "eth0", "ingress")
    shaper.link = replace(shaper.link, ifb=0)
    done = shaper.settle(shaping, floor)
    assert done.unshaped == {}
    assert "mirred" not in node.run("tc", "filter", "show", "dev", "eth0", "ingress")
    assert "j10ce-ifb" not in node.run("ip", "link", "show")
    ping(shaper, pod, WORLD_4)


def test_an_ifb_that_somebody_set_down_is_set_up_again(shaper: Shaper) -> None:
    """The kernel drops what is redirected to it: the node would be deaf."""
    node, shaping = shaper.node, shaper.start()
    pod = node.pod()
    floor = traffic("one", pod, ingress=Bounds(floor=10 * M))
    shaper.settle(shaping, floor)
    ping(shaper, pod, WORLD_4)
    node.run("ip", "link", "set", f"j10ce-ifb{node.nic}", "down")
    done = shaper.settle(shaping, floor)
    assert (done.unclassified, done.hung_again) == ("", {shaper.link.ifb if shaper.link else 0})
    ping(shaper, pod, WORLD_4)
    assert shaper.settle(shaping, floor) == Shaped(0, {})


def test_an_agent_that_is_told_so_makes_the_ifb_and_makes_it_again(
    node: Node, tmp_path: Path, bpffs: str
) -> None:
    agent = Agent(node, tmp_path, bpffs, link=Link(node.nic, "eth0", 1000 * MEGABIT, 1000 * MEGABIT))
    told: list[int] = []
    agent.received = told.append
    agent.add("one", node.pod(), "10M")

    def redirected() -> bool:
        return f"j10ce-ifb{node.nic}" in node.run("ip", "link", "show")

    async def work(network: NodeNetwork) -> None:
        await eventually(lambda: told and redirected(), "an IFB")
        node.run("ip", "link", "del", f"j10ce-ifb{node.nic}")
        network.changed()
        await eventually(lambda: len(set(told)) == 2 and redirected(), "another one")

    agent.while_running(work)
