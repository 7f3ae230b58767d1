"""The agent as installed: its account's rights suffice and are no more, its DaemonSet's pod keeps floors."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from adapters.api import NODE_QOS, NODES, APIError
from adapters.kubernetes import kubeconfig
from adapters.kubernetes.client import KubernetesAPI
from adapters.kubernetes.node_bandwidth import change_to, node_bandwidth
from agent.network.koordinator import SloControllerConfig
from agent.network.publishing import Publishing, publish
from agent.network.uplink import Uplink
from agent.report.writer import ReportWriter
from agent.state import Known
from agent.sync.kubernetes import KubernetesSource
from cli import installation
from cli.install import apply
from cli.kubectl import Kubectl, KubectlError, as_list, find
from lab.cluster import Cluster
from lab.node.demo_place import Namespaced
from lab.node.rig import Options, real_node
from lab.nodes import REAL
from qos import keys
from qos.cluster.node_report import NodeReport
from tests.cluster.floored import (
    ACCOUNT,
    SCOPE,
    applied,
    by_nri,
    floored,
    on_one_node,
    policy,
    roll_out,
    thing,
)
from tests.waiting import eventually, running, until

pytestmark = pytest.mark.cluster

SECONDS = 90.0


@pytest.fixture(scope="module")
def kubectl(cluster: Cluster) -> Kubectl:
    return find(os.environ, cluster.kubeconfig, "")


@pytest.fixture(scope="module")
def daemonset(kubectl: Kubectl) -> Iterator[dict[str, Any]]:
    """All that is installed with --agent but the programs; answers the DaemonSet."""
    wanted = installation.objects(kubectl, "default-scheduler", installation.Choices(agent=True))
    (made,) = [item for item in wanted if item["kind"] == "DaemonSet"]
    rest = [item for item in wanted if item["kind"] not in installation.PROGRAMS]
    apply(kubectl, rest, force_conflicts=True)
    yield made
    made_by_us = [item for item in wanted if item["kind"] != "Namespace"]  # it would take seconds
    kubectl.run("delete", "--ignore-not-found", "-f", "-", stdin=as_list(made_by_us))


@pytest.fixture
def node(kubectl: Kubectl) -> Iterator[str]:
    name = f"node-{secrets.token_hex(3)}"
    labels = {REAL: "true"}  # KWOK leaves it alone
    kubectl.run("create", "-f", "-", stdin=as_list([thing("v1", "Node", name, labels=labels)]))
    yield name
    kubectl.run("delete", "node", name)


@pytest.fixture
def pod(kubectl: Kubectl, daemonset: dict[str, Any], node: str) -> Iterator[str]:
    """A pod on the node as the DaemonSet's reconciler would make it: its security is admitted, too."""
    name = f"agent-{secrets.token_hex(3)}"
    spec = daemonset["spec"]["template"]["spec"] | {"nodeName": node}
    kubectl.run("create", *SCOPE, "-f", "-", stdin=as_list([thing("v1", "Pod", name, spec)]))
    yield name
    kubectl.run("delete", "pod", name, *SCOPE, "--grace-period=0", "--force")


@pytest.fixture(params=["Pod", "Node"])
def account(
    request: pytest.FixtureRequest, cluster: Cluster, kubectl: Kubectl, node: str, pod: str, tmp_path: Path
) -> Path:
    """A kubeconfig with a token of the account for this node: as in the DaemonSet, and as for systemd."""
    name = {"Pod": pod, "Node": node}[request.param]
    bound = (f"--bound-object-kind={request.param}", f"--bound-object-name={name}")
    (tmp_path / "token").write_text(kubectl.run("create", "token", ACCOUNT, *SCOPE, *bound))
    document = json.loads(kubectl.run("config", "view", "--raw", "--minify", "-o", "json"))
    for user in document["users"]:
        user["user"] = {"tokenFile": "token"}
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(document))
    return path


OFFERED = {keys.EGRESS_BANDWIDTH: 846_000_000}


@asynccontextmanager
async def at_work(api: KubernetesAPI, node: str, known: Known) -> AsyncIterator[None]:
    """What of the agent talks to the API server, as long as the block lasts."""
    source = KubernetesSource(api, node, known, lambda *_: None)
    writer = ReportWriter(api, node, registry=CollectorRegistry())
    writer.offer(NodeReport(agent_version="1", kernel="6", cgroup="v2", runtime="r"))
    publishing = Publishing(Uplink(), api, node, known.node_labels)
    publishing.withheld = "nothing of what is published here is kept"
    async with running(source.run()), running(writer.run()), running(publishing.run()):
        async with asyncio.timeout(SECONDS):
            await source.spoken.wait()
        yield


