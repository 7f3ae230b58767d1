"""Karpenter with its KWOK provider beside a lab cluster: an autoscaler that makes nodes KWOK keeps alive.

Built once into the user's cache, as helm is (lab/node_programs.py): three and a half minutes on two cores.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from lab import components
from lab.cluster import Cluster, LabError, reserve_ports
from lab.node_programs import Programs, provide
from lab.only_one import Report

INTRODUCTION: Final = "Building Karpenter from its Go module: about 4 minutes on 2 cores, once. "
KARPENTER: Final = Programs(
    "karpenter",
    Path(__file__).parent / "karpentermodule",
    ("kwok", "definitions"),
    {},
    toolchain="go1.26.10",
)
COMPONENT: Final = "karpenter"
POOL: Final = "default"
_CPUS: Final = ("4",)
"""The size of the nodes that it makes, of all that the provider has."""


def programs(environ: Mapping[str, str], report: Report) -> Path:
    """Their folder, built where they are missing. Raises NodeProgramsError."""
    without_choice = {key: value for key, value in environ.items() if key != "J10CE_NODE_BIN"}
    return provide(without_choice, report, KARPENTER)


def start(cluster: Cluster, folder: Path, *, idle: str = "Never", buffers: bool = True) -> None:
    """Define its kinds, one pool of nodes of 4 CPUs, and start it; end it with cluster.kill(COMPONENT).

    idle: after which time it removes nodes that others can do without ("30s"), Never: not at all. buffers:
    whether it heeds CapacityBuffers, which it does by a feature gate.
    """
    cluster.kubectl("apply", "--server-side", "--filename=-", stdin=_definitions(folder))
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all", seconds=90)
    cluster.kubectl("apply", "--server-side", "--filename=-", stdin=json.dumps(pool(idle)))
    metrics, health = reserve_ports(cluster.folder, 2)
    argv = [
        "/usr/bin/env",
        f"KUBECONFIG={cluster.kubeconfig}",
        "SYSTEM_NAMESPACE=kube-system",
        str(folder / "kwok"),
        "--disable-leader-election=true",
        f"--metrics-port={metrics}",
        f"--health-probe-port={health}",
        f"--feature-gates=CapacityBuffer={str(buffers).lower()}",
        # By a path of the cluster's folder the lab knows the process for its own.
        f"--log-output-paths={cluster.folder}/logs/{COMPONENT}.log",
    ]
    components.add(cluster.folder, COMPONENT, argv)
    components.start(cluster.folder, COMPONENT)


def pool(idle: str) -> dict[str, Any]:
    """A KWOKNodeClass and a NodePool, as a list for kubectl."""
    node_class = {
        "apiVersion": "karpenter.kwok.sh/v1alpha1",
        "kind": "KWOKNodeClass",
        "metadata": {"name": POOL},
    }
    requirements = {
        "kubernetes.io/arch": ["amd64"],
        "kubernetes.io/os": ["linux"],
        "karpenter.sh/capacity-type": ["on-demand"],
        "karpenter.kwok.sh/instance-cpu": [*_CPUS],
    }
    spec = {
        "template": {
            "spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": POOL},
                "requirements": [
                    {"key": key, "operator": "In", "values": values} for key, values in requirements.items()
                ],
            }
        },
        "disruption": {
            "consolidationPolicy": "WhenEmptyOrUnderutilized",
            "consolidateAfter": idle,
            "budgets": [{"nodes": "100%"}],
        },
    }
    node_pool = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": POOL},
        "spec": spec,
    }
    return {"apiVersion": "v1", "kind": "List", "items": [node_class, node_pool]}


def _definitions(folder: Path) -> str:
    done = subprocess.run(
        [str(folder / "definitions")], capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode:
        raise LabError(f"{folder / 'definitions'}: {done.stderr.strip()}")
    return done.stdout
