"""A real node beside the lab's control plane: pods run on it, programs run in it, nothing of it stays."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path

import pytest

from lab import cluster as lab_cluster
from lab import processes
from lab.cluster import Cluster, LabError
from lab.node.node import RealNode, nodes
from lab.node.rig import real_node
from lab.runtimes.cgroups import hierarchies
from lab.runtimes.images import BUSYBOX
from tests.waiting import until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="a real node needs cgroups, namespaces and mounts: be root"),
]

J10CE = Path(sysconfig.get_path("scripts")) / "j10ce"


def pod(name: str, node: str, script: str, cpu: str = "200m") -> str:
    container = {
        "name": "main",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", script],
        "resources": {"requests": {"cpu": cpu, "memory": "16Mi"}},
    }
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def run_pod(cluster: Cluster, name: str, node: str, script: str = "exec sleep 100000") -> str:
    """A pod that runs; its uid."""
    cluster.kubectl("create", "--filename=-", stdin=pod(name, node, script))
    cluster.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=150s", seconds=180)
    return cluster.kubectl("get", "pod", name, "--output=jsonpath={.metadata.uid}")


@pytest.fixture(scope="module")
def node(cluster: Cluster) -> Iterator[RealNode]:
    with real_node(cluster, f"real-{secrets.token_hex(2)}") as made:
        yield made


def test_a_container_sees_its_own_cgroup_first(cluster: Cluster, node: RealNode) -> None:
    uid = run_pod(cluster, "first", node.name, "cat /sys/fs/cgroup/cpu/cpu.shares; exec sleep 100000")
    until(lambda: cluster.kubectl("logs", "first"), "the container has said what it saw")
    assert cluster.kubectl("logs", "first") == "204\n"  # 200m
    folder = node.cgroup.folder("cpu", "kubepods", "burstable", f"pod{uid}")
    assert (folder / "cpu.shares").read_text() == "204\n"
    cluster.kubectl(
        "patch", "pod", "first", "--subresource=resize",
        "--patch", '{"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "300m"}}}]}}',
    )  # fmt: skip
    until(lambda: (folder / "cpu.shares").read_text() == "307\n", "kubelet has resized the pod in place")
    assert cluster.kubectl("exec", "first", "--", "cat", "/etc/hostname") == "first\n"


def test_kwok_leaves_it_alone(cluster: Cluster, node: RealNode) -> None:
    version = "jsonpath={.status.nodeInfo.kubeletVersion}"
    assert cluster.kubectl("get", "node", node.name, f"--output={version}") == "v1.36.3"
    found = json.loads(cluster.kubectl("get", "node", node.name, "--output=json"))
    assert not [key for key in found["metadata"].get("annotations", {}) if "kwok" in key]
    assert found["status"]["addresses"][0] == {"type": "InternalIP", "address": node.address}


def test_programs_run_in_its_namespaces_and_cgroup(cluster: Cluster, node: RealNode) -> None:
    code = (
        "import os, pathlib, socket, sys; from adapters.kubernetes import credentials;"
        "print(socket.gethostname(), pathlib.Path(sys.argv[1]).is_socket(),"
        " pathlib.Path('/sys/fs/cgroup/cpu/kubepods/cpu.shares').exists());"
        "print(pathlib.Path('/proc/self/cgroup').read_text()); pathlib.Path('/run/j10ce').mkdir()"
    )
    done = node.run([sys.executable, "-c", code, node.nri_socket]).succeeded()
    first, *cgroups = done.stdout.split()
    assert first == node.name
    assert cgroups[:2] == ["True", "True"]
    mounted = hierarchies(Path("/proc/self/mountinfo").read_text())
    lines = [line.split(":", 2) for line in cgroups[2:]]
    places = {name: place for _, names, place in lines for name in names.split(",")}
    assert {places[name] for name in mounted} == {"/system"}
    assert node.outside("/run/j10ce").is_dir()
    assert not Path("/run/j10ce/real").exists()
    kubectl = node.run([cluster.kubectl_argv[0], f"--kubeconfig={node.kubeconfig}", "get", "--raw=/readyz"])
    assert kubectl.succeeded().stdout == "ok"


def test_signals_reach_a_program(node: RealNode) -> None:
    script = 'trap "echo ended; exit 3" TERM; echo begun; while :; do sleep 0.05; done'
    with node.popen(["sh", "-c", script], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "begun\n"
        child.terminate()
        assert child.stdout.read() == "ended\n"
    assert child.returncode == 3


def test_containers_outlive_kubelet_and_containerd(cluster: Cluster, node: RealNode) -> None:
    uid = run_pod(cluster, "lives", node.name)
    folder = node.cgroup.folder("cpu", "kubepods", "burstable", f"pod{uid}")
    before = {path: path.read_text() for path in folder.glob("*/cgroup.procs")}
    assert len(before) == 2  # the container and the sandbox
    for daemon in ("kubelet", "containerd"):
        node.kill(daemon)
        assert node.pid(daemon) is None
    for daemon in ("containerd", "kubelet"):
        node.start(daemon)
    run_pod(cluster, "after", node.name)
    assert {path: path.read_text() for path in folder.glob("*/cgroup.procs")} == before


def left_of(node: RealNode) -> list[str]:
    """What there still is of a node outside its own namespaces."""
    found = [
        str(mount) + node.cgroup.name
        for mount in hierarchies(Path("/proc/self/mountinfo").read_text()).values()
    ]
    found = [one for one in found if Path(one).exists()]
    addresses = subprocess.run(["ip", "route"], capture_output=True, text=True, check=True).stdout
    subnet = ip_network(f"{node.address}/30", strict=False)  # another node may have the one beside
    found += [line for line in addresses.splitlines() if line.startswith(f"{subnet} ")]
    found += [
        line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(node.folder) in line
    ]
    found += [str(pid) for pid in processes.of_folder(node.folder)]
    return found + ([str(node.folder)] if node.folder.exists() else [])


def test_nothing_is_left_of_it(cluster: Cluster) -> None:
    with real_node(cluster, "short") as node:
        run_pod(cluster, "short", node.name)
        assert len(left_of(node)) > 3
        with pytest.raises(LabError, match="has a real node 'short' already"), real_node(cluster, "short"):
            pass
    until(lambda: left_of(node) == [], "all is removed")
    assert not cluster.kubectl("get", "node", "short", "--ignore-not-found")


def test_nothing_is_left_when_its_owner_is_killed(cluster: Cluster) -> None:
    code = (
        "import sys, time\n"
        "from lab import cluster\n"
        "from lab.node.rig import real_node\n"
        "(found,) = [one for one in cluster.clusters() if one.name == sys.argv[1]]\n"
        "with real_node(found, 'orphan'):\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(600)\n"
    )
    argv = [sys.executable, "-c", code, cluster.name]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as owner:
        try:
            assert owner.stdout is not None
            assert owner.stdout.readline() == "ready\n"
            (node,) = (one for one in nodes(cluster) if one.name == "orphan")
            run_pod(cluster, "orphan", node.name)
        finally:
            owner.send_signal(signal.SIGKILL)
    until(lambda: left_of(node) == [], "all is removed")
    cluster.kubectl("delete", "pod,node", "orphan", "--ignore-not-found", "--force", "--grace-period=0")


@pytest.mark.timeout(900)
def test_the_command_adds_one_and_enters_it(tmp_path: Path) -> None:
    environ = os.environ | {"XDG_STATE_HOME": str(tmp_path)}

    def j10ce(*arguments: str) -> str:
        argv = [str(J10CE), "lab", *arguments]
        done = subprocess.run(argv, env=environ, stdout=subprocess.PIPE, text=True, timeout=400, check=True)
        return done.stdout

    j10ce("up", "--nodes", "0", "--extender", "none", "--real-node")
    try:
        (cluster,) = lab_cluster.clusters(root=tmp_path / "j10ce" / "lab")
        (node,) = nodes(cluster)
        (status,) = json.loads(j10ce("status", "--output", "json"))
        assert all(status["realNodes"]["real-1"]["daemons"].values())
        assert j10ce("run", "hostname") == "real-1\n"
    finally:
        j10ce("down")
    until(lambda: left_of(node) == [], "all is removed")
