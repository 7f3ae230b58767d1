"""On a systemd node an agent that only watches writes nothing, and one that worked leaves nothing behind:
not in the kernel, not in the runtime, not with systemd.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cli.kubectl import Kubectl, as_list, find
from lab.binaries import silent
from lab.cluster import Cluster
from lab.node.systemd import files
from lab.node.systemd.node import SystemdNode, systemd_node
from tests.cluster import whole_tree
from tests.cluster.floored import policy, thing
from tests.cluster.on_systemd import (
    CHOSEN,
    MANAGERS,
    SECONDS,
    There,
    agent_ends,
    agent_starts,
    removed,
    sleeping,
    start,
    until_there,
    value,
)
from tests.waiting import until

pytestmark = [
    pytest.mark.runtime,  # with those that have the machine to themselves: the VM takes all of it
    pytest.mark.full,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.geteuid() != 0, reason="the node's network device needs root"),
]

EVERYTHING = {
    "J10CE_NODE_SHARES": "Allocatable",
    "J10CE_CLASS_DEFAULTS": "1",
    "J10CE_AUTHOR_OOM_SCORES": "1",
}
"""All that an administrator can choose."""
J10CE = "/opt/j10ce/bin/j10ce"
OWN = "/sys/fs/cgroup/system.slice/j10ce-agent.service"
ALL_PODS = "/sys/fs/cgroup/kubepods.slice"
RELOADS = 3
"""systemd writes a scope's settings again at the second daemon-reload after its container's start."""
OF_KUBELET = {"cpu.weight": "12", "cpu.max": "60000 100000", "memory.high": "max", "memory.min": "0"}
"""What runc 1.1 gives a container for a request of 300m and a limit of 600m."""
OF_A_WATCHER = ("/run/j10ce", "/var/lib/j10ce")
"""Where one that only watches keeps what it knows, and its locks."""


@pytest.fixture(scope="module")
def node(cluster: Cluster) -> Iterator[SystemdNode]:
    with systemd_node(cluster, silent, f"systemd-{secrets.token_hex(2)}", kubelet=MANAGERS) as made:
        yield made


@pytest.fixture(scope="module")
def kubectl(cluster: Cluster) -> Kubectl:
    return find(os.environ, cluster.kubeconfig, "")


@pytest.fixture(scope="module")
def pods(node: SystemdNode, kubectl: Kubectl) -> Iterator[dict[str, There]]:
    """Of each kind: with a floor of CPU and memory, of each class by label, and one that nobody asks for."""
    promises = {"memoryMinPercent": 100, "memoryHighPercent": 80, "cpuBurstPercent": 50}
    profile = thing("j10ce.io/v1alpha1", "QoSProfile", "floored", {"class": "LS", "promises": promises})
    rule = policy("300m")
    rule["spec"]["floor"]["resources"]["memory"] = "24Mi"
    rule["spec"]["profileName"] = "floored"
    kubectl.run("create", "-f", "-", stdin=as_list([profile, rule]))
    asked = {"requests": {"cpu": "300m", "memory": "32Mi"}, "limits": {"cpu": "600m", "memory": "64Mi"}}
    made = [sleeping("floored", node.name, **asked)]
    made[-1]["metadata"]["labels"] = {"app": "floored"}
    made.append(sleeping("batch", node.name))
    made[-1]["metadata"]["labels"] = {"koordinator.sh/qosClass": "BE"}
    alike = {"cpu": "200m", "memory": "32Mi"}
    made.append(sleeping("steady", node.name, limits=alike))
    made[-1]["metadata"]["labels"] = {"koordinator.sh/qosClass": "LSR"}
    made += [sleeping("small", node.name, requests={"cpu": "10m"}), sleeping("nobodys", node.name)]
    yield start(kubectl, *made)
    removed(kubectl, *made)
    kubectl.run("delete", "mrp/floored", "qosp/floored", "-n", "default")


def everything(node: SystemdNode) -> dict[str, str]:
    """All that the node has, without the agent's own cgroup and its options."""
    argv = ["python3", "-B", "-c", Path(whole_tree.__file__).read_text()]
    found = json.loads(node.run(argv).succeeded().stdout)
    return {what: has for what, has in found.items() if not what.startswith((OWN, CHOSEN))}


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, tuple[str | None, str | None]]:
    whats = sorted(before.keys() | after.keys())
    return {one: (before.get(one), after.get(one)) for one in whats if before.get(one) != after.get(one)}


