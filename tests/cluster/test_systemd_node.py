"""A node as most people run it: systemd, cgroup v2, kubelet's systemd driver; the agent as unit and as pod.

kubelet's static CPU manager and memory manager are on.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cli import installation
from cli.install import apply
from cli.kubectl import Kubectl, as_list, find
from cli.restoring import restore_nodes
from lab.binaries import silent
from lab.cluster import Cluster
from lab.node.systemd import files
from lab.node.systemd.node import SystemdNode, systemd_node
from tests.cluster.floored import (
    ACCOUNT,
    SCOPE,
    applied,
    by_nri,
    floored,
    on_one_node,
    policy,
    roll_out,
    status,
)
from tests.cluster.on_systemd import (
    ALL_PODS,
    MANAGERS,
    SECONDS,
    WEIGHT,
    There,
    removed,
    sleeping,
    start,
    value,
)
from tests.waiting import until

pytestmark = [
    pytest.mark.runtime,  # with those that have the machine to themselves: the VM takes all of it
    pytest.mark.full,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.geteuid() != 0, reason="the node's network device needs root"),
]

FLOOR = "300m"
"""Less than kubepods.slice (weight 59) has on two CPUs, beside init.scope and system.slice (100 each)."""
NEARLY = 0.9
"""What the scheduler's moving of work between CPUs may cost on a busy machine."""
OF_KUBELET = 12
"""cpu.weight that runc 1.1 gives a container for a request of 300m."""


@pytest.fixture(scope="module")
def node(cluster: Cluster) -> Iterator[SystemdNode]:
    with systemd_node(cluster, silent, f"systemd-{secrets.token_hex(2)}", kubelet=MANAGERS) as made:
        yield made


@pytest.fixture(scope="module")
def kubectl(cluster: Cluster) -> Kubectl:
    return find(os.environ, cluster.kubeconfig, "")


@pytest.fixture
def rules(kubectl: Kubectl) -> Iterator[None]:
    """A policy of one floor, and its pod's end."""
    kubectl.run("create", "-f", "-", stdin=as_list([policy(FLOOR)]))
    yield
    gone = (
        "pod/floored",
        "mrp/floored",
        "-n",
        "default",
        "--grace-period=0",
        "--force",
        "--ignore-not-found",
    )
    kubectl.run("delete", *gone)


def test_pods_are_slices_and_containers_are_scopes(node: SystemdNode, kubectl: Kubectl) -> None:
    plain = sleeping("plain", node.name, requests={"cpu": "500m", "memory": "16Mi"})
    there = start(kubectl, plain)["plain"]
    assert there.path.startswith(f"{ALL_PODS}/")
    assert value(node, there.container, "cgroup.procs")
    assert value(node, there.path) == "20"  # kubelet's for 500m
    unit = there.container.rpartition("/")[2]
    shown = node.run(["systemctl", "show", "--value", "--property=Delegate,Slice", unit]).succeeded().stdout
    assert set(shown.split()) == {"yes", there.path.rpartition("/")[2]}
    said = partial(kubectl.run, "logs", "plain", "-n", "default")
    until(said, "kubelet is within reach for logs", SECONDS)
    assert said() == "0::/\n"
    removed(kubectl, plain)


def test_the_managers_pin_what_a_guaranteed_pod_asks_whole(node: SystemdNode, kubectl: Kubectl) -> None:
    whole = sleeping("whole", node.name, limits={"cpu": "1", "memory": "64Mi"})
    own = start(kubectl, whole)["whole"].container
    assert value(node, own, "cpuset.cpus") == "1"
    assert value(node, own, "cpuset.mems") == "0"
    removed(kubectl, whole)


def test_the_unit_keeps_a_floor(node: SystemdNode, cluster: Cluster, kubectl: Kubectl, rules: None) -> None:
    node.run(["systemctl", "start", "j10ce-agent"]).succeeded()
    journal = partial(node.journal, "j10ce-agent")
    until(lambda: by_nri(kubectl, node.name), "connected by NRI", SECONDS, journal)
    shown = node.run(["systemctl", "show", "--value", "--property=ControlGroup", "j10ce-agent"]).succeeded()
    assert shown.stdout.strip() == "/system.slice/j10ce-agent.service"
    keeps_the_floor(node, kubectl)
    node.run(["systemctl", "stop", "j10ce-agent"]).succeeded()
    assert int(born(kubectl)) == int(now(kubectl)), "ending undoes nothing"


def test_the_daemonsets_pod_keeps_a_floor_and_another_leaves_the_node_as_found(
    node: SystemdNode, cluster: Cluster, kubectl: Kubectl, rules: None
) -> None:
    """The other one is made by what `j10ce uninstall` does first."""
    wanted = installation.objects(kubectl, "default-scheduler", installation.Choices(agent=True))
    (daemonset,) = [item for item in wanted if item["kind"] == "DaemonSet"]
    apply(
        kubectl, [item for item in wanted if item["kind"] not in installation.PROGRAMS], force_conflicts=True
    )
    folders = [Path("/usr"), Path("/lib"), Path("/lib64"), files.SOURCES, files.BROUGHT, files.SCRIPTS]
    rights = ("DAC_OVERRIDE", "SYS_PTRACE", "SYS_ADMIN", "SYS_RESOURCE")
    command = str(files.SCRIPTS / "j10ce-agent")
    made = on_one_node(daemonset, node.name, cluster.server, command, folders, rights)
    kubectl.run("create", "-f", "-", stdin=as_list([made]))
    try:
        roll_out(cluster)
        until(
            lambda: by_nri(kubectl, node.name),
            "connected by NRI",
            SECONDS,
            partial(kubectl.run, "get", "nodeqos", "-o", "yaml"),
        )
        keeps_the_floor(node, kubectl)
        assert restore_nodes(kubectl, int(SECONDS)) == []
        assert int(now(kubectl)) == OF_KUBELET
        for _ in range(3):  # systemd writes what it was told, as at an upgrade of packages
            node.run(["systemctl", "daemon-reload"]).succeeded()
        assert int(now(kubectl)) == OF_KUBELET
    finally:
        kubectl.run("delete", "daemonset", ACCOUNT, *SCOPE, "--cascade=foreground", "--timeout=200s")


