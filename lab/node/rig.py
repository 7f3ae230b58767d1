"""A real node that joins a lab cluster: started, ready, and gone without a trace.

Its folder lies in the cluster's, with its pid files, so it ends with the cluster; a temporary one ends with
the process that made it, even after kill -9 (lab/reaper.py). Needs root and a machine with cgroups.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import binaries, components, node_programs, ports, processes
from lab.cluster import Cluster, LabError
from lab.kwok import SERVICE
from lab.node import inside, mounts, network, remains, settings
from lab.node.node import SYSTEM, RealNode
from lab.node.settings import Access, Programs, Settings
from lab.only_one import Report
from lab.reaper import Reaper, remove
from lab.runtimes import images
from lab.runtimes.cgroups import Scratch, hierarchies
from lab.runtimes.programs import require

NAME = "real-1"
_NAMESPACES = ("--cgroup", "--mount", "--net", "--pid", "--uts", "--ipc")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class Options:
    """How a node differs from the usual one. kubelet: fields of its KubeletConfiguration.

    cni: the plugin that makes pods' networks, ptp or bridge.
    """

    kubelet: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    cni: str = "ptp"


@contextlib.contextmanager
def real_node(
    cluster: Cluster,
    name: str = NAME,
    *,
    programs: Programs | None = None,
    options: Options | None = None,
) -> Iterator[RealNode]:
    """A real node, Ready, for the time of the block; nothing of it stays. LabError, RuntimesError."""
    folder = _new_folder(cluster, name)
    reaper = Reaper(folder)
    try:
        node = _start(cluster, name, folder, programs or provide(), options or Options())
        yield node
    finally:
        remove(folder)
        reaper.dismiss()
        _forget(cluster, name)


def start(
    cluster: Cluster,
    name: str = NAME,
    *,
    programs: Programs | None = None,
    options: Options | None = None,
) -> RealNode:
    """A real node, Ready, that stays until stop() or until its cluster is taken down."""
    folder = _new_folder(cluster, name)
    try:
        return _start(cluster, name, folder, programs or provide(), options or Options())
    except BaseException:
        remove(folder)
        raise


def stop(node: RealNode) -> None:
    """Kill all of a node, remove what it left, and its Node object if the API server answers."""
    remove(node.folder)
    _forget(node.cluster, node.name)


def provide(report: Report = binaries.silent) -> Programs:
    """The node's programs, built where they are missing (about 3 minutes)."""
    return Programs(
        node_programs.provide(os.environ, report),
        node_programs.provide(os.environ, report, node_programs.KUBELET),
        require("runc"),
    )


def _new_folder(cluster: Cluster, name: str) -> Path:
    if os.geteuid() != 0:
        raise LabError("a real node needs cgroups, namespaces and mounts: run as root")
    folder = cluster.folder / remains.FOLDER / name
    try:
        folder.mkdir(parents=True, mode=0o700)
    except FileExistsError:
        raise LabError(f"cluster {cluster.name} has a real node {name!r} already") from None
    return folder


def _start(cluster: Cluster, name: str, folder: Path, programs: Programs, options: Options) -> RealNode:
    node = _namespaces(cluster, name, folder, programs, options)
    node.start("relay")
    node.start("containerd")
    machine = platform.machine()
    tar = images.archive(folder / "images.tar", _ARCHITECTURES.get(machine, machine))
    ctr: list[str | Path] = [programs.runtime / "ctr", "--namespace", "k8s.io"]
    node.run([*ctr, "images", "import", "--local", "--snapshotter", "native", tar]).succeeded()
    node.start("kubelet")
    node.wait_ready()
    return node


def _namespaces(cluster: Cluster, name: str, folder: Path, programs: Programs, options: Options) -> RealNode:
    """The node's cgroups, namespaces, mounts and network; its programs are described, not started."""
    found = hierarchies(Path("/proc/self/mountinfo").read_text())
    label = f"j10ce-{name}-{secrets.token_hex(3)}"
    (folder / remains.RECORD).write_text(json.dumps({"cgroup": f"/{label}"}))
    cgroup = Scratch("", found).make(label)
    wanted = Settings(
        name, programs, _access(cluster), kubelet=options.kubelet, labels=options.labels, cni=options.cni
    )
    for path, content in mounts.sysctl_files(folder).items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    steps = mounts.steps(name, folder, found)
    (folder / "mounts.json").write_text(json.dumps({"steps": steps, "files": settings.files(wanted)}))
    unshare: list[str | Path] = [require("unshare"), *_NAMESPACES, "--fork", "--kill-child", "--mount-proc"]
    argv = inside.joining(
        cgroup, [*unshare, sys.executable, "-I", "-m", "lab.node.first", folder / "mounts.json"]
    )
    outer = processes.spawn(argv, log=folder / "logs" / "first.log", pid_file=folder / "first.pid")
    node = RealNode(name, folder, cluster, outer, 0, cgroup, "", programs)
    node.wait((folder / "ready").exists, "first")
    (first,) = inside.children(outer)
    _make_room(cgroup, (outer, first))
    address = network.connect(first).node
    node = RealNode(name, folder, cluster, outer, first, cgroup, address, programs)
    _describe(node, wanted)
    return node


def _make_room(cgroup: Scratch, pids: Sequence[int]) -> None:
    """Move the first processes out of the node's root cgroup.

    In the unified hierarchy that comes before controllers are passed down: a busy cgroup that does so becomes
    threaded, and takes no process below.
    """
    system = Scratch(cgroup.path(SYSTEM), cgroup.mounts)
    for folder in system.folders():
        if (folder.parent / "cgroup.subtree_control").exists():
            folder.mkdir()
            _move(pids, folder)
    for folder in cgroup.make(SYSTEM).folders():
        _move(pids, folder)


def _move(pids: Sequence[int], folder: Path) -> None:
    for pid in pids:
        (folder / "cgroup.procs").write_text(str(pid))


def _describe(node: RealNode, wanted: Settings) -> None:
    """Record what the node runs: each daemon can be killed and started again, by whoever loads it."""
    port = str(node.cluster.ports["kube-apiserver"])
    relay = [
        sys.executable,
        "-I",
        "-m",
        "lab.node.relay",
        str(node.folder / "relay.ready"),
        str(node.first),
        port,
        ports.LOOPBACK,
        SERVICE,
    ]
    node.save(
        {
            "relay": relay,
            "containerd": node.argv([node.programs.runtime / "containerd"], mark="containerd"),
            "kubelet": node.argv(settings.kubelet_argv(wanted, node.address), mark="kubelet"),
        }
    )


def _access(cluster: Cluster) -> Access:
    pki = components.kwok_folder(cluster.folder) / "pki"
    return Access(cluster.server, pki / "ca.crt", pki / "admin.crt", pki / "admin.key")


def _forget(cluster: Cluster, name: str) -> None:
    """Remove the Node object; a control plane that is gone has none."""
    with contextlib.suppress(LabError, OSError):
        cluster.kubectl("delete", "node", name, "--ignore-not-found", check=False, seconds=60)
