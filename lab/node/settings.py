"""The settings of a real node's programs, as the files that lie where each program expects them. Pure.

Read in the sources of kubelet 1.36, containerd 2.3 (config version 4) and the CNI plugins 1.9.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.nodes import REAL
from lab.runtimes.containerd import UNUSED_PLUGINS, cri_settings

CONTAINERD = Path("/etc/containerd/config.toml")
CONTAINERD_SOCKET = Path("/run/containerd/containerd.sock")
NRI_SOCKET = Path("/var/run/nri/nri.sock")
KUBELET = Path("/etc/kubernetes/kubelet.yaml")
KUBELET_KUBECONFIG = Path("/etc/kubernetes/kubelet.conf")
STATIC_PODS = Path("/etc/kubernetes/manifests")
CNI = Path("/etc/cni/net.d/10-pods.conflist")
PODS_NETWORK = "10.85.0.0/22"
PODS = 300
"""More than any test wants; kubelet's own limit is 110."""

# Of its own, containerd drops an NRI plugin that is held up for 2 s: on a busy machine, anybody may be.
_CONTAINERD = """\
version = 4
disabled_plugins = [{disabled}]

{cri}[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = '{runc}'
SystemdCgroup = {systemd}
[plugins.'io.containerd.nri.v1.nri']
plugin_request_timeout = '60s'
"""


@dataclass(frozen=True, slots=True)
class Programs:
    """Where the node's programs are: folders of what lab.node_programs provides, and runc."""

    runtime: Path
    kubelet: Path
    runc: Path


@dataclass(frozen=True, slots=True)
class Access:
    """How a node reaches its API server: URL, the CA, and an administrator's certificate and key."""

    server: str
    authority: Path
    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Settings:
    """What can be chosen for a node. kubelet: fields that replace ours in its KubeletConfiguration.

    systemd: it makes the cgroups. cni: the plugin that makes pods' networks, ptp or bridge.
    """

    name: str
    programs: Programs
    access: Access
    snapshotter: str = "native"
    kubelet: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    systemd: bool = False
    cni: str = "ptp"


def files(settings: Settings) -> dict[str, str]:
    """Every settings file of a node: path as the node sees it -> content."""
    return {
        str(CONTAINERD): _containerd(settings),
        str(CNI): json.dumps(_network(settings.cni)),
        str(KUBELET): json.dumps(_kubelet(settings)),  # JSON is YAML
        str(KUBELET_KUBECONFIG): json.dumps(_kubeconfig(settings)),
        str(STATIC_PODS / ".keep"): "",
        "/etc/resolv.conf": "",
    }


def kubelet_argv(settings: Settings, address: str) -> list[str]:
    """Command line of kubelet; the address is the node's (kubelet refuses the loopback's)."""
    labels = {REAL: "true"} | dict(settings.labels)
    return [
        str(settings.programs.kubelet / "kubelet"),
        f"--config={KUBELET}",
        f"--kubeconfig={KUBELET_KUBECONFIG}",
        f"--hostname-override={settings.name}",
        f"--node-ip={address}",
        f"--node-labels={','.join(f'{key}={value}' for key, value in sorted(labels.items()))}",
    ]


def _containerd(settings: Settings) -> str:
    return _CONTAINERD.format(
        disabled=UNUSED_PLUGINS,
        cri=cri_settings(settings.snapshotter, settings.programs.kubelet),
        runc=settings.programs.runc,
        systemd=str(settings.systemd).lower(),
    )


def _network(plugin: str) -> dict[str, Any]:
    """A pair of devices a pod; no masquerading, so that no iptables are needed."""
    address = {
        "type": "host-local",
        "ranges": [[{"subnet": PODS_NETWORK}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"bridge": "cni0", "isGateway": True} if plugin == "bridge" else {}
    return {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [{"type": plugin, "ipMasq": False, "ipam": address, **bridge}],
    }


def _kubelet(settings: Settings) -> dict[str, Any]:
    """KubeletConfiguration (kubelet.config.k8s.io/v1beta1)."""
    signals = ("memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available")
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(settings.access.authority)},
        },
        "authorization": {"mode": "AlwaysAllow"},  # of those with a certificate: the API server alone has one
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "systemd" if settings.systemd else "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "oomScoreAdj": 0,  # kubelet's own -999 needs CAP_SYS_RESOURCE
        "evictionHard": dict.fromkeys(signals, "0%"),
        "imageGCHighThresholdPercent": 100,  # no registry brings a removed image back
        "imageGCLowThresholdPercent": 99,
        "staticPodPath": str(STATIC_PODS),
        "resolvConf": "/etc/resolv.conf",
        "clusterDNS": ["10.85.0.1"],  # nobody answers there; without one, each pod gets a warning
        "maxPods": PODS,
        "kubeAPIQPS": 500,
        "kubeAPIBurst": 1000,
        "eventRecordQPS": 0,
        **settings.kubelet,
    }


def _kubeconfig(settings: Settings) -> dict[str, Any]:
    """kubelet acts as its node: the administrator's certificate, and the name and group of a node.

    So the API server's Node authorizer decides what kubelet may do, and nobody has to sign certificates.
    """
    acting = {"as": f"system:node:{settings.name}", "as-groups": ["system:nodes"]}
    return administrator(settings.access, acting)


def administrator(access: Access, acting: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A kubeconfig; acting: the user's fields that make him somebody else."""
    name = "node"
    user = {"client-certificate": str(access.certificate), "client-key": str(access.key)} | dict(acting or {})
    cluster = {"server": access.server, "certificate-authority": str(access.authority)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
