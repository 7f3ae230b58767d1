"""What this kernel can do is found by doing it, and nothing of it stays."""

from __future__ import annotations

import logging
import subprocess
import threading

from agent.network import ladder, probes
from agent.network.ladder import Means
from agent.network.probes import Technique
from tests.network.node import Node


def test_each_technique_is_tried_and_what_fails_says_why() -> None:
    found = {one.technique: one for one in probes.probe()}
    for one in found.values():
        logging.getLogger(__name__).info("%s", one)
    assert set(found) == set(Technique)
    assert all(one.works != bool(one.reason) for one in found.values())
    for technique in (Technique.HTB, Technique.TBF, Technique.BFIFO, Technique.U32, Technique.REDIRECT):
        assert found[technique].works, found[technique]


def test_nothing_stays_and_nothing_is_done_where_the_caller_is() -> None:
    def machine() -> list[str]:
        commands = (["ip", "-o", "link"], ["tc", "qdisc"], ["ip", "netns"])
        return [subprocess.run(argv, capture_output=True, text=True, check=True).stdout for argv in commands]

    before, threads = machine(), threading.active_count()
    probes.probe()
    links = {line.split(":")[1] for line in machine()[0].splitlines()}
    assert not links - {line.split(":")[1] for line in before[0].splitlines() if line} & {" probe", " peer"}
    assert " probe" not in links
    assert threading.active_count() == threads


def test_what_this_kernel_has_is_chosen_for(node: Node) -> None:
    """The kernel's own word: tc makes an fq_codel where the probe says that there is one."""
    done = subprocess.run(
        ["ip", "netns", "exec", node.name, "tc", "qdisc", "add", "dev", "eth0", "root", "fq_codel"],
        capture_output=True,
        check=False,
    )
    choices = ladder.choose(probes.probe())
    assert choices.leaf == ("fq_codel" if done.returncode == 0 else "bfifo")
    assert choices.sending.means in (Means.HTB_TCX, Means.HTB_CLSACT, Means.HTB_U32)
    assert choices.pods.means is Means.TBF
    assert choices.receiving.means is Means.IFB