@pytest.fixture
def witness(node: SystemdNode) -> Iterator[Any]:
    """Call it for the writes into cgroup files until now: (cgroup of the writer, file)."""
    environ = f"--setenv=PYTHONPATH={files.SOURCES}"
    argv = ["systemd-run", "--quiet", "--unit=lab-witness", "--property=Type=exec", environ]
    node.run([*argv, "python3", "-B", "-c", _WITNESS]).succeeded()
    until_there(node, lambda: node.run(["test", "-e", "/tmp/witness"]).code == 0, "it watches")
    yield lambda: [tuple(json.loads(line)) for line in node.read("/tmp/witness").splitlines()]
    node.run(["systemctl", "stop", "lab-witness"]).succeeded()


_WITNESS = """
import json, os, select
from pathlib import Path
from agent.enforcement.fanotify import Fanotify
names = {}
source = Fanotify(["/sys/fs/cgroup"])
with open("/tmp/witness", "w", buffering=1) as out:
    while True:
        select.select([source.fd], [], [])
        for one in source.read():
            try:
                writer = Path(f"/proc/{one.pid}/cgroup").read_text().strip()
            except OSError:
                writer = "ended"
            if one.identity not in names:
                for folder, _, files in os.walk("/sys/fs/cgroup"):
                    for file in files:
                        path = os.path.join(folder, file)
                        try:
                            found = os.stat(path)
                        except OSError:
                            continue
                        names[found.st_dev, found.st_ino] = path
            print(json.dumps([writer, names.get(one.identity, "?")]), file=out)
"""


def test_a_watcher_writes_nothing_and_says_what_an_agent_then_writes(
    node: SystemdNode, kubectl: Kubectl, pods: dict[str, There], witness: Any
) -> None:
    before, chosen = everything(node), EVERYTHING | {"J10CE_NODE_SHARES": "Kubelet"}
    agent_starts(node, J10CE_AGENT_OBSERVE="1", **chosen)
    until_there(node, lambda: len(observed(node)) >= 3, "it says what it would write")
    during, would = everything(node), observed(node)
    assert {what for what in changes(before, during) if not what.startswith(OF_A_WATCHER)} == set()
    written = [file for writer, file in witness() if writer.endswith("j10ce-agent.service")]
    assert [file for file in written if not file.startswith(OWN)] == []
    table = node.run([J10CE, "node", "observed"]).succeeded().stdout
    assert table.startswith(f"{sum(map(len, would.values()))} settings of {len(would)} containers")
    agent_starts(node, **chosen)
    until_there(node, lambda: lacking(node, would) == [], "an agent that works writes just that")
    agent_ends(node)
    node.run([J10CE, "node", "restore"]).succeeded()
    assert changes(before, everything(node)) == {}


def lacking(
    node: SystemdNode, would: Mapping[str, list[tuple[str, str, str, str]]]
) -> list[tuple[str, str, str]]:
    """Of what would be written, what is not in the kernel: pod, file, value."""
    settings = [(pod, *one) for pod, settings in would.items() for one in settings]
    return [
        (pod, file, want)
        for pod, path, file, _, want in settings
        if (score(node, path) if file == "oom_score_adj" else value(node, path, file)) != want
    ]


def score(node: SystemdNode, path: str) -> str:
    """oom_score_adj of a container's first process."""
    return node.read(f"/proc/{value(node, path, 'cgroup.procs').split()[0]}/oom_score_adj").strip()