def offers(kubectl: Kubectl, node: str) -> dict[str, int]:
    return dict(node_bandwidth(kubectl.run("get", "node", node, "-o", "json").encode()).capacity)


async def reported(api: KubernetesAPI, node: str) -> dict[str, Any]:
    """The node's NodeQoS once its status is written."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                found = json.loads(await api.get(NODE_QOS, "", node))
            except APIError:
                found = {}
            if "status" in found:
                return dict(found)
            await asyncio.sleep(0.05)


async def test_its_account_may_do_its_work_and_nothing_else(
    account: Path, kubectl: Kubectl, node: str, pod: str
) -> None:
    known = Known()
    before = json.dumps(change_to(OFFERED))
    kubectl.run("patch", "node", node, "--subresource=status", "--type=merge", "-p", before)
    async with KubernetesAPI(kubeconfig.from_file(account)) as api:
        async with at_work(api, node, known):
            await eventually(lambda: [one.pod.name for one in known.pods.values()] == [pod], "its own pod")
            assert "system-node-critical" in known.priority_classes
            report = await reported(api, node)
            await eventually(lambda: not offers(kubectl, node), "what an agent before had published is gone")
        assert (await publish(api, node, OFFERED)).says(OFFERED)
        assert report["status"]["agentVersion"] == "1"
        owner = json.loads(await api.get(NODES, "", node))["metadata"]["uid"]
        assert [one["uid"] for one in report["metadata"]["ownerReferences"]] == [owner]
        other = f"{node}-other"
        kubectl.run("create", "-f", "-", stdin=as_list([thing("j10ce.io/v1alpha1", "NodeQoS", other)]))
        assert f"may not write NodeQoS {other}" in await refusal(api, other)
    kubectl.run("delete", "nodeqos", other)
    assert allowed(Kubectl(kubectl.binary, account), node, pod) == []


BANDS = '{"clusterStrategy": {"lsClass": {"networkQOS": {"enable": true, "egressRequest": 40}}}}'


@pytest.fixture
def koordinators(kubectl: Kubectl) -> Iterator[str]:
    """A namespace as Koordinator's, with its ConfigMap, and another one in it."""
    name = f"koordinator-{secrets.token_hex(3)}"
    namespace = thing("v1", "Namespace", name)
    said = thing("v1", "ConfigMap", "slo-controller-config", namespace=name)
    other = thing("v1", "ConfigMap", "other", namespace=name)
    kubectl.run("create", "-f", "-", stdin=as_list([namespace]))
    items = [said | {"data": {"resource-qos-config": BANDS, "colocation-config": "{}"}}, other]
    kubectl.run("create", "-f", "-", stdin=as_list(items))
    yield name
    kubectl.run("delete", "namespace", name, "--wait=false")


@pytest.mark.usefixtures("pod")
async def test_it_may_follow_koordinators_configmap_where_networks_are_shaped(
    account: Path, kubectl: Kubectl, koordinators: str
) -> None:
    """And no other one; without --network-floors none at all."""
    chosen = installation.Choices(agent=True, network=installation.Network.ON)
    names = ("configmap/slo-controller-config", "configmaps", "configmap/other")
    scope = ("--namespace", koordinators)
    asked = Kubectl(kubectl.binary, account)
    assert all(refused(asked, ("get", name, *scope), "") for name in names)
    wanted = installation.objects(kubectl, "default-scheduler", chosen)
    apply(kubectl, [item for item in wanted if item["kind"] == "ClusterRole"], force_conflicts=True)
    told: dict[str, str] = {}
    async with (
        KubernetesAPI(kubeconfig.from_file(account)) as api,
        running(SloControllerConfig(api, f"{koordinators}/slo-controller-config", told, lambda: None).run()),
    ):
        await eventually(lambda: told == {"resource-qos-config": BANDS}, "its ConfigMap")
        change = {"data": {"resource-qos-config": None, "system-config": "{}"}}
        words = ("patch", "configmap", "slo-controller-config", *scope, "--type=merge", "-p")
        kubectl.run(*words, json.dumps(change))
        await eventually(lambda: told == {"system-config": "{}"}, "its change")
        kubectl.run("delete", "configmap", "slo-controller-config", *scope)
        await eventually(lambda: not told, "its end")
    assert all(refused(asked, ("get", name, *scope), "") for name in names[1:])
    plain = installation.objects(kubectl, "default-scheduler", installation.Choices(agent=True))
    apply(kubectl, [item for item in plain if item["kind"] == "ClusterRole"], force_conflicts=True)
    rules = kubectl.objects("get", "clusterrole", "j10ce-agent")[0]["rules"]
    assert not [rule for rule in rules if "configmaps" in rule["resources"]], "switched off, the right goes"


