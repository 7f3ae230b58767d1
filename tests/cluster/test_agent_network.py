"""A real node's bandwidth in its status beside a real kubelet, and its pods' packets from the first on."""

from __future__ import annotations

import json
import os
import re
import secrets
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adapters.kubernetes.node_bandwidth import change_to, node_bandwidth
from agent.network.starting import AT_MOST
from lab.agent_process import AgentProcess
from lab.cluster import Cluster
from lab.node.node import RealNode
from lab.node.rig import Options, real_node
from lab.runtimes.images import BUSYBOX
from qos import keys
from tests.waiting import until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="a real node needs cgroups, namespaces and mounts: be root"),
]

J10CE = Path(sysconfig.get_path("scripts")) / "j10ce"
OFFERED = {keys.EGRESS_BANDWIDTH: 846_000_000}
"""Of 1 Gbit/s, less headroom and what host and bands keep. Nothing shapes what the node receives."""
HALF = {keys.EGRESS_BANDWIDTH: 423_000_000}


class Here:
    def __init__(self, cluster: Cluster, node: RealNode, agent: AgentProcess) -> None:
        self.cluster, self.node, self.agent = cluster, node, agent

    def shown(self) -> str:
        """For a test that fails."""
        shown = self.node.run(["tc", "-s", "class", "show", "dev", "eth0"]).stdout
        return shown + self.agent.log.read_text()[-4000:]

    def raw(self) -> bytes:
        return self.cluster.kubectl("get", "node", self.node.name, "--output=json").encode()

    def offers(self, wanted: dict[str, int]) -> None:
        log = self.agent.log
        until(
            lambda: node_bandwidth(self.raw()).says(wanted),
            str(wanted),
            details=lambda: log.read_text()[-2000:],
        )

    def pod(self, name: str, command: str, **annotations: str) -> None:
        """A pod of one container; it is not waited for."""
        container = {
            "name": "main",
            "image": BUSYBOX,
            "imagePullPolicy": "Never",
            "command": ["/bin/sh", "-c", command],
            "resources": {"requests": {"cpu": "10m"}},
        }
        spec = {"nodeName": self.node.name, "terminationGracePeriodSeconds": 0, "containers": [container]}
        metadata = {"name": name, "annotations": annotations}
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        scope = f"--namespace={self.node.name}"
        account = ("--for=create", "serviceaccount/default", "--timeout=100s")
        self.cluster.kubectl("wait", scope, *account, seconds=120)
        self.cluster.kubectl("create", scope, "--filename=-", stdin=json.dumps(manifest))

    def ready(self, name: str) -> dict[str, Any]:
        scope = f"--namespace={self.node.name}"
        ready = ("--for=condition=Ready", f"pod/{name}", "--timeout=150s")
        self.cluster.kubectl("wait", scope, *ready, seconds=180)
        found: dict[str, Any] = json.loads(self.cluster.kubectl("get", scope, "pod", name, "--output=json"))
        return found

    def sent(self, ceiling: str) -> tuple[int, int]:
        """Bytes and packets that the link has sent of the class with this ceiling; -1: there is none."""
        shown = self.node.run(["tc", "-s", "class", "show", "dev", "eth0"]).succeeded().stdout
        of_class = rf"class htb 10ce:1[0-9a-f] .* ceil {ceiling} .*\n Sent (\d+) bytes (\d+) pkt"
        found = re.search(of_class, shown)
        return (int(found[1]), int(found[2])) if found else (-1, -1)

    def heartbeat(self) -> str:
        conditions = json.loads(self.raw())["status"]["conditions"]
        return next(one["lastHeartbeatTime"] for one in conditions if one["type"] == "Ready")

    def kubelet_again(self) -> None:
        self.node.kill("kubelet")
        self.node.start("kubelet")
        self.node.wait_ready()


def an_agent(folder: Path, node: RealNode, *options: str) -> AgentProcess:
    given = ("--node", node.name, "--kubeconfig", node.kubeconfig, "--log-level", "debug", *options)
    return AgentProcess(folder, *given, wrap=node.command, host=node.address, parent=True)