def observed(node: SystemdNode) -> dict[str, list[tuple[str, str, str, str]]]:
    """By pod: cgroup, file, what it has, what it would get."""
    done = node.run([J10CE, "node", "observed", "-o", "json"])
    if done.code:
        return {}
    return {
        one["pod"]: [(each["cgroup"], each["file"], each["have"], each["want"]) for each in one["settings"]]
        for one in json.loads(done.stdout)["containers"]
    }


@pytest.mark.parametrize("when", ["-s /run/j10ce/originals", "-s /run/j10ce/pods/FLOORED"])
def test_a_killed_agents_node_is_as_it_was_found(
    node: SystemdNode, kubectl: Kubectl, pods: dict[str, There], when: str
) -> None:
    """Killed while it writes: as soon as it has noted what was there first, and as soon as all is planned."""
    before = everything(node)
    test = when.replace("FLOORED", pods["floored"].uid)
    wait = f"until [ {test} ]; do :; done; systemctl kill --signal=KILL j10ce-agent"
    agent_starts(node, **EVERYTHING)
    node.run(["sh", "-c", wait]).succeeded()
    agent_ends(node)  # before systemd starts it again
    killed = everything(node)
    assert changes(before, killed) != {}
    node.run([J10CE, "node", "restore"]).succeeded()
    assert changes(before, everything(node)) == {}


def reloads(node: SystemdNode) -> None:
    """As packages do at an upgrade."""
    for _ in range(RELOADS):
        node.run(["systemctl", "daemon-reload"]).succeeded()


def settings(node: SystemdNode, path: str) -> dict[str, str]:
    return {file: value(node, path, file) for file in OF_KUBELET}


def of_pods(node: SystemdNode) -> dict[str, str]:
    return {what: has for what, has in everything(node).items() if what.startswith(ALL_PODS)}


def differing(
    before: Mapping[str, str], after: Mapping[str, str]
) -> dict[str, tuple[str | None, str | None]]:
    """But for what systemd loses of a scope at a reload, and the runtime writes again at its next update:
    kubelet's memory.oom.group.
    """
    return {
        what: values
        for what, values in changes(before, after).items()
        if not (what.endswith(".scope/memory.oom.group") and set(values) == {"0", "1"})
    }


def test_neither_reloads_nor_a_resize_bring_ours_back(
    node: SystemdNode, kubectl: Kubectl, pods: dict[str, There]
) -> None:
    """Of containers that were there before the agent, and of one that was born under it."""
    reloads(node)
    before = of_pods(node)
    agent_starts(node, **EVERYTHING)
    until_there(node, lambda: value(node, pods["floored"].container, "memory.high") != "max", "it works")
    asked = {"requests": {"cpu": "300m", "memory": "32Mi"}, "limits": {"cpu": "600m", "memory": "64Mi"}}
    born = sleeping("born", node.name, **asked)
    born["metadata"]["labels"] = {"app": "floored"}
    there = start(kubectl, born)["born"]
    floored = (there.container, pods["floored"].container)
    ours = {path: settings(node, path) for path in floored}
    assert all(
        one[file] != OF_KUBELET[file] for one in ours.values() for file in ("cpu.weight", "memory.high")
    )
    reloads(node)
    lost = lambda: {path: changes(ours[path], settings(node, path)) for path in floored}  # noqa: E731
    until_there(node, lambda: not any(lost().values()), "what systemd writes is no wish of others", lost)
    agent_ends(node)
    node.run([J10CE, "node", "restore"]).succeeded()
    assert [settings(node, path) for path in floored] == [OF_KUBELET] * 2
    reloads(node)
    assert [settings(node, path) for path in floored] == [OF_KUBELET] * 2
    resized = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "400m"}}}]}}
    kubectl.run("patch", "pod/born", "-n", "default", "--subresource=resize", "--patch", json.dumps(resized))
    until_there(node, lambda: value(node, there.container) == "16", "kubelet's 400m are there")
    reloads(node)
    assert value(node, there.container) == "16"
    removed(kubectl, born)
    left = lambda: differing(before, of_pods(node))  # noqa: E731
    until(lambda: not left(), "everything is as before", SECONDS, lambda: str(left()))
