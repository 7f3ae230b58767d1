"""What annotations and others' files say, to the rate that is measured: each in its unit, bits or bytes."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent.network.configured import Configured
from agent.node_network import NodeNetwork
from agent.nri.records import NriPod
from agent.state import KnownPod
from qos import keys
from qos.network.wanted import Link
from qos.pods.containers import NodePod
from tests.agent.network.test_veths import Proc
from tests.network.node import WORLD_4, Node, Pod
from tests.network.test_node_network import Agent
from tests.network.test_rates import M, judged
from tests.waiting import eventually

UID = "7c6a6c1e-0d7a-4d8b-9a53-2f1d4c1b0a11"
SENT, RECEIVED = 20, 30
"""Megabits a second."""


@dataclass(frozen=True)
class Words:
    """Of one pod: its annotations, and files of the node."""

    annotations: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


EACH = {
    "kubernetes": Words({keys.EGRESS_BANDWIDTH_ANNOTATION: "20M", keys.INGRESS_BANDWIDTH_ANNOTATION: "30M"}),
    "koordinator": Words(
        {"koordinator.sh/networkQOS": json.dumps({"egressLimit": "20M", "ingressLimit": "30M"})}
    ),
    "pod.json": Words(
        files={
            "pod.json": json.dumps(
                [
                    {
                        "podUID": UID,
                        "qosConfig": {"egressBandwidth": 2_500_000, "ingressBandwidth": 3_750_000},
                    }
                ]
            )
        }
    ),
    "per_cgroup_bps_limit": Words(
        files={"per_cgroup_bps_limit": f"/kubepods/burstable/pod{UID} tx_bps=2500000 rx_bps=3750000"}
    ),
}


@dataclass
class Worded(Agent):
    """With pods in which a process runs, so that their veths are found."""

    proc: Proc | None = None

    @contextlib.contextmanager
    def pod(self, words: Words) -> Iterator[Pod]:
        """One that is running, and of which this is said."""
        assert self.proc is not None
        pod = self.node.pod()
        inside = ("ip", "netns", "exec", pod.namespace, "sleep", "infinity")
        with subprocess.Popen(inside) as process:
            try:
                self.proc.say(process.pid, UID)
                addresses = (pod.address, pod.address6)
                told = NodePod(UID, "shop", "web", (), annotations=words.annotations)
                self.known.pods[UID] = KnownPod(told, addresses=addresses)
                self.sandboxes[UID] = NriPod(
                    UID[::-1], UID, "shop", "web", pid=process.pid, addresses=addresses, own_network=True
                )
                yield pod
            finally:
                process.kill()


@pytest.fixture(name="agent")
def _agent(node: Node, tmp_path: Path, bpffs: str) -> Worded:
    link = Link(node.nic, "eth0", 1000 * M, 1000 * M)
    (tmp_path / "proc").mkdir()
    proc = Proc(tmp_path / "proc")
    return Worded(node, tmp_path, bpffs, link=link, proc_folder=str(proc.folder), proc=proc)


@pytest.mark.parametrize("name", EACH)
def test_it_is_what_is_measured(agent: Worded, tmp_path: Path, name: str) -> None:
    words = EACH[name]
    folder = tmp_path / "qos"
    folder.mkdir()
    for file, text in words.files.items():
        (folder / file).write_text(text)
    agent.configured = Configured(folder=folder)
    agent.configured.look({})

    async def shaped(network: NodeNetwork) -> None:
        await eventually(lambda: network.last is not None and UID in network.last.pods, "a round")
        assert network.last is not None
        assert (network.last.unkept, network.last.shaped.unshaped) == ({}, {})

    with agent.pod(words) as pod:
        agent.while_running(shaped)
        judged(SENT * M, pod.namespace, agent.node.world, WORLD_4, 1, "cubic")
        judged(RECEIVED * M, agent.node.world, pod.namespace, pod.address, 1, "cubic")
