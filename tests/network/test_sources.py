"""Pods told apart by u32 filters, where no BPF program can be loaded: they follow the pods."""

from __future__ import annotations

import ipaddress

from agent.network import applying, messages, sources
from agent.network.difference import difference
from qos.network.wanted import HtbTree, class_id
from tests.network.node import Node
from tests.network.test_reconciling import inner, leaf, tree


def packed(text: str) -> bytes:
    return ipaddress.IPv6Address(text if ":" in text else f"::ffff:{text}").packed


def reconcile(node: Node, wanted: HtbTree, by_address: dict[bytes, int]) -> tuple[int, int]:
    """In the order that sources says; nothing is refused. How many filters went and came."""
    found = node.found()
    changes = sources.changes(node.nic, by_address, found)
    assert node.netlink.apply(changes.before) == [None] * len(changes.before)
    assert applying.apply(node.netlink, difference((wanted,), (), found).operations) == []
    assert node.netlink.apply(changes.after) == [None] * len(changes.after)
    return len(changes.before), len(changes.after)


def test_filters_follow_the_pods(node: Node) -> None:
    both = tree(node.nic, inner(1), leaf(2), leaf(3), leaf(4))
    first = {packed("10.0.0.1"): class_id(3), packed("fd00::1"): class_id(3), packed("10.0.0.2"): class_id(4)}
    assert reconcile(node, both, first) == (0, 3)
    assert reconcile(node, both, first) == (0, 0)

    moved = {**first, packed("10.0.0.2"): class_id(3), packed("10.0.0.9"): class_id(3)}
    one = tree(node.nic, inner(1), leaf(2), leaf(3))
    assert reconcile(node, one, moved) == (1, 2)  # a class that a filter leads to cannot be deleted
    assert {(f.protocol, f.key): f.class_id for f in node.found().filters} == {
        messages.source_key(address): to for address, to in moved.items()
    }
    assert reconcile(node, one, {}) == (4, 0)
    assert node.found().filters == ()


def test_a_tree_that_was_deleted_takes_its_filters_along(node: Node) -> None:
    wanted = tree(node.nic, inner(1), leaf(2))
    by_address = {packed("10.0.0.1"): class_id(2)}
    reconcile(node, wanted, by_address)
    node.run("tc", "qdisc", "del", "dev", "eth0", "root")
    assert reconcile(node, wanted, by_address) == (0, 1)
    assert reconcile(node, wanted, by_address) == (0, 0)