@pytest.fixture(scope="module")
def here(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    name = f"link-{secrets.token_hex(2)}"
    cluster.kubectl("create", "namespace", name)
    with real_node(cluster, name, options=Options(cni="bridge")) as node:
        folder = tmp_path_factory.mktemp("node")
        agent = an_agent(folder / "agent", node, "--network-floors", "--link-egress", "1G")
        agent.start()
        made = Here(cluster, node, agent)
        yield made
        made.agent.end()
        cluster.kubectl("delete", "pods", "--all", "--force", "--grace-period=0", f"--namespace={name}")
    cluster.kubectl("delete", "nodeqos", name, "--ignore-not-found")
    cluster.kubectl("delete", "namespace", name, "--wait=false")


def test_it_is_published_and_kubelet_leaves_it_alone(here: Here) -> None:
    here.offers(OFFERED)
    before = here.heartbeat()
    here.cluster.kubectl("annotate", "node", here.node.name, "example.com/x=y")
    here.kubelet_again()
    until(lambda: here.heartbeat() != before, "kubelet has written the status", 400)
    here.offers(OFFERED)


def test_a_label_counts_before_the_option(here: Here) -> None:
    here.cluster.kubectl("label", "node", here.node.name, f"{keys.LINK_EGRESS_LABEL}=500M")
    here.offers(HALF)
    here.cluster.kubectl("label", "node", here.node.name, f"{keys.LINK_EGRESS_LABEL}-")
    here.offers(OFFERED)


def test_koordinators_configmap_divides_the_link(here: Here) -> None:
    """What it promises to its classes is kept for them, and offered to no floor."""
    bands = {"clusterStrategy": {"beClass": {"networkQOS": {"enable": True, "egressRequest": 12}}}}
    here.cluster.kubectl("create", "namespace", "koordinator-system")
    scope = "--namespace=koordinator-system"
    data = f"--from-literal=resource-qos-config={json.dumps(bands)}"
    here.cluster.kubectl("create", "configmap", "slo-controller-config", data, scope)
    here.offers({keys.EGRESS_BANDWIDTH: 752_000_000})
    here.cluster.kubectl("delete", "namespace", "koordinator-system")
    here.offers(OFFERED)


def test_a_node_that_is_made_anew_has_it_again(here: Here) -> None:
    here.node.kill("kubelet")
    uid = json.loads(here.raw())["metadata"]["uid"]
    here.cluster.kubectl("delete", "node", here.node.name)
    here.node.start("kubelet")
    here.node.wait_ready()
    assert json.loads(here.raw())["metadata"]["uid"] != uid
    here.offers(OFFERED)


SCRIPT = """
import sys
from agent.network.netlink import Netlink
from agent.network.veths import host_ends
from kernel import facts
uid, path = sys.argv[1:]
pids = facts.processes(facts.mounts()["memory"], path)
with Netlink() as asked:
    print(pids, host_ends(asked, {uid: pids})[uid].index)
"""


def test_the_runtime_tells_of_a_pods_network_before_its_containers_run(here: Here) -> None:
    scope = f"--namespace={here.node.name}"
    here.pod("one", "cat /sys/class/net/eth0/iflink; exec sleep 100000")
    pod = here.ready("one")
    until(lambda: here.cluster.kubectl("logs", scope, "one"), "the container has said what it sees")
    index = here.cluster.kubectl("logs", scope, "one").strip()
    uid, addresses = pod["metadata"]["uid"], [one["ip"] for one in pod["status"]["podIPs"]]

    said = [line for line in here.agent.log.read_text().splitlines() if f"sandbox pod={uid}" in line]
    assert f"addresses={','.join(addresses)} own_network=True" in said[0]
    pid = int(said[0].partition("pid=")[2].split()[0])
    assert pid > 0
    status = pod["status"]["containerStatuses"][0]
    path = f"/kubepods/burstable/pod{uid}/{status['containerID'].rpartition('/')[2]}"
    words = [sys.executable, "-P", "-c", SCRIPT, uid, path]
    environ = {"PYTHONPATH": str(Path(__file__).parents[2])}
    found = here.node.run(words, environ=environ).succeeded().stdout
    assert found.split()[-1] == index


PINGS, PAYLOAD, HEADERS = 3, 1000, 14 + 20 + 8
PINGING = f"busybox ping -c {PINGS} -s {PAYLOAD} -W 1 192.0.2.1; exec sleep 100000"
"""Nobody has that address (RFC 5737), and nobody answers."""
BYTES = PINGS * (PAYLOAD + HEADERS)


def waited(agent: AgentProcess) -> list[tuple[str, float]]:
    """What came of each wait of a pod that started, and its seconds."""
    said = re.findall(r"network of a pod that starts .*outcome=(\w+) seconds=([\d.]+)", agent.log.read_text())
    return [(outcome, float(seconds)) for outcome, seconds in said]


def test_a_pods_first_packet_is_in_its_class(here: Here) -> None:
    """It sends as its first act, and all of that was counted by its class and by no other."""
    limits = {keys.EGRESS_BANDWIDTH_ANNOTATION: "10M", keys.INGRESS_BANDWIDTH_ANNOTATION: "20M"}
    here.pod("first", PINGING, **limits)
    here.ready("first")
    until(lambda: here.sent("10Mbit")[1] >= PINGS, "all is sent", details=here.shown)
    assert here.sent("10Mbit") == (BYTES, PINGS)
    assert "rate 20Mbit" in here.node.run(["tc", "qdisc", "show"]).succeeded().stdout
    ((outcome, seconds),) = waited(here.agent)
    assert outcome == "shaped"
    assert seconds < AT_MOST


def test_an_agent_that_starts_later_finds_the_pods_that_run(here: Here, tmp_path: Path) -> None:
    here.agent.end()
    here.pod("second", PINGING, **{keys.EGRESS_BANDWIDTH_ANNOTATION: "30M"})
    here.ready("second")
    assert here.sent("30Mbit") == (-1, -1)
    here.agent = an_agent(tmp_path / "later", here.node, "--network-floors", "--link-egress", "1G")
    here.agent.start()
    until(lambda: here.sent("30Mbit") != (-1, -1), "it has a class", 5, details=here.shown)
    assert here.sent("10Mbit") == (BYTES, PINGS), "the other one's has counted on"


def test_switched_off_it_is_taken_away(here: Here, tmp_path: Path) -> None:
    here.agent.end()
    here.agent = an_agent(tmp_path / "off", here.node)
    here.agent.start()
    here.offers({})


def test_restoring_by_hand_takes_it_away(here: Here) -> None:
    here.agent.end()
    change = json.dumps(change_to(OFFERED))
    how = ("--subresource=status", "--type=merge", f"--patch={change}")
    here.cluster.kubectl("patch", "node", here.node.name, *how)
    here.offers(OFFERED)
    folders = ("--run", here.agent.run, "--state", here.agent.state)
    named = ("--node", here.node.name, "--kubeconfig", here.node.kubeconfig)
    here.node.run([J10CE, "node", "restore", *folders, *named]).succeeded()
    here.offers({})