def keeps_the_floor(node: SystemdNode, kubectl: Kubectl) -> None:
    """From the container's first instruction; what it delivers beside others: the last test."""
    own = start(kubectl, floored(node.name, WEIGHT, FLOOR))["floored"].container
    until(partial(born, kubectl), "the container says what it was born with", SECONDS)
    reports = partial(kubectl.run, "get", "nodeqos", "-o", "yaml")
    until(lambda: applied(kubectl, node.name) == 1, "its settings are applied", SECONDS, reports)
    assert int(value(node, own)) == int(born(kubectl)) > OF_KUBELET


def born(kubectl: Kubectl) -> str:
    return kubectl.run("logs", "floored", "-n", "default").strip()


def now(kubectl: Kubectl) -> str:
    return kubectl.run("exec", "floored", "-n", "default", "--", "cat", f"/sys/fs/cgroup/{WEIGHT}").strip()


def busy(name: str, node: str, **resources: Any) -> dict[str, Any]:
    """A pod that wants every CPU."""
    made = sleeping(name, node, **resources)
    loop = "while :; do :; done"
    made["spec"]["containers"][0]["command"] = ["/bin/sh", "-c", f"{loop} & {loop}"]
    return made


def used(node: SystemdNode, pods: Mapping[str, There], *, host: bool = False) -> dict[str, int]:
    """Millicores of each pod while all of them want everything; their processes pinned to the CPUs evenly.

    host: something in system.slice does, too.
    """
    environ = {"PYTHONPATH": str(files.SOURCES)}
    for one in pods.values():
        argv = ["python3", "-B", "-m", "lab.node.demo_pod", one.container, one.uid, "-", "spread"]
        node.run(argv, environ=environ).succeeded()
    folders = [f"/sys/fs/cgroup{path}" for path in (one.container for one in pods.values())]
    if host:
        units = [f"lab-busy-{cpu}" for cpu in (0, 1)]
        for cpu, unit in enumerate(units):
            spin = ["taskset", "--cpu-list", str(cpu), "sh", "-c", "while :; do :; done"]
            node.run(["systemd-run", "--quiet", f"--unit={unit}", *spin]).succeeded()
        folders += [f"/sys/fs/cgroup/system.slice/{unit}.service" for unit in units]
    done = node.run(["python3", "-B", "-c", _MEASURE, *folders], environ=environ, seconds=400).succeeded()
    if host:
        node.run(["systemctl", "stop", *units]).succeeded()
    return {name: round(1000 * cpus) for name, cpus in zip(pods, json.loads(done.stdout), strict=False)}


_MEASURE = """
import json, sys
from pathlib import Path
from lab.contention import measures
from lab.contention.groups import Group
print(json.dumps(measures.cpus_used([Group(Path(path)) for path in sys.argv[1:]], 2, cpu_seconds=10)))
"""


def test_nobody_falls_below_its_request_or_what_kubelet_alone_gives(
    node: SystemdNode, kubectl: Kubectl, rules: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """On two CPUs, everything busy, a floor of 300m among it; the pods alone, then system.slice, too."""
    requests = {"floored": FLOOR, "half": "500m", "small": "100m", "none": ""}
    wanted = []
    for name, cpu in requests.items():
        wanted.append(busy(name, node.name, **({"requests": {"cpu": cpu}} if cpu else {})))
        wanted[-1]["metadata"]["labels"] = {"app": name}
    pods = start(kubectl, *wanted)
    kubelets = [used(node, pods), used(node, pods, host=True)]
    node.run(["systemctl", "start", "j10ce-agent"]).succeeded()
    journal = partial(node.journal, "j10ce-agent")
    until(lambda: reported(kubectl, node.name), "it has planned the pod", SECONDS, journal)
    ours = [used(node, pods), used(node, pods, host=True)]
    node.run(["systemctl", "stop", "j10ce-agent"]).succeeded()
    removed(kubectl, *wanted)
    rows = [
        ("pod", "request", "kubelet alone", "with us", "kubelet, host busy", "with us, host busy"),
        ("---",) * 6,
    ]
    for name, cpu in requests.items():
        got = [f"{one[name]}m" for pair in zip(kubelets, ours, strict=True) for one in pair]
        rows.append((name, cpu or "-", *got))
    with capsys.disabled():
        sys.stdout.write("\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows))
    for name, cpu in requests.items():
        for before, after in zip(kubelets, ours, strict=True):
            asked = int(cpu.removesuffix("m") or 0)
            assert after[name] >= NEARLY * min(asked, before[name]), (name, kubelets, ours)


def reported(kubectl: Kubectl, node: str) -> bool:
    """Whether the agent has planned the floor's pod."""
    policies = status(kubectl, node).get("policies", ())
    return any(one["policy"] == "default/floored" and one["pods"] for one in policies)
