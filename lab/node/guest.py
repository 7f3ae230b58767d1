"""A real node inside the test VM, on cgroup v2: what lab/node/twin.py runs there as root.

Run as `python3 -m lab.node.guest FILE`; FILE is JSON: the cluster's name, its API server's port, the node's
name. The cluster's certificates lie beside it. The node stays until the machine is killed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from lab import components
from lab.cluster import Cluster
from lab.node import rig
from lab.node.settings import Programs
from lab.runtimes.programs import require

PKI = ("ca.crt", "admin.crt", "admin.key")
MACHINE = "10.0.2.2"
"""What QEMU's user network calls the machine outside: its loopback."""
_FOLDER = Path("/tmp/lab")  # noqa: S108 - the guest has one user


def main() -> None:
    """Make the cluster's folder, reach its API server, start the node, stay."""
    file = Path(sys.argv[1])
    asked = json.loads(file.read_text())
    cluster = _cluster(file.parent, asked["cluster"], asked["port"])
    _relay(asked["port"])
    programs = Programs(file.parent / "node", file.parent / "kubelet", require("runc"))
    node = rig.start(cluster, asked["node"], programs=programs)
    sys.stdout.write(f"{node.name} is ready\n")
    sys.stdout.flush()
    while True:
        time.sleep(3600)


def _cluster(brought: Path, name: str, port: int) -> Cluster:
    """The cluster as the guest sees it: certificates, and a kubeconfig for the address it has here, too."""
    folder = _FOLDER / name
    pki = components.kwok_folder(folder) / "pki"
    pki.mkdir(parents=True)
    for one in PKI:
        shutil.copy(brought / one, pki / one)
    kubectl = (str(brought / "kubectl"), f"--kubeconfig={folder / 'kubeconfig'}")
    cluster = Cluster(name, folder, kubectl, {}, {"kube-apiserver": port})
    user = {"client-certificate": str(pki / "admin.crt"), "client-key": str(pki / "admin.key")}
    server = {"server": cluster.server, "certificate-authority": str(pki / "ca.crt")}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": server}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    cluster.kubeconfig.write_text(json.dumps(document))
    return cluster


def _relay(port: int) -> None:
    """The API server's port on the guest's loopback, too: its certificate names that address."""
    ready = _FOLDER / "relay.ready"
    argv = [sys.executable, "-m", "lab.node.relay", str(ready), "1", str(port), MACHINE]
    relay = subprocess.Popen(argv)
    while not ready.exists() and relay.poll() is None:
        time.sleep(0.05)


if __name__ == "__main__":
    main()
