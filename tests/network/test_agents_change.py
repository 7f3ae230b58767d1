"""One agent ends, the next begins, and pods send: limits hold, no packet is lost or in another's class."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent.network import dump, ingress
from agent.network.bpf.difference import BURST_SECONDS
from agent.network.bpf.pins import SCHEMA, schemas
from agent.network.ladder import Means
from tests.network.flows import Flows, flowing, numbered
from tests.network.node import WORLD_4, Node, Pod
from tests.network.test_fallbacks import POLICED
from tests.network.test_rates import BOUND, STARVED, M

log = logging.getLogger(__name__)

TREE = Path(__file__).parents[2]
LIMIT, OTHER_LIMIT = 40 * M, 20 * M


@dataclass
class Agents:
    """Of one node, one after the other. receiving: limits are of what pods receive, through an IFB.

    tree: where the code of the next one is.
    """

    node: Node
    run: Path
    bpf_root: str
    means: Means
    receiving: bool
    tree: Path = TREE
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def policed(self) -> bool:
        return self.means in (Means.POLICER_TCX, Means.POLICER_CLSACT)

    def start(self, pods: dict[str, Pod], limits: dict[str, int]) -> dict[str, Any]:
        """The next agent; what it says after its first round."""
        start = {
            "run": str(self.run),
            "bpf_root": self.bpf_root,
            "means": self.means.name,
            "policed": self.policed,
            "receiving": self.receiving,
            "nic": self.node.nic,
            "speed": 1000 * M,
            "pods": [
                {
                    "uid": uid,
                    "limit": limits[uid],
                    "addresses": [pod.packed.hex(), pod.packed6.hex()],
                    "interface": pod.host,
                }
                for uid, pod in pods.items()
            ],
        }
        inside = ("nsenter", f"--net=/run/netns/{self.node.name}")
        argv = (*inside, sys.executable, "-P", "-m", "tests.network.agent_program", json.dumps(start))
        process = subprocess.Popen(
            argv, env=os.environ | {"PYTHONPATH": str(self.tree)}, text=True, stdout=subprocess.PIPE, cwd="/"
        )
        self.running.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "it has ended"
        said: dict[str, Any] = json.loads(line)
        assert said["unkept"] == {}
        return said

    def kill(self) -> None:
        """SIGKILL, nothing else."""
        process = self.running.pop()
        process.kill()
        process.communicate()


WAYS = [
    pytest.param((Means.HTB_TCX, False), id="tcx"),
    pytest.param((Means.HTB_CLSACT, False), id="clsact"),
    pytest.param((Means.POLICER_TCX, False), id="policer-tcx", marks=pytest.mark.full),
    pytest.param((Means.POLICER_CLSACT, False), id="policer-clsact"),
    pytest.param((Means.HTB_TCX, True), id="ifb-tcx", marks=pytest.mark.full),
    pytest.param((Means.HTB_CLSACT, True), id="ifb-clsact", marks=pytest.mark.full),
]


@pytest.fixture(name="agents", params=WAYS)
def _agents(request: pytest.FixtureRequest, node: Node, tmp_path: Path, bpffs: str) -> Iterator[Agents]:
    made = Agents(node, tmp_path, bpffs, *request.param)
    try:
        yield made
    finally:
        while made.running:
            made.kill()


def next_release(above: Path) -> Path:
    """A tree of the code in which maps have another schema."""
    folder = above / "next"
    folder.mkdir()
    for name in ("adapters", "kernel", "qos", "tests"):
        (folder / name).symlink_to(TREE / name)
    shutil.copytree(TREE / "agent", folder / "agent", ignore=shutil.ignore_patterns("__pycache__"))
    pins = folder / "agent/network/bpf/pins.py"
    text, found = re.subn(
        r"^SCHEMA: Final = \d+$", f"SCHEMA: Final = {SCHEMA + 1}", pins.read_text(), flags=re.M
    )
    assert found == 1
    pins.write_text(text)
    return folder


def test_traffic_does_not_notice(agents: Agents, tmp_path: Path) -> None:
    """Killed, started again, killed, and the next release started: a flow at its limit, datagrams below it.

    The second pod comes later and has the lower uid: who has which class, nothing tells but what is kept.
    """
    node = agents.node
    first, second = node.pod(), node.pod()
    limits = {"b": LIMIT, "a": OTHER_LIMIT}
    said = agents.start({"b": first}, limits)
    agents.kill()
    both = {"a": second, "b": first}
    said = agents.start(both, limits)
    classes, made = said["classes"], shown(node)
    flows = 8 if agents.policed else 1
    ends = [(pod.namespace, node.world, WORLD_4) for pod in (first, second)]
    if agents.receiving:
        ends = [(node.world, pod.namespace, pod.address) for pod in (first, second)]
    with flowing(*ends[0], count=flows) as flow, numbered(*ends[1]) as datagrams:
        agents.kill()
        time.sleep(1)
        assert agents.start(both, limits)["classes"] == classes
        time.sleep(0.5)
        agents.kill()
        agents.tree = next_release(tmp_path)
        said = agents.start(both, limits)
        assert (said["schema"], said["classes"]) == (SCHEMA + 1, classes)
        time.sleep(1)
        judge(flow, agents.policed)
    assert datagrams.sent > 1000
    assert datagrams.came == list(range(datagrams.sent))
    assert shown(node) == made
    assert schemas(agents.bpf_root) == [SCHEMA + 1]
    if not agents.policed:
        interface = node.index(ingress.ifb_name(node.nic)) if agents.receiving else node.nic
        assert packets(node, interface, classes["a"]) >= datagrams.sent, "each in its own class"


def judge(flow: Flows, policed: bool) -> None:
    end = time.monotonic()
    rate, waited = flow.rate(flow.started, end) / LIMIT, flow.waited()
    stalls = [after - before for before, after in zip(flow.times, flow.times[1:], strict=False)]
    log.info("%.3f of the limit in %.1f s, longest stall %.0f ms, waited %.3f s", rate, end - flow.started,
             max(stalls) * 1e3, waited)  # fmt: skip
    bound = POLICED if policed else BOUND
    assert rate < 1 + bound + (BURST_SECONDS / (end - flow.started) if policed else 0)
    assert rate > 1 - bound or waited > STARVED * (end - flow.started)
    assert policed or max(stalls) < 0.25 + waited
    if waited < STARVED * (end - flow.started):  # else what has come is read late, and at once
        for second in range(int(end - flow.started)):
            rate = flow.rate(flow.started + second, flow.started + second + 1) / LIMIT
            assert rate < 1 + bound + (BURST_SECONDS if policed else 0)


def shown(node: Node) -> dict[str, Any]:
    """Qdiscs and classes, without their counters."""
    everything = node.everything()
    return {name: one for name, one in everything.items() if name == "qdiscs" or name.startswith("classes")}


def packets(node: Node, interface: int, minor: int) -> int:
    return next(
        one.counters.packets
        for one in dump.classes(node.netlink, interface)
        if one.class_id & 0xFFFF == minor and one.counters
    )