async def refusal(api: KubernetesAPI, other: str) -> str:
    """Why the status of another node is not ours; an API server obeys a new policy a moment later."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                await api.patch(NODE_QOS, "", other, {"status": {"kernel": "7"}}, subresource="status")
            except APIError as error:
                return str(error)
            await asyncio.sleep(0.05)


def allowed(kubectl: Kubectl, node: str, pod: str) -> list[str]:
    """What goes through of what an agent has no business with; each is tried."""
    eviction = json.dumps(thing("policy/v1", "Eviction", pod, namespace="j10ce-system"))
    mark = '{"metadata": {"annotations": {"a": "b"}}}'
    status = ("--subresource=status", "--type=merge", "-p")
    tries: list[tuple[str, ...]] = [
        ("delete", "pod", pod, *SCOPE),
        ("patch", "pod", pod, *SCOPE, "-p", mark),
        ("create", "--raw", f"/api/v1/namespaces/j10ce-system/pods/{pod}/eviction", "-f", "-"),
        ("patch", "node", node, "-p", mark),
        ("patch", "node", node, *status, mark),
        ("patch", "node", node, *status, '{"status": {"capacity": {"cpu": "1000"}}}'),
        ("delete", "nodeqos", node),
        ("patch", "nodeqos", node, "--type=merge", "-p", mark),
        ("get", "secrets", *SCOPE),
        ("create", "token", ACCOUNT, *SCOPE),
        ("exec", pod, *SCOPE, "--", "true"),
        ("delete", "mrp", "some", *SCOPE),
    ]
    return [" ".join(words) for words in tries if not refused(kubectl, words, eviction)]


def refused(kubectl: Kubectl, words: tuple[str, ...], stdin: str) -> bool:
    try:
        kubectl.run(*words, stdin=stdin)
    except KubectlError as error:
        return "orbidden" in str(error)
    return False


def runnable(daemonset: dict[str, Any], node: str, server: str) -> dict[str, Any]:
    """The DaemonSet with our own Python."""
    ours = {Path("/usr"), Path("/lib"), Path("/lib64"), Path(sys.prefix), Path(sys.base_prefix)}
    sources = Path(installation.__file__).parents[1]
    command = str(Path(sys.executable).with_name("j10ce-agent"))
    folders = filter(Path.exists, ours | {sources})
    made = on_one_node(daemonset, node, server, command, folders, ours_to_give())
    (agent,) = made["spec"]["template"]["spec"]["containers"]
    agent["env"].append({"name": "PYTHONPATH", "value": str(sources)})
    return made


CAPABILITIES = {"DAC_OVERRIDE": 1, "NET_ADMIN": 12, "SYS_PTRACE": 19, "SYS_ADMIN": 21, "SYS_RESOURCE": 24}


def ours_to_give() -> set[str]:
    """A machine that is a container itself may not have all of them."""
    (line,) = [one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("CapBnd")]
    bounding = int(line.split()[1], 16)
    return {name for name, number in CAPABILITIES.items() if bounding >> number & 1}


@pytest.mark.timeout(900)
@pytest.mark.skipif(os.geteuid() != 0, reason="a real node needs cgroups, namespaces and mounts: be root")
def test_its_pod_keeps_a_floor_on_a_real_node(
    cluster: Cluster, kubectl: Kubectl, daemonset: dict[str, Any]
) -> None:
    """Started by kubelet and containerd with the DaemonSet's paths, capabilities, seccomp and probes."""
    server = json.loads(kubectl.run("config", "view", "--minify", "-o", "json"))["clusters"][0]["cluster"]
    with real_node(cluster, f"real-{secrets.token_hex(2)}") as node:
        made = runnable(daemonset, node.name, server["server"])
        kubectl.run("create", "-f", "-", stdin=as_list([made, policy()]))
        roll_out(cluster)
        reports = partial(kubectl.run, "get", "nodeqos", "-o", "yaml")
        until(lambda: by_nri(kubectl, node.name), "connected by NRI", SECONDS, reports)
        kubectl.run("create", "-f", "-", stdin=as_list([floored(node.name)]))
        kubectl.run("wait", "--for=condition=Ready", "pod/floored", "-n", "default", "--timeout=110s")
        said = partial(kubectl.run, "logs", "floored", "-n", "default")
        until(said, "the container says something", SECONDS)
        planned = Namespaced(node).pod(cluster, "floored").planned("main")
        assert said().strip() == planned[(0, "cpu.shares")], "as planned, from its first instruction"
        until(lambda: applied(kubectl, node.name) == 1, "its settings are applied", SECONDS, reports)
        doctor = (str(Path(sys.executable).with_name("j10ce")), "node", "doctor", "-o", "json")
        found = cluster.kubectl("exec", "daemonset/j10ce-agent", *SCOPE, "--", *doctor, check=False)
        levels = {one["subject"]: one["level"] for one in json.loads(found)}
        assert {levels[one] for one in ("CPU floors", "kubelet", "NRI", "drift", "agent")} == {"works"}
        kubectl.run("delete", "daemonset", ACCOUNT, *SCOPE, "--cascade=foreground", "--timeout=110s")
        now = kubectl.run("exec", "floored", "-n", "default", "--", "cat", "/sys/fs/cgroup/cpu/cpu.shares")
        assert int(now) == int(said()), "ending undoes nothing"
        kubectl.run("delete", "pod/floored", "mrp/floored", "-n", "default", "--grace-period=0", "--force")


