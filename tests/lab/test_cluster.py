"""What can be said of a lab cluster without starting one."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest

from lab import cluster as lab_cluster
from lab import kwok, ports, processes
from lab.binaries import NAMES, Binaries
from lab.cluster import Cluster, LabError
from lab.extender_process import ExtenderProcess, extender_argv
from lab.nodes import node, nodes

PORTS = {name: number for number, name in enumerate(lab_cluster._PORT_NAMES, start=20_000)}


def a_cluster(folder: Path) -> Cluster:
    return Cluster("one", folder, ("kubectl",), {}, PORTS)


def option(argv: list[str], flag: str) -> str:
    return argv[argv.index(flag) + 1]


def test_command_line_with_our_own_programs(tmp_path: Path) -> None:
    binaries = Binaries({name: Path("/bin") / name for name in NAMES}, "test")
    argv = kwok.create_argv(
        tmp_path / "one", PORTS, binaries, {"B": False, "A": True}, qps_limits=False, seconds=90
    )
    assert argv[:7] == ["/bin/kwokctl", "create", "cluster", "--name", "one", "--runtime", "binary"]
    assert option(argv, "--kube-scheduler-binary") == "/bin/kube-scheduler"
    assert option(argv, "--kwok-controller-binary") == "/bin/kwok"
    assert option(argv, "--kubeconfig") == str(tmp_path / "one" / "kubeconfig")
    assert option(argv, "--kube-apiserver-port") == str(PORTS["kube-apiserver"])
    assert option(argv, "--kube-feature-gates") == "A=true,B=false"
    assert option(argv, "--wait") == "90s"
    assert "--disable-qps-limits" in argv


def test_command_line_that_lets_kwokctl_download(tmp_path: Path) -> None:
    binaries = Binaries({"kwokctl": Path("/bin/kwokctl")}, "download")
    argv = kwok.create_argv(tmp_path, PORTS, binaries, {}, qps_limits=True, seconds=90)
    assert not [word for word in argv if word.endswith("-binary")]
    assert "--kube-feature-gates" not in argv
    assert "--disable-qps-limits" not in argv


@pytest.mark.parametrize("name", ["", "Upper", "-a", "a-", "a/b", "..", "a" * 41])
def test_bad_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(LabError, match="cluster name"):
        lab_cluster._new_folder(name, tmp_path)
    with pytest.raises(LabError, match="there is no lab cluster"):
        lab_cluster.down(name, root=tmp_path)


def test_a_name_is_taken_once(tmp_path: Path) -> None:
    lab_cluster._new_folder("one", tmp_path)
    with pytest.raises(LabError, match=r"'one' exists: take it down first .j10ce lab down --name one"):
        lab_cluster._new_folder("one", tmp_path)


def test_down_names_what_runs(tmp_path: Path) -> None:
    record(tmp_path, "two", "")
    with pytest.raises(LabError, match="there is no lab cluster 'one'; running: two"):
        lab_cluster.down("one", root=tmp_path)


def record(root: Path, name: str, owner: str) -> Path:
    folder = root / name
    folder.mkdir()
    text = json.dumps({"kubectl": ["kubectl"], "versions": {}, "ports": PORTS, "owner": owner})
    (folder / "cluster.json").write_text(text)
    return folder


def test_clusters_whose_owner_is_gone_are_removed(tmp_path: Path) -> None:
    me = f"{os.getpid()} {processes.start_time(os.getpid())}"
    record(tmp_path, "kept", "")
    record(tmp_path, "mine", me)
    gone = record(tmp_path, "gone", f"{os.getpid()} 1")  # this pid, at another time: another process
    assert [one.name for one in lab_cluster.clusters(root=tmp_path)] == ["kept", "mine"]
    assert not gone.exists()


def test_a_half_written_record_is_passed_over(tmp_path: Path) -> None:
    (record(tmp_path, "one", "") / "cluster.json").write_text("{")
    assert lab_cluster.clusters(root=tmp_path) == []


def test_root_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert lab_cluster.default_root() == tmp_path / "j10ce" / "lab"
    monkeypatch.delenv("XDG_STATE_HOME")
    assert lab_cluster.default_root() == Path.home() / ".local" / "state" / "j10ce" / "lab"


def test_the_start_that_fails_leaves_nothing(tmp_path: Path) -> None:
    program = tmp_path / "kwokctl"
    program.write_text(
        '#!/bin/sh\ncase "$1" in create) echo "ERROR no etcd"; exit 1;; *) echo v1.0.0;; esac\n'
    )
    program.chmod(0o755)
    with pytest.raises(LabError, match="kwokctl could not start cluster one: ERROR no etcd"):
        lab_cluster.up("one", binaries=Binaries({"kwokctl": program}, "test"), root=tmp_path / "root")
    assert list((tmp_path / "root").iterdir()) == []


def test_extender_command_line() -> None:
    argv = extender_argv(Path("/bin/j10ce-extender"), Path("/k"), 1, 2, "strict", ["--no-bind"])
    assert argv == [
        *("/bin/j10ce-extender", "--kubeconfig", "/k", "--mode", "Strict"),
        *("--verbs-address", "127.0.0.1:1", "--address", "127.0.0.1:2", "--no-bind"),
    ]


def test_an_extender_that_ended_is_not_waited_for(tmp_path: Path) -> None:
    extender = ExtenderProcess(tmp_path, verbs_port=1, port=ports.reserve(tmp_path)[0])
    lab_cluster.components.add(tmp_path, extender.name, ["/bin/true"])
    with pytest.raises(LabError, match="j10ce-extender ended before it was ready: no log"):
        extender.wait_ready(60)


def test_nodes() -> None:
    made = nodes(
        "node", 11, {"cpu": "4"}, labels={"zone": "a"}, taints=[{"key": "k", "effect": "NoSchedule"}]
    )
    assert [one["metadata"]["name"] for one in made][::10] == ["node-00", "node-10"]
    assert made[0]["status"]["allocatable"]["cpu"] == "4"
    assert made[0]["status"]["capacity"]["pods"] == "110"
    assert made[0]["metadata"]["labels"]["zone"] == "a"
    assert made[0]["spec"]["taints"] == [{"key": "k", "effect": "NoSchedule"}]
    assert node("x")["spec"] == {}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"kubectl": Path("/bin/kubectl")}, ("/bin/kubectl", "--kubeconfig={folder}/kubeconfig")),
        ({}, ("/bin/kwokctl", "--name", "one", "kubectl")),
    ],
    ids=["ours", "kwokctl's"],
)
def test_which_kubectl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, Path], expected: tuple[str, ...]
) -> None:
    monkeypatch.setattr(Binaries, "versions", lambda _: {})
    binaries = Binaries({"kwokctl": Path("/bin/kwokctl")} | files, "test")
    made = lab_cluster._plan("one", tmp_path, binaries, keep=True)
    assert made.kubectl_argv == tuple(word.format(folder=tmp_path) for word in expected)
    assert lab_cluster._read(tmp_path / "cluster.json") == dataclasses.replace(made, name=tmp_path.name)
