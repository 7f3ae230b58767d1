"""Trees and buckets into a real kernel: what is made is as wanted, what changes is changed in place."""

from __future__ import annotations

import logging
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.network import applying, dump
from agent.network.difference import Class, Leaf, Root, Verb, queue_limit, rates
from agent.network.records import Fifo, Htb
from qos.network.wanted import HtbClass, HtbTree, Tbf, class_id
from tests.network.node import Node, node


def leaf(
    minor: int, parent: int = 1, rate: int = 1_000_000, ceil: int = 10_000_000, **other: int
) -> HtbClass:
    return HtbClass(
        minor, parent, other.get("priority", 0), rate, ceil, other.get("quantum", 60_000), 64_000, "bfifo"
    )


def inner(minor: int, parent: int = 0, rate: int = 10_000_000) -> HtbClass:
    return HtbClass(minor, parent, 0, rate, rate, 60_000, 64_000, "")


def tree(interface: int, *classes: HtbClass) -> HtbTree:
    return HtbTree(interface, 2, classes)


def bucket(interface: int, rate: int = 500_000) -> Tbf:
    return Tbf(interface, rate, 20_000, 100_000)


def shown(one: Node) -> dict[int, HtbClass]:
    return {found.class_id & 0xFFFF: found for found in one.found().classes}


def test_a_tree_and_a_bucket_are_made_as_wanted_and_then_nothing_is_left_to_do(node: Node) -> None:
    [pod] = node.links(1)
    wanted = tree(node.nic, inner(1), leaf(2), leaf(3, rate=2_000_000))
    node.reconcile(wanted, bucket(pod))

    found = node.found()
    assert {one.class_id: one.rates for one in found.classes} == {
        class_id(one.minor): rates(one) for one in wanted.classes
    }
    fifos = {one.parent: one.settings for one in found.qdiscs if one.kind == "bfifo"}
    assert fifos == {class_id(minor): Fifo(queue_limit(leaf(minor))) for minor in (2, 3)}
    assert node.difference(wanted, bucket(pod)).operations == ()
    assert "rate 4Mbit burst 20000b" in node.run("tc", "qdisc", "show", "dev", "p0").replace("20Kb", "20000b")
    assert "rate 16Mbit ceil 80Mbit" in node.run("tc", "class", "show", "dev", "eth0")


def test_rates_beyond_32_bits_are_kept(node: Node) -> None:
    [pod] = node.links(1)
    fast = 12_500_000_000  # 100 Gbit/s
    wanted = tree(node.nic, inner(1, rate=fast), leaf(2, rate=fast - 1, ceil=fast))
    node.reconcile(wanted, bucket(pod, fast))
    assert node.difference(wanted, bucket(pod, fast)).operations == ()
    assert {one.rates.ceil for one in node.found().classes} == {fast}


def test_a_rate_is_changed_in_place_and_others_are_left_alone(node: Node) -> None:
    [pod] = node.links(1)
    node.reconcile(tree(node.nic, inner(1), leaf(2), leaf(3)), bucket(pod))
    changed = tree(node.nic, inner(1), leaf(2), leaf(3, rate=3_000_000))
    done = node.reconcile(changed, bucket(pod, 700_000))
    assert done.operations == (
        Class(Verb.CHANGE, node.nic, leaf(3, rate=3_000_000)),
        Root(Verb.CHANGE, pod, bucket(pod, 700_000)),
    )
    assert node.difference(changed, bucket(pod, 700_000)).operations == ()


def test_what_is_no_longer_wanted_goes_children_first(node: Node) -> None:
    [pod] = node.links(1)
    small = tree(node.nic, inner(1), leaf(2))
    node.reconcile(tree(node.nic, inner(1), leaf(2), inner(3, 1), inner(4, 3), leaf(5, 4)), bucket(pod))
    done = node.reconcile(small)
    assert [(type(one), one.verb) for one in done.operations] == [
        (Root, Verb.DELETE),
        *[(Class, Verb.DELETE)] * 3,
    ]
    assert node.difference(small).operations == ()
    node.reconcile()
    assert not [one for one in node.found().qdiscs if one.handle]


def test_a_class_that_moves_to_another_parent_is_made_anew_with_what_is_below(node: Node) -> None:
    node.reconcile(tree(node.nic, inner(1), leaf(2), inner(3, 1), inner(4, 1), inner(5, 3), leaf(6, 5)))
    moved = tree(node.nic, inner(1), leaf(2), inner(3, 1), inner(4, 1), inner(5, 4), leaf(6, 5))
    node.reconcile(moved)
    assert node.difference(moved).operations == ()


def test_a_queue_of_another_size_is_changed_and_one_that_is_gone_is_made(node: Node) -> None:
    wanted = tree(node.nic, inner(1), leaf(2), leaf(3))
    node.reconcile(wanted)
    node.run("tc", "qdisc", "del", "dev", "eth0", "parent", "10ce:2")
    node.run("tc", "qdisc", "change", "dev", "eth0", "parent", "10ce:3", "bfifo", "limit", "100000")
    done = node.reconcile(wanted)
    assert [(one.verb, one.minor) for one in done.operations if isinstance(one, Leaf)] == [
        (Verb.REPLACE, 2),
        (Verb.CHANGE, 3),
    ]
    assert node.difference(wanted).operations == ()


def test_another_default_class_makes_the_tree_anew(node: Node) -> None:
    node.reconcile(tree(node.nic, inner(1), leaf(2), leaf(3)))
    other = HtbTree(node.nic, 3, (inner(1), leaf(2), leaf(3)))
    done = node.reconcile(other)
    assert done.operations[:2] == (Root(Verb.DELETE, node.nic, None), Root(Verb.ADD, node.nic, Htb(3)))
    assert node.difference(other).operations == ()


