"""What all pods weigh on a systemd node: what each receives beside a busy host, and who writes the weight."""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from cli.kubectl import Kubectl, as_list, find
from lab.binaries import silent
from lab.cluster import Cluster
from lab.node.systemd import files
from lab.node.systemd.node import SystemdNode, systemd_node
from qos.pods.containers import GUARANTEED
from tests.cluster.floored import policy, status
from tests.cluster.on_systemd import (
    ALL_PODS,
    MANAGERS,
    There,
    agent_ends,
    agent_starts,
    removed,
    sleeping,
    start,
    until_there,
    value,
)
from tests.qos import full_node
from tests.qos.full_node import BESIDE, FLOOR, FLOORED, KINDS, Kind

pytestmark = [
    pytest.mark.runtime,  # with those that have the machine to themselves: the VM takes all of it
    pytest.mark.full,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.geteuid() != 0, reason="the node's network device needs root"),
]

SHARES = "J10CE_NODE_SHARES"
KUBELETS = "59"
"""kubelet's weight for 1500m."""
THEIRS = "40"
"""Of an administrator who tells systemd; 79 and more would be all of two CPUs, and nothing reserved."""
NEARLY = 0.9
"""What the scheduler's moving of work between CPUs may cost on a busy machine."""
LITTLE = 6
"""Millicores by which the share of a pod of weight 1 may be measured wrong."""


@pytest.fixture(scope="module")
def node(cluster: Cluster) -> Iterator[SystemdNode]:
    with systemd_node(cluster, silent, f"systemd-{secrets.token_hex(2)}", kubelet=MANAGERS) as made:
        yield made


@pytest.fixture(scope="module")
def kubectl(cluster: Cluster) -> Kubectl:
    return find(os.environ, cluster.kubeconfig, "")


@pytest.fixture
def agent(node: SystemdNode) -> Iterator[None]:
    """What a test leaves is put back."""
    yield
    agent_ends(node)
    node.run(["/opt/j10ce/bin/j10ce", "node", "restore"]).succeeded()


def pods_of(kind: Kind, node: SystemdNode) -> list[dict[str, Any]]:
    resources: dict[str, Any] = {"requests": {"cpu": f"{kind.cpu}m"}} if kind.cpu else {}
    if kind.qos == GUARANTEED:
        resources = {"limits": {"cpu": f"{kind.cpu}m", "memory": "32Mi"}}
    made = [sleeping(name, node.name, **resources) for name in kind.names]
    for pod in made:
        labels = {"app": "floored"} if kind.name == FLOORED else {}
        pod["metadata"] |= {"namespace": kind.namespace, "labels": labels}
    return made


def received(node: SystemdNode, pods: Mapping[str, There]) -> dict[str, int]:
    """Millicores by kind, and of what is beside all pods, while all want every CPU."""
    names = {name: one.path for name, one in pods.items()} | {name: f"/{name}" for name in BESIDE}
    busy = [one.container for one in pods.values()] + [f"/{name}/{_unit(name)}" for name in BESIDE]
    environ = {"PYTHONPATH": str(files.SOURCES)}
    argv = ["python3", "-B", "-c", _MEASURE, json.dumps(busy), json.dumps(list(names.values()))]
    got = dict(
        zip(names, json.loads(node.run(argv, environ=environ, seconds=400).succeeded().stdout), strict=True)
    )
    by_kind = {one.name: sum(got[name] for name in one.names) / one.count for one in KINDS}
    return {name: round(1000 * cpus) for name, cpus in (by_kind | {one: got[one] for one in BESIDE}).items()}


_MEASURE = """
import json, os, sys
from pathlib import Path
from lab.contention import measures
from lab.contention.groups import Group
from lab.contention.work import Load
groups = lambda word: [Group(Path("/sys/fs/cgroup" + path)) for path in json.loads(word)]
busy, measured = map(groups, sys.argv[1:])
load, cpus = Load(), os.cpu_count()
try:
    for group in busy:
        load.spin(group, cpus)
    print(json.dumps(measures.cpus_used(measured, cpus, cpu_seconds=20)))
finally:
    load.end()
"""


def _unit(name: str) -> str:
    return f"lab-{name.removesuffix('.slice')}.service"


@pytest.fixture
def host(node: SystemdNode) -> Iterator[None]:
    """A service in each slice beside all pods."""
    for name in BESIDE:
        argv = ["systemd-run", "--quiet", f"--unit={_unit(name)}", f"--slice={name}", "sleep", "infinity"]
        node.run(argv).succeeded()
    yield
    node.run(["systemctl", "stop", *map(_unit, BESIDE)]).succeeded()