@pytest.mark.timeout(900)
@pytest.mark.skipif(os.geteuid() != 0, reason="a real node needs cgroups, namespaces and mounts: be root")
@pytest.mark.usefixtures("daemonset")
def test_its_pod_shapes_a_real_nodes_network_and_leaves_it(cluster: Cluster, kubectl: Kubectl) -> None:
    """By what `install --network-floors` adds, with the runtime's seccomp profile; then switched off."""
    server = json.loads(kubectl.run("config", "view", "--minify", "-o", "json"))["clusters"][0]["cluster"]

    def installed(network: installation.Network) -> dict[str, Any]:
        choices = installation.Choices(agent=True, network=network)
        wanted = installation.objects(kubectl, "default-scheduler", choices)
        (made,) = [item for item in wanted if item["kind"] == "DaemonSet"]
        return runnable(made, node.name, server["server"])

    with real_node(cluster, f"real-{secrets.token_hex(2)}", options=Options(cni="bridge")) as node:
        before = node.run(["tc", "qdisc", "show", "dev", "eth0"]).stdout
        kubectl.run("label", "node", node.name, f"{keys.LINK_EGRESS_LABEL}=1G")
        kubectl.run("create", "-f", "-", stdin=as_list([installed(installation.Network.ON)]))
        roll_out(cluster)
        pod = floored(node.name)
        pod["metadata"]["annotations"] = {keys.EGRESS_BANDWIDTH_ANNOTATION: "10M"}
        kubectl.run("create", "-f", "-", stdin=as_list([pod]))
        kubectl.run("wait", "--for=condition=Ready", "pod/floored", "-n", "default", "--timeout=110s")

        def classes() -> str:
            return node.run(["tc", "class", "show", "dev", "eth0"]).stdout

        said = partial(cluster.kubectl, "logs", "daemonset/j10ce-agent", *SCOPE)
        until(lambda: "ceil 10Mbit" in classes(), "the pod's class", SECONDS, said)
        assert node.run(["ls", "/sys/fs/bpf/j10ce/v1/links"]).stdout.startswith("classify-")
        kubectl.run("replace", "-f", "-", stdin=as_list([installed(installation.Network.LEAVING)]))
        cluster.kubectl("rollout", "status", "daemonset/j10ce-agent", *SCOPE, "--timeout=200s", seconds=230)
        now = partial(node.run, ["tc", "qdisc", "show", "dev", "eth0"])
        until(lambda: now().stdout == before, "all is as it was", SECONDS, lambda: now().stdout + said())
        assert "j10ce" not in node.run(["ls", "/sys/fs/bpf"]).stdout
        kubectl.run("delete", "daemonset", ACCOUNT, *SCOPE, "--cascade=foreground", "--timeout=110s")
        kubectl.run("delete", "pod/floored", "-n", "default", "--grace-period=0", "--force")
