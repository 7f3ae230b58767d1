"""Each rung of the ladder with real traffic: what it shapes within 5 %, what it polices within 10 %."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from agent.network import probes
from agent.network.bpf.filling import policed_here
from agent.network.contested import GivenUp
from agent.network.ladder import Choice, Means, choose
from agent.network.shaping import Shaped
from agent.network.unkept import unkept
from qos.network.wanted import Bounds, Direction, class_id
from tests.network.node import WORLD_4, WORLD_6, Node
from tests.network.test_rates import M, judged
from tests.network.test_shaping import Shaper, forge, ping, sent, shaping_node, traffic

POLICED = 0.1
BOTH = [Means.POLICER_TCX, Means.POLICER_CLSACT]


@pytest.fixture(name="shaper")
def _shaper(node: Node, tmp_path: Path, bpffs: str) -> Iterator[Callable[..., Shaper]]:
    """On a kernel that can do no more than what is named."""
    with ExitStack() as opened:

        def made(**means: Means) -> Shaper:
            best = choose(probes.probe())
            lacking = ("this kernel lacks what is better",)
            choices = replace(best, **{name: Choice(one, lacking) for name, one in means.items()})
            return opened.enter_context(shaping_node(node, tmp_path, bpffs, choices))

        yield made


def test_u32_filters_tell_pods_apart_where_no_program_loads(
    shaper: Callable[..., Shaper], node: Node
) -> None:
    here = shaper(sending=Means.HTB_U32, policing=Means.NONE)
    shaping = here.start()
    one, two = node.pod(), node.pod()
    pods = [traffic("one", one, egress=Bounds(limit=20 * M)), traffic("two", two, egress=Bounds(floor=M))]
    assert (here.settle(shaping, *pods).unshaped, here.settle(shaping, *pods)) == ({}, Shaped(0, {}))
    before = sent(here, "two")
    ping(here, two, WORLD_4, WORLD_6)
    assert sent(here, "two") >= before + 10
    judged(20 * M, one.namespace, node.world, WORLD_4, 1, "cubic")
    assert here.settle(shaping, pods[1]).changes > 0, "its filters, and its class"
    assert here.settle(shaping, pods[1]) == Shaped(0, {})


def test_filters_go_where_a_program_tells_pods_apart_again(shaper: Callable[..., Shaper], node: Node) -> None:
    pod = traffic("one", node.pod(), egress=Bounds(limit=20 * M))
    old = shaper(sending=Means.HTB_U32, policing=Means.NONE)
    old.settle(old.start(), pod)
    assert "flowid" in node.run("tc", "filter", "show", "dev", "eth0")
    new = shaper(sending=Means.HTB_CLSACT)
    new.settle(new.start(), pod)
    assert "flowid" not in node.run("tc", "filter", "show", "dev", "eth0")


@pytest.mark.parametrize("means", BOTH)
def test_what_a_pod_sends_is_policed_where_nothing_queues(
    shaper: Callable[..., Shaper], node: Node, means: Means
) -> None:
    here = shaper(sending=means, policing=means)
    shaping, pod = here.start(), node.pod()
    limited = traffic("one", pod, egress=Bounds(limit=20 * M))
    done = here.settle(shaping, limited)
    assert {one.rate for one in done.policed} == {20 * M}
    assert list(done.unshaped) == [node.nic]
    judged(20 * M, pod.namespace, node.world, WORLD_4, 8, "cubic", POLICED, queued=False)
    judged(20 * M, pod.namespace, node.world, WORLD_6, 4, "bbr", POLICED, queued=False)
    assert here.settle(shaping, limited).changes == 0
    assert here.settle(shaping).policed == frozenset()
    assert not (Path(here.bpf_root) / "j10ce").exists()


@pytest.mark.parametrize("means", BOTH)
def test_a_pod_with_anothers_address_spends_its_own_tokens(
    shaper: Callable[..., Shaper], node: Node, means: Means
) -> None:
    here = shaper(sending=means, policing=means)
    one, two = node.pod(), node.pod()
    limited = [traffic(uid, pod, egress=Bounds(limit=20 * M)) for uid, pod in (("one", one), ("two", two))]
    assert len(here.settle(here.start(), *limited).policed) == 2
    forge(node, one, two.address, 20)
    counted = policed_here(here.bpf_root)
    own, others = ((class_id(here.before.standing[uid].minor), Direction.EGRESS) for uid in ("one", "two"))
    assert counted[own].passed_packets + counted[own].dropped_packets >= 20
    assert others not in counted or counted[others].passed_packets < 5


@pytest.mark.parametrize("means", BOTH)
def test_what_a_pod_receives_is_policed_where_there_are_no_buckets(
    shaper: Callable[..., Shaper], node: Node, means: Means
) -> None:
    here = shaper(pods=means, policing=means)
    shaping, pod = here.start(), node.pod()
    limited = traffic("one", pod, ingress=Bounds(limit=20 * M))
    assert here.settle(shaping, limited).unshaped == {}
    judged(20 * M, node.world, pod.namespace, pod.address, 8, "cubic", POLICED, queued=False)
    judged(20 * M, node.world, pod.namespace, pod.address6, 4, "cubic", POLICED, queued=False)
    assert here.settle(shaping, limited).changes == 0


def test_limits_are_kept_where_nobody_knows_how_fast_the_link_is(
    shaper: Callable[..., Shaper], node: Node
) -> None:
    here = shaper()
    here.link = replace(here.link, egress=0, ingress=0)
    shaping, pod = here.start(), node.pod()
    limited = traffic("one", pod, egress=Bounds(limit=20 * M))
    done = here.settle(shaping, limited)
    assert (done.unshaped, done.policed) == ({}, frozenset())
    judged(20 * M, pod.namespace, node.world, WORLD_4, 1, "cubic")


def test_limits_are_policed_where_no_link_is_known_or_its_qdisc_is_anothers(
    shaper: Callable[..., Shaper], node: Node
) -> None:
    here = shaper()
    shaping, pod = here.start(), node.pod()
    limited = traffic("one", pod, egress=Bounds(limit=20 * M))
    link, here.link = here.link, None
    assert here.settle(shaping, limited).unshaped == {}
    judged(20 * M, pod.namespace, node.world, WORLD_4, 8, "cubic", POLICED, queued=False)
    here.link = link
    assert here.settle(shaping, limited).policed == frozenset(), "the link has come: its tree does it"
    judged(20 * M, pod.namespace, node.world, WORLD_4, 1, "cubic")
    here.link = None
    assert here.settle(shaping, limited).policed
    node.run("tc", "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb")
    here.link = link
    done = here.settle(shaping, limited)
    assert (list(done.unshaped), len(done.policed)) == ([node.nic], 1)
    judged(20 * M, pod.namespace, node.world, WORLD_4, 8, "cubic", POLICED, queued=False)


def test_limits_are_policed_where_somebody_undoes_the_tree_again_and_again(
    shaper: Callable[..., Shaper], node: Node
) -> None:
    here = shaper()
    shaping, pod = here.start(), node.pod()
    limited = traffic("one", pod, egress=Bounds(limit=20 * M))
    here.settle(shaping, limited)
    nic = frozenset({node.nic})
    done = here.settle(shaping, limited, given_up=GivenUp(nic))
    assert (done.made, done.foreign.keys(), len(done.policed)) == (nic, nic, 1)
    assert "10ce:" not in node.run("tc", "qdisc", "show", "dev", "eth0")
    judged(20 * M, pod.namespace, node.world, WORLD_4, 8, "cubic", POLICED, queued=False)
    assert here.settle(shaping, limited, given_up=GivenUp(nic)).changes == 0
    done = here.settle(shaping, limited)
    assert (done.made, done.unshaped, done.policed) == (nic, {}, frozenset()), "tried again"
    here.settle(shaping, limited, given_up=GivenUp(nic))
    node.run("tc", "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb")
    assert "put there by another" in here.settle(shaping, limited).foreign[node.nic], "it is theirs now"


def test_what_others_take_off_a_veth_again_and_again_is_left_to_them(
    shaper: Callable[..., Shaper], node: Node
) -> None:
    """A policer, or a mark; the NIC's tree goes on, and so does the pod's bucket."""
    here = shaper(sending=Means.HTB_CLSACT, policing=Means.POLICER_CLSACT)
    shaping, pod = here.start(), node.pod()
    limited = traffic("one", pod, egress=Bounds(limit=20 * M), ingress=Bounds(limit=10 * M))
    host, theirs = frozenset({pod.host}), GivenUp(filters=frozenset({pod.host}))
    assert here.settle(shaping, limited).hung_again == frozenset()
    node.run("tc", "filter", "del", "dev", "pod1", "ingress")
    assert here.settle(shaping, limited).hung_again == host, "the mark"
    assert here.settle(shaping, limited) == Shaped(0, {})
    here.settle(shaping, limited, given_up=theirs)
    assert node.run("tc", "filter", "show", "dev", "pod1", "ingress") == ""
    judged(20 * M, pod.namespace, node.world, WORLD_4, 1, "cubic")
    assert here.settle(shaping, limited).hung_again == host, "tried again"

    here.link = None
    assert here.settle(shaping, limited).hung_again == frozenset(), "another program is no repair"
    node.run("tc", "qdisc", "del", "dev", "pod1", "clsact")
    assert here.settle(shaping, limited).hung_again == host, "the policer"
    done = here.settle(shaping, limited, given_up=theirs)
    assert (done.policed, done.unshaped) == (frozenset(), {})
    assert "again and again" in done.unpoliced[pod.host]
    assert node.run("tc", "filter", "show", "dev", "pod1", "ingress") == ""
    problems = unkept([limited], here.before, done, here.link)["one"]
    assert [(one.direction, one.floor) for one in problems] == [(Direction.EGRESS, False)], "its bucket works"


def test_a_policer_that_comes_after_anothers_filter_is_said(
    shaper: Callable[..., Shaper], node: Node
) -> None:
    """That may let packets go past it: on kernels without TCX nothing else can be done."""
    here = shaper(sending=Means.POLICER_CLSACT, policing=Means.POLICER_CLSACT)
    shaping, pod = here.start(), node.pod()
    node.run("tc", "qdisc", "add", "dev", "pod1", "clsact")
    match = ("protocol", "ip", "pref", "9", "u32", "match", "u32", "0", "0", "flowid", "1:1")
    node.run("tc", "filter", "add", "dev", "pod1", "ingress", *match)
    done = here.settle(shaping, traffic("one", pod, egress=Bounds(limit=20 * M)))
    assert done.policed == frozenset()
    assert "come before ours" in done.unpoliced[pod.host]
