"""Each way in which others change what is ours: told by the kernel, and repaired by the next look."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Container, Iterator
from pathlib import Path

import pytest

from agent.network import classifying, dump, ingress, probes
from agent.network.bpf import programs
from agent.network.drift import Listening, watch
from agent.network.namespaces import inside
from agent.network.records import Filter, is_ours, roots
from tests.network.node import Node
from tests.network.test_reconciling import bucket, inner, leaf, tree
from tests.waiting import eventually, running

log = logging.getLogger(__name__)


@pytest.fixture(name="listening")
def _listening(node: Node) -> Iterator[Listening]:
    with inside(Path("/run/netns") / node.name, Listening) as made:
        yield made


CASES = [
    ("tc class change dev eth0 classid 10ce:3 htb rate 9mbit ceil 9mbit", "nic"),
    ("tc class del dev eth0 classid 10ce:3", "nic"),
    ("tc class add dev eth0 parent 10ce:1 classid 10ce:9 htb rate 9mbit", "nic"),
    ("tc qdisc del dev eth0 root", "nic"),
    ("tc qdisc replace dev eth0 root pfifo", "nic"),
    ("tc qdisc replace dev eth0 root handle 1: htb default 1", "nic"),
    ("tc qdisc del dev eth0 parent 10ce:3", "nic"),
    ("tc qdisc change dev p0 root handle 10ce: tbf rate 9mbit burst 9k limit 9k", "pod"),
    ("tc qdisc del dev p0 root", "pod"),
    ("tc qdisc replace dev p0 root tbf rate 9mbit burst 9k limit 9k", "pod"),
]


@pytest.mark.parametrize(("command", "where"), CASES)
async def test_a_change_is_told_and_repaired(
    node: Node, listening: Listening, command: str, where: str
) -> None:
    [pod] = node.links(1)
    wanted = (tree(node.nic, inner(1), leaf(2), leaf(3)), bucket(pod))
    node.reconcile(*wanted)
    before = without_handles(node.everything())
    listening.read()
    told: set[int] = set()
    async with running(watch(listening, {node.netlink.port}, told.update, lambda: None)):
        await asyncio.sleep(0)
        node.run(*command.split())
        expected = node.nic if where == "nic" else pod
        await eventually(lambda: expected in told, f"an event of {command}")
        assert told == {expected}
        assert node.difference(*wanted, held=frozenset(told)).operations != ()

        told.clear()
        started = time.perf_counter()
        node.reconcile(*wanted, held=frozenset({node.nic, pod}))
        log.info("%s: repaired in %.1f ms", command, (time.perf_counter() - started) * 1e3)
        assert node.difference(*wanted).operations == ()
        assert without_handles(node.everything()) == before
        node.run("tc", "qdisc", "del", "dev", "p0", "root")  # another's, after ours: of ours nothing was told
        await eventually(lambda: told, "the event after the repair")
    assert told == {pod}


def without_handles(shown: dict[str, object]) -> dict[str, object]:
    """Leaves have whatever handle the kernel gave them."""
    qdiscs = [{key: value for key, value in one.items() if key != "handle"} for one in shown["qdiscs"]]
    classes = {key: "" for key in shown if key.startswith("classes")}
    return {**shown, **classes, "qdiscs": sorted(qdiscs, key=str)}


def test_a_link_that_went_down_and_up_keeps_what_is_ours(node: Node, listening: Listening) -> None:
    wanted = tree(node.nic, inner(1), leaf(2))
    node.reconcile(wanted)
    listening.read()
    node.run("ip", "link", "set", "eth0", "down")
    node.run("ip", "link", "set", "eth0", "up")
    changed, lost = listening.read({node.netlink.port})
    assert node.nic in changed
    assert not lost
    assert node.difference(wanted).operations == ()


def test_an_interface_that_is_made_again_is_a_new_one(node: Node, listening: Listening) -> None:
    [pod] = node.links(1)
    node.reconcile(bucket(pod))
    listening.read()
    node.run("ip", "link", "del", "p0")
    assert pod in listening.read()[0]
    [new] = node.links(1)
    assert new != pod
    assert new in listening.read()[0]
    done = node.reconcile(bucket(new), held=frozenset({pod}))
    assert len(done.operations) == 1
    assert is_ours(roots(node.found())[new])


@pytest.mark.parametrize("command", ["tc qdisc del dev eth0 clsact", "tc filter del dev eth0 egress",
                                     "tc filter del dev eth0 ingress"])  # fmt: skip
def test_clsact_and_its_filters_come_back(node: Node, listening: Listening, command: str) -> None:
    program = programs.load(probes._PASS, {}, "GPL")
    ifbs = ingress.make_ifbs(node.netlink, {node.nic})

    def repair() -> None:
        for change in ingress.changes(ifbs, node.found()):
            node.netlink.one(change.request)
        if classifying.query(node.netlink, node.nic) is None:
            classifying.attach(node.netlink, node.nic, program, "j10ce_classify")

    repair()
    before = shown(node)
    read_all(listening)
    node.run(*command.split())
    assert read_all(listening, {node.netlink.port}) == {node.nic}
    started = time.perf_counter()
    repair()
    log.info("%s: repaired in %.1f ms", command, (time.perf_counter() - started) * 1e3)
    assert shown(node) == before
    assert read_all(listening, {node.netlink.port}) == frozenset()
    os.close(program)


def shown(node: Node) -> list[Filter]:
    """u32 counts its tables on."""
    return [one._replace(handle=0) for one in node.found().filters]


def read_all(listening: Listening, ours: Container[int] = ()) -> frozenset[int]:
    return listening.read(ours)[0]


def test_a_flood_of_events_says_that_some_were_lost(node: Node, listening: Listening) -> None:
    listening._socket.setsockopt(1, 8, 2048)  # SOL_SOCKET, SO_RCVBUF
    node.links(60)
    changed, lost = listening.read()
    assert lost
    assert dump.devices(node.netlink).keys() > changed
    assert listening.read() == (frozenset(), False)