@pytest.mark.parametrize("kind", ["pfifo limit 10", "tbf rate 1mbit burst 10k limit 10k", "htb default 1"])
def test_what_others_put_there_is_left_alone_and_said(node: Node, kind: str) -> None:
    [pod] = node.links(1)
    for device in ("eth0", "p0"):
        node.run("tc", "qdisc", "replace", "dev", device, "root", "handle", "1:", *kind.split())
    before = node.everything()
    done = node.reconcile(tree(node.nic, inner(1), leaf(2)), bucket(pod))
    assert done.operations == ()
    assert [one.interface for one in done.conflicts] == [node.nic, pod]
    assert f"{kind.split()[0]} 1: at eth0 was put there by another" in done.conflicts[0].message
    assert node.everything() == before


def test_below_the_kernels_mq_a_qdisc_with_a_handle_is_anothers(node: Node) -> None:
    """Cilium's bandwidth manager puts fq below the mq of a NIC with several queues; here it is bfifo."""
    node.made.batch(node.name, ["link add m0 numtxqueues 2 type veth peer name m1", "link set m0 up"])
    m0 = node.index("m0")
    node.run("tc", "qdisc", "replace", "dev", "m0", "root", "handle", "8:", "mq")
    node.run("tc", "qdisc", "replace", "dev", "m0", "parent", "8:1", "handle", "9:", "bfifo")
    wanted = tree(m0, inner(1), leaf(2))
    [conflict] = node.difference(wanted).conflicts
    assert "mq 8: at m0" in conflict.message
    assert node.difference(wanted, held=frozenset({m0})).conflicts == (
        conflict,
    )  # it may pace by time stamps


def test_an_interface_that_is_gone_is_said_and_the_others_are_made(node: Node) -> None:
    pods = node.links(2)
    node.run("ip", "link", "del", "p0")
    done = node.reconcile(bucket(pods[0]), bucket(pods[1]))
    assert [one.message for one in done.conflicts] == [f"interface {pods[0]} is gone"]
    assert node.difference(bucket(pods[1])).operations == ()


def test_one_that_goes_between_looking_and_writing_fails_alone(node: Node) -> None:
    pods = node.links(2)
    needed = node.difference(bucket(pods[0]), bucket(pods[1]))
    node.run("ip", "link", "del", "p0")
    failures = applying.apply(node.netlink, needed.operations)
    assert [(one.operation.interface, one.gone) for one in failures] == [(pods[0], True)]
    assert failures[0].message.startswith(f"add tbf 10ce: at interface {pods[0]}: ENODEV")
    assert node.difference(bucket(pods[1])).operations == ()


def test_a_root_that_another_puts_in_between_is_not_overwritten(node: Node) -> None:
    wanted = tree(node.nic, inner(1), leaf(2))
    needed = node.difference(wanted)
    node.run("tc", "qdisc", "add", "dev", "eth0", "root", "handle", "7:", "pfifo")
    failures = applying.apply(node.netlink, needed.operations)
    assert [type(one.operation) for one in failures] == [Root]  # and not each class that has no tree now
    assert "pfifo 7:" in node.run("tc", "qdisc", "show", "dev", "eth0")


MINORS = st.integers(2, 9)
PARENTS = st.dictionaries(MINORS, st.sampled_from([1, 10, 11]), max_size=8)
RATE = st.integers(10_000, 10**10)


@st.composite
def trees(draw: st.DrawFn) -> tuple[HtbClass, ...]:
    """1, below it 10 and 11 (the latter now below 10, now below 1), and leaves anywhere."""
    below = draw(st.sampled_from([1, 10]))
    classes = [inner(1), inner(10, 1, draw(RATE)), inner(11, below, draw(RATE))]
    for minor, parent in draw(PARENTS).items():
        rate = draw(RATE)
        priority = draw(st.integers(0, 7))
        classes.append(leaf(minor, parent, rate, rate + draw(st.integers(0, 10**9)), priority=priority))
    return tuple(classes)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(trees(), min_size=2, max_size=4))
def test_from_any_tree_to_any_other_nothing_is_refused_and_all_is_as_wanted(
    shared: Node, steps: list[tuple[HtbClass, ...]]
) -> None:
    for classes in steps:
        wanted = HtbTree(shared.nic, 2, classes)
        shared.reconcile(wanted)
        assert shared.difference(wanted).operations == ()
    shared.reconcile()


@pytest.fixture(name="shared", scope="module")
def _shared() -> object:
    with node() as made:
        yield made


def test_250_pods_are_made_soon_and_looked_at_sooner(node: Node) -> None:
    pods = node.links(250)
    minors = range(100, 350)
    wanted = tree(node.nic, inner(1), leaf(2), *(leaf(minor) for minor in minors))
    buckets = [bucket(pod) for pod in pods]

    started = time.perf_counter()
    done = node.reconcile(wanted, *buckets)
    cold = time.perf_counter() - started
    assert len(done.operations) == 1 + 1 + 2 * 251 + 250

    unchanged = []
    for _ in range(5):
        started, cpu = time.perf_counter(), time.thread_time()
        assert node.difference(wanted, *buckets).operations == ()
        unchanged.append((time.perf_counter() - started, time.thread_time() - cpu))
    logging.getLogger(__name__).info("cold %.3f s, unchanged %.4f s, CPU %.4f s", cold, *min(unchanged))
    assert cold < 5
    assert min(unchanged)[0] < 0.5
    assert len(dump.classes(node.netlink, node.nic)) == 252