def test_each_pod_receives_what_the_plan_says_and_nobody_falls_below_its_request(
    node: SystemdNode, kubectl: Kubectl, agent: None, host: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """With kubelet alone, with the administrator's choice, and with the floor, too: see docs/plan.md."""
    wanted = [pod for kind in KINDS for pod in pods_of(kind, node)]
    pods = start(kubectl, *wanted)
    assert value(node, ALL_PODS) == KUBELETS
    columns = [received(node, pods)]
    agent_starts(node, **{SHARES: "Allocatable"})
    until_there(node, lambda: value(node, ALL_PODS) != KUBELETS, "all pods have the administrator's weight")
    columns.append(received(node, pods))
    floored = pods[FLOORED].path
    kubelets = value(node, floored)
    kubectl.run("create", "-f", "-", stdin=as_list([policy(f"{FLOOR}m")]))
    until_there(node, lambda: value(node, floored) != kubelets, "the floor's weight is written")
    columns.append(received(node, pods))
    kubectl.run("delete", "mrp/floored", "-n", "default")
    removed(kubectl, *wanted)
    found = {name: [column[name] for column in columns] for name in columns[0]}
    with capsys.disabled():
        sys.stdout.write(f"\n{full_node.table(found)}\n")
    expected = full_node.on_the_page()
    for name, got in found.items():
        assert got == [pytest.approx(one, rel=1 - NEARLY, abs=LITTLE) for one in expected[name]], name
    for one in KINDS:
        assert found[one.name][-1] >= NEARLY * min(one.cpu, found[one.name][0])
    assert found[FLOORED][0] < FLOOR / 2 < FLOOR <= found[FLOORED][-1]


@pytest.fixture
def any_pod(node: SystemdNode, kubectl: Kubectl) -> Iterator[None]:
    """Without a pod nothing weighs all pods."""
    pod = sleeping("any", node.name)
    start(kubectl, pod)
    yield
    removed(kubectl, pod)


def test_the_weight_of_all_pods_outlives_what_systemd_and_kubelet_write(
    node: SystemdNode, kubectl: Kubectl, any_pod: None, agent: None
) -> None:
    agent_starts(node, **{SHARES: "Allocatable"})
    until_there(node, lambda: value(node, ALL_PODS) != KUBELETS, "the administrator's weight")
    ours = value(node, ALL_PODS)
    assert int(ours) > 5 * int(KUBELETS)
    node.run(["systemctl", "daemon-reload"]).succeeded()
    until_there(node, lambda: value(node, ALL_PODS) == ours, "it is there after a reload")
    before = repaired(kubectl, node)
    node.run(["systemctl", "set-property", "--runtime", "kubepods.slice", f"CPUWeight={THEIRS}"]).succeeded()
    until_there(
        node, lambda: value(node, ALL_PODS) not in (KUBELETS, THEIRS), "what systemd wrote is repaired"
    )
    until_there(node, lambda: repaired(kubectl, node) > before, "and reported")
    agent_starts(node, **{SHARES: "Kubelet"})
    until_there(node, lambda: value(node, ALL_PODS) == THEIRS, "without the choice it has systemd's")
    agent_starts(node, **{SHARES: "Allocatable"})
    until_there(node, lambda: int(value(node, ALL_PODS)) > int(KUBELETS), "it is chosen again")
    node.run(["systemctl", "restart", "kubelet"]).succeeded()
    until_there(node, lambda: systemds(node) == KUBELETS, "kubelet has said its own")
    until_there(node, lambda: int(value(node, ALL_PODS)) > int(KUBELETS), "and that is repaired")
    agent_ends(node)
    assert int(value(node, ALL_PODS)) > int(KUBELETS), "ending undoes nothing"
    node.run(["/opt/j10ce/bin/j10ce", "node", "restore"]).succeeded()
    assert value(node, ALL_PODS) == KUBELETS


def systemds(node: SystemdNode) -> str:
    """The weight that systemd was told for all pods."""
    argv = ["systemctl", "show", "--value", "--property=CPUWeight", "kubepods.slice"]
    return node.run(argv).succeeded().stdout.strip()


def repaired(kubectl: Kubectl, node: SystemdNode) -> int:
    """How many repairs of the last hour the node reports."""
    return int(status(kubectl, node.name).get("drift", {}).get("repairedLastHour", 0))
