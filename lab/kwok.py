"""kwokctl: what a control plane is created with, and how it is run."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab import components, minors, ports
from lab.binaries import Binaries
from lab.nodes import REAL

ADMINISTRATOR = "kwok-admin"
"""Who kwokctl's kubeconfig is."""
SERVICE = "10.0.0.1"
"""The address of Service kubernetes: the first of the range that kube-apiserver has by default."""


def environment(folder: Path) -> dict[str, str]:
    """kwokctl sees one cluster: its work folder is that cluster's."""
    return os.environ | {"KWOK_WORKDIR": str(folder)}


def kubeconfig(folder: Path) -> Path:
    """Where a cluster's kubeconfig is written: an administrator's."""
    return folder / "kubeconfig"


def scheduler_config(folder: Path) -> Path:
    """Where the cluster's kube-scheduler finds its configuration."""
    return folder / "kube-scheduler.yaml"


def create_argv(
    folder: Path,
    port: Mapping[str, int],
    binaries: Binaries,
    feature_gates: Mapping[str, bool],
    *,
    beta: bool = False,
    qps_limits: bool,
    seconds: float,
) -> list[str]:
    """Command line of `kwokctl create cluster`; a file that binaries lacks is downloaded by kwokctl.

    beta: switch on MutatingAdmissionPolicy, which requests are raised by.
    """
    argv = [
        *(str(binaries.kwokctl), "create", "cluster", "--name", folder.name, "--runtime", "binary"),
        *("--config", str(folder / "kwokctl.yaml")),
        *("--kubeconfig", str(kubeconfig(folder)), "--wait", f"{seconds:.0f}s"),
        *("--kube-scheduler-config", str(scheduler_config(folder))),
        *("--etcd-port", str(port["etcd"]), "--kube-apiserver-port", str(port["kube-apiserver"])),
        *("--kube-controller-manager-port", str(port["kube-controller-manager"])),
        *("--kube-scheduler-port", str(port["kube-scheduler"])),
        *("--controller-port", str(port["kwok-controller"])),
        *("--extra-args", "etcd=unsafe-no-fsync=true"),  # a throw-away store
        *("--extra-args", "kube-controller-manager=leader-elect=false"),
        *_beside_real_nodes(folder),
    ]
    for flag, path in binaries.flags().items():
        argv += [flag, str(path)]
    if beta:
        argv += ["--kube-runtime-config", f"{minors.BETA}=true"]
        feature_gates = {minors.BETA_GATE: True, **feature_gates}
    if feature_gates:
        gates = ",".join(f"{gate}={str(on).lower()}" for gate, on in sorted(feature_gates.items()))
        argv += ["--kube-feature-gates", gates]
    if not qps_limits:
        argv.append("--disable-qps-limits")
    return argv


def _beside_real_nodes(folder: Path) -> list[str]:
    """KWOK leaves nodes with a kubelet alone (lab/node), and the API server can talk to that kubelet.

    By a label selector, KWOK also passes over nodes that have no label at all: give a node by hand one, too.
    kwokctl 0.8.0 wants the first argument of each component before the second of any.
    """
    pki = components.kwok_folder(folder) / "pki"
    arguments = (
        "kwok-controller=manage-all-nodes=false",
        f"kube-apiserver=kubelet-client-certificate={pki / 'admin.crt'}",
        f"kwok-controller=manage-nodes-with-label-selector=!{REAL}",
        f"kube-apiserver=kubelet-client-key={pki / 'admin.key'}",
        "kube-apiserver=kubelet-preferred-address-types=InternalIP",
    )
    return [word for argument in arguments for word in ("--extra-args", argument)]


def create(
    folder: Path,
    port: Mapping[str, int],
    binaries: Binaries,
    feature_gates: Mapping[str, bool],
    *,
    beta: bool,
    qps_limits: bool,
    seconds: float,
) -> str:
    """Create the cluster of a folder's name and wait until it runs: "", or kwokctl's last words.

    port: by the names in lab/cluster.py. seconds: how long kwokctl waits; subprocess.TimeoutExpired when it
    takes much longer.
    """
    options: dict[str, Any] = {"bindAddress": ports.LOOPBACK, "etcdPeerPort": port["etcd-peer"]}
    options["kubeApiserverCertSANs"] = [SERVICE]  # pods of a real node come that way
    if binaries.downloads:  # else they would go with the cluster
        options["cacheDir"] = str(binaries.downloads)
    if binaries.fetched:
        options["kubeVersion"] = binaries.fetched
    config = {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokctlConfiguration",
        "options": options,
    }
    (folder / "kwokctl.yaml").write_text(json.dumps(config))  # JSON is YAML
    argv = create_argv(
        folder, port, binaries, feature_gates, beta=beta, qps_limits=qps_limits, seconds=seconds
    )
    log = folder / "kwokctl.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(argv, env=environment(folder), stdout=output, stderr=output) as child,
    ):
        (folder / "kwokctl.pid").write_text(str(child.pid))  # it would go on after us
        try:
            code = child.wait(timeout=seconds + 30)
        except BaseException:
            child.kill()
            raise
    return _last_words(log.read_text()) if code else ""


def _last_words(text: str) -> str:
    """The end of kwokctl's log: its last error, else its last lines."""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "ERROR" in line or "rror:" in line]
    return " | ".join((errors or lines)[-3:])[-2000:]
