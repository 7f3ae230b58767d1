"""Uninstalled, each link, qdisc, class and filter is as it was; what others put there stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.network import classifying, dump, ingress, probes, removing
from agent.network.bpf import programs
from agent.network.originals import Originals
from agent.network.records import EGRESS, INGRESS, roots
from tests.network.node import Node
from tests.network.test_reconciling import bucket, inner, leaf, tree


def install(node: Node, originals: Originals) -> list[int]:
    """A tree at the NIC, one at its IFB, buckets at two pods, a classifier at clsact."""
    pods = node.links(2)
    devices = dump.devices(node.netlink)
    before = roots(dump.found(node.netlink, []))
    originals.note_roots((devices[index], before[index].kind) for index in (node.nic, *pods))
    if not any(one.kind == "clsact" and one.interface == node.nic for one in dump.qdiscs(node.netlink)):
        originals.note_clsacts([devices[node.nic]])
    ifbs = ingress.make_ifbs(node.netlink, {node.nic})
    redirect(node, ifbs, originals)
    program = programs.load(probes._PASS, {}, "GPL")
    classifying.attach(node.netlink, node.nic, program, "j10ce_classify")
    os.close(program)
    node.reconcile(
        tree(node.nic, inner(1), leaf(2)), tree(ifbs[node.nic], inner(1), leaf(2)), *map(bucket, pods)
    )
    return pods


def redirect(node: Node, ifbs: dict[int, int], originals: Originals) -> list[str]:
    made = originals.clsacts(dump.devices(node.netlink))
    changes = ingress.changes(ifbs, node.found(), made)
    assert node.netlink.apply([one.request for one in changes]) == [None] * len(changes)
    return [one.what for one in changes]


def test_all_is_as_it_was(node: Node, tmp_path: Path) -> None:
    node.links(2)
    before = node.everything()
    node.run("ip", "link", "del", "p0")
    node.run("ip", "link", "del", "p1")
    install(node, Originals(tmp_path))
    during = node.everything()
    assert "j10ce_classify" in during["filters eth0 egress"]
    assert "j10ce-ifb" in during["filters eth0 ingress"]

    originals = Originals(tmp_path)  # of another agent, which reads what the first one wrote
    assert removing.remove(node.netlink, originals) == []
    assert [without_index(node.everything())] == [without_index(before)]
    assert not originals.held(dump.devices(node.netlink))
    assert removing.remove(node.netlink, originals) == []


def without_index(shown: dict[str, object]) -> dict[str, object]:
    """The veths were made anew: their numbers and addresses are others."""
    links = [
        {key: value for key, value in one.items() if key not in ("ifindex", "address", "link_index")}
        for one in shown["links"]
    ]
    return {**shown, "links": links}


def test_what_others_put_there_stays(node: Node, tmp_path: Path) -> None:
    node.run("tc", "qdisc", "add", "dev", "eth0", "clsact")
    others = ("u32", "match", "u32", "0", "0", "classid", "1:1")
    for direction in ("ingress", "egress"):
        node.run("tc", "filter", "add", "dev", "eth0", direction, "prio", "7", *others)
    node.run("ip", "link", "add", "ifb-of-cni", "type", "ifb")
    node.links(2, first=10)
    tbf = ("rate", "1mbit", "burst", "10k", "limit", "10k")
    node.run("tc", "qdisc", "add", "dev", "p10", "root", "handle", "1:", "tbf", *tbf)
    before = node.everything()
    pods = install(node, Originals(tmp_path))
    assert removing.remove(node.netlink, Originals(tmp_path)) == []
    for pod in pods:
        node.run("ip", "link", "del", dump.devices(node.netlink)[pod].name)
    assert node.everything() == before


def test_anothers_filter_in_our_clsact_keeps_it(node: Node, tmp_path: Path) -> None:
    install(node, Originals(tmp_path))
    node.run("tc", "filter", "add", "dev", "eth0", "ingress", "prio", "7", "u32", "match", "u32", "0", "0",
             "classid", "1:1")  # fmt: skip
    assert removing.remove(node.netlink, Originals(tmp_path)) == []
    assert [one.priority for one in dump.filters(node.netlink, node.nic)] == [7]


def test_a_redirection_is_made_moved_and_taken_away(node: Node, tmp_path: Path) -> None:
    originals = Originals(tmp_path)
    originals.note_clsacts([dump.devices(node.netlink)[node.nic]])
    before = node.everything()
    ifbs = ingress.make_ifbs(node.netlink, {node.nic})
    assert [word.split()[0] for word in redirect(node, ifbs, originals)] == ["add", "redirect"]
    assert redirect(node, ifbs, originals) == []
    assert ingress.make_ifbs(node.netlink, {node.nic}) == ifbs

    node.run("ip", "link", "del", f"j10ce-ifb{node.nic}")
    again = ingress.make_ifbs(node.netlink, {node.nic})
    assert again != ifbs
    assert [word.split()[0] for word in redirect(node, again, originals)] == ["delete", "redirect"]
    assert redirect(node, again, originals) == []

    assert [word.split()[:2] for word in redirect(node, {}, originals)] == [
        ["delete", "redirection"],
        ["delete", "clsact"],
        ["delete", "interface"],
    ]
    assert node.everything() == before


def test_the_classifier_is_swapped_and_anothers_filter_is_not_touched(node: Node) -> None:
    first, second = (programs.load(probes._PASS, {}, "GPL") for _ in range(2))
    assert classifying.query(node.netlink, node.nic) is None
    assert classifying.attach(node.netlink, node.nic, first, "j10ce_classify")
    before = classifying.query(node.netlink, node.nic)
    assert before is not None
    assert before.program == programs.info(first).id
    assert not classifying.attach(node.netlink, node.nic, second, "j10ce_classify")
    after = classifying.query(node.netlink, node.nic)
    assert after is not None
    assert after.program == programs.info(second).id
    assert len(dump.filters(node.netlink, node.nic)) == 1

    assert classifying.detach(node.netlink, node.nic)
    assert not classifying.detach(node.netlink, node.nic)
    node.run("tc", "filter", "add", "dev", "eth0", "egress", "prio", "4302", "u32", "match", "u32", "0", "0")
    with pytest.raises(classifying.Occupied, match="priority 4302"):
        classifying.attach(node.netlink, node.nic, first, "j10ce_classify")
    with pytest.raises(classifying.Occupied):
        classifying.detach(node.netlink, node.nic)
    assert not classifying.detach(node.netlink, node.nic, INGRESS)
    assert [one.kind for one in dump.filters(node.netlink, node.nic) if one.parent == EGRESS] == ["u32"]
    os.close(first)
    os.close(second)
