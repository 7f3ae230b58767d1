"""Whose a qdisc is, and what is done then. That the kernel takes it is shown in tests/network."""

from __future__ import annotations

import pytest

from agent.network.difference import Root, Verb, difference
from agent.network.records import HANDLE, ROOT, Device, Found, Htb, Other, Qdisc, TokenBucket, ticks
from qos.network.wanted import HtbClass, HtbTree, Tbf

NIC = 2
TREE = HtbTree(NIC, 1, (HtbClass(1, 0, 0, 10**6, 10**6, 1500, 3000, "bfifo"),))
DEVICES = {NIC: Device(NIC, "eth0", "", up=True, peer=0)}


def qdisc(kind: str, handle: int = 0, parent: int = ROOT) -> Qdisc:
    settings = TokenBucket(1, 1, 1) if kind == "tbf" else Other()
    return Qdisc(NIC, kind, handle << 16, parent, settings, None)


def found(*qdiscs: Qdisc) -> Found:
    return Found(DEVICES, qdiscs, (), ())


@pytest.mark.parametrize(
    "kernels",
    [
        (),
        (qdisc("noqueue"),),
        (qdisc("fq_codel"),),
        (qdisc("mq"), qdisc("fq", 0, 1), qdisc("fq", 0, 2)),
        (qdisc("pfifo_fast"), qdisc("clsact", 0xFFFF, 0xFFFFFFF1)),
    ],
)
def test_what_the_kernel_put_there_by_itself_is_taken_the_place_of(kernels: tuple[Qdisc, ...]) -> None:
    needed = difference((TREE,), (), found(*kernels))
    assert needed.conflicts == ()
    assert needed.operations[0] == Root(Verb.ADD, NIC, Htb(1))


@pytest.mark.parametrize(
    "others",
    [
        (qdisc("fq_codel", 0x8001),),
        (qdisc("mq", 0x8001), qdisc("fq", 0x8002, 0x80010001)),
        (qdisc("mq"), qdisc("fq", 0x8002, 1), qdisc("pfifo_fast", 0, 2)),
        (qdisc("tbf", 1),),
    ],
)
def test_what_another_put_there_is_left_alone(others: tuple[Qdisc, ...]) -> None:
    needed = difference((TREE,), (Tbf(NIC + 1, 1, 1, 1),), found(*others))
    assert needed.operations == ()
    first, gone = needed.conflicts
    assert (first.interface, first.qdisc) == (NIC, next(one for one in others if one.handle))
    assert "put there by another" in first.message
    assert gone.message == "interface 3 is gone"


@pytest.mark.parametrize(("kind", "repaired"), [("pfifo", True), ("htb", True), ("fq", False), ("mq", False)])
def test_what_takes_the_place_of_ours_is_drift_unless_it_paces(kind: str, repaired: bool) -> None:
    needed = difference((TREE,), (), found(qdisc(kind, 0x8001)), held=frozenset({NIC}))
    assert [one.interface for one in needed.conflicts] == ([] if repaired else [NIC])
    if repaired:
        assert needed.operations[0] == Root(Verb.REPLACE, NIC, Htb(1))


def test_a_bucket_where_a_tree_was_is_made_anew() -> None:
    ours = Qdisc(NIC, "htb", HANDLE, ROOT, Htb(1), None)
    bucket = Tbf(NIC, 10**6, 3000, 10**5)
    assert difference((), (bucket,), found(ours)).operations == (
        Root(Verb.DELETE, NIC, None),
        Root(Verb.ADD, NIC, bucket),
    )


def test_a_burst_lasts_as_long_as_the_kernel_can_keep() -> None:
    assert ticks(64, 1_000_000_000) == 1
    assert ticks(65, 1_000_000_000) == 2  # up: a packet of just that size has to pass
    assert ticks(10**9, 1) * 64 < 2**32
    assert ticks(1, 0) == ticks(10**9, 1)
