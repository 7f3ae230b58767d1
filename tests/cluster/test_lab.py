"""The lab itself: clusters side by side, components killed and started, nothing left behind."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab import cluster as lab_cluster
from lab import processes, scheduler_config
from lab.binaries import Binaries
from lab.cluster import Cluster
from lab.nodes import node
from tests.waiting import until

pytestmark = pytest.mark.cluster

J10CE = Path(sysconfig.get_path("scripts")) / "j10ce"
PARTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok-controller")


def gone(folder: Path) -> bool:
    return not folder.exists() and not list(processes.started_from(folder))


def test_serves_our_kinds_and_a_node_becomes_ready(cluster: Cluster) -> None:
    assert "mrp" in cluster.kubectl("api-resources", "--api-group=j10ce.io")
    assert all(cluster.alive(part) for part in PARTS)
    assert cluster.versions["kube-apiserver"] in cluster.kubectl("version")


def test_listens_on_the_loopback_only(cluster: Cluster) -> None:
    ports = {f"{port:04X}" for port in cluster.ports.values()}

    def ours() -> list[str]:
        """Addresses of those that listen on the cluster's ports."""
        lines = [
            line.split()
            for name in ("tcp", "tcp6")
            for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
        ]
        return [line[1] for line in lines if line[3] == "0A" and line[1].rpartition(":")[2] in ports]

    until(lambda: len(ours()) >= len(PARTS), "every part listens")
    assert {address.rpartition(":")[0] for address in ours()} <= {"0100007F", "0" * 24 + "01000000"}


def test_clusters_side_by_side_leave_nothing(binaries: Binaries, tmp_path: Path) -> None:
    names = [f"side-{secrets.token_hex(3)}" for _ in range(2)]
    made: list[Cluster] = []

    def up(name: str) -> None:
        made.append(lab_cluster.up(name, binaries=binaries, root=tmp_path))

    threads = [threading.Thread(target=up, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.name for one in lab_cluster.clusters(root=tmp_path)] == sorted(names)
    ports = [port for one in made for port in one.ports.values()]
    assert len(set(ports)) == len(ports)
    for one in made:
        one.kubectl("create", "namespace", f"only-{one.name}")
    for one in made:
        assert one.kubectl("get", "namespaces").count("only-") == 1
        lab_cluster.down(one.name, root=tmp_path)
        assert gone(one.folder)
    assert list(tmp_path.iterdir()) == []


def test_a_component_is_killed_and_comes_back(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(crds=False)
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(node("n")))
    for part in ("etcd", "kube-apiserver", "kube-scheduler"):  # one that starts without an API server may end
        cluster.kill(part)
        assert not cluster.alive(part)
        cluster.start(part)
        assert cluster.alive(part)
        until(lambda: "ok" in cluster.kubectl("get", "--raw=/readyz", check=False), "API server is ready")
    cluster.kubectl(
        "run", "one", "--image=none", "--overrides", '{"spec":{"automountServiceAccountToken":false}}'
    )
    cluster.kubectl("wait", "--for=condition=Ready", "pod/one", "--timeout=60s", seconds=90)


def test_a_controller_manager_that_gave_up_is_started_again(
    make_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a slow machine it ends before the API server is healthy."""
    create = lab_cluster._create

    def without(cluster: Cluster, *arguments: Any, **options: Any) -> None:
        create(cluster, *arguments, **options)
        cluster.kill("kube-controller-manager")

    monkeypatch.setattr(lab_cluster, "_create", without)
    assert make_cluster().alive("kube-controller-manager")


def test_a_second_scheduler_binds_its_own_pods(make_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = make_cluster(crds=False)
    config = tmp_path / "second.yaml"
    scheduler_config.write(scheduler_config.empty() | {"profiles": [{"schedulerName": "second"}]}, config)
    name = lab_cluster.add_scheduler(cluster, "second-scheduler", config)
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(node("n")))
    cluster.kubectl("run", "one", "--image=none", "--overrides", '{"spec":{"schedulerName":"second"}}')
    cluster.kubectl("wait", "--for=condition=Ready", "pod/one", "--timeout=60s", seconds=90)
    assert cluster.alive(name)


def heed_interrupts() -> None:
    """A test run in the background of a script ignores SIGINT, and its children would inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda sig: sig.name)
def test_a_start_that_is_cut_short_leaves_nothing(tmp_path: Path, sig: signal.Signals) -> None:
    name = f"cut-{secrets.token_hex(3)}"
    environ = os.environ | {"XDG_STATE_HOME": str(tmp_path)}
    argv = [J10CE, "lab", "up", "--name", name, "--extender", "none"]
    folder = tmp_path / "j10ce" / "lab" / name
    with subprocess.Popen(
        argv, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=heed_interrupts
    ) as child:
        until(lambda: any(processes.started_from(folder)), "a component runs")
        child.send_signal(sig)
    assert child.returncode != 0
    until(lambda: gone(folder), "all is removed")


def test_a_temporary_cluster_goes_with_its_killed_owner(binaries: Binaries, tmp_path: Path) -> None:
    code = (
        "import os, sys, signal\n"
        "from pathlib import Path\n"
        "from lab import binaries, cluster\n"
        "cluster.up('owned', binaries=binaries.provide(os.environ), root=Path(sys.argv[1]), crds=False)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False, timeout=200)
    assert done.returncode == -signal.SIGKILL
    until(lambda: gone(tmp_path / "owned"), "all is removed")


def test_the_command_starts_lists_and_ends(tmp_path: Path) -> None:
    environ = os.environ | {"XDG_STATE_HOME": str(tmp_path)}

    def j10ce(*arguments: str) -> str:
        argv = [J10CE, "lab", *arguments]
        return subprocess.run(
            argv, env=environ, stdout=subprocess.PIPE, text=True, timeout=200, check=True
        ).stdout

    assert j10ce("status") == "no lab cluster runs; start one: j10ce lab up\n"
    hint = j10ce("up", "--name", "one", "--nodes", "3")
    assert hint == j10ce("env", "--name", "one")
    nodes = subprocess.run(
        ["bash", "-euc", f"{hint}\nkubectl get nodes --output=name; echo $J10CE_EXTENDER"],
        env=environ, stdout=subprocess.PIPE, text=True, timeout=60, check=True,
    ).stdout.split()  # fmt: skip
    assert nodes[:-1] == ["node/node-0", "node/node-1", "node/node-2"]
    assert nodes[-1].startswith("http://127.0.0.1:")
    (one,) = lab_cluster.clusters(root=tmp_path / "j10ce" / "lab")
    assert one.kubectl("get", "nodes", "--output=name").split() == [
        "node/node-0",
        "node/node-1",
        "node/node-2",
    ]
    assert one.alive("j10ce-extender")
    assert "one" in j10ce("status")
    j10ce("down", "--name", "one")
    assert gone(one.folder)
