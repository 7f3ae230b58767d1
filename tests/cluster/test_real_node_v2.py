"""A real node on cgroup v2, in the test VM, joined to the lab's control plane."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from lab.binaries import silent
from lab.cluster import Cluster
from lab.node.twin import v2_node
from lab.runtimes.images import BUSYBOX

pytestmark = [
    pytest.mark.runtime,  # with those that have the machine to themselves: the VM takes all of it
    pytest.mark.full,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(os.geteuid() != 0, reason="the test VM's image is made by root"),
]

FILES = ("cpu.weight", "memory.max", "cgroup.controllers")


def pod() -> dict[str, Any]:
    """Tells what its own kernel files hold; first of all."""
    script = f"cd /sys/fs/cgroup && cat {' '.join(FILES)} >/dev/termination-log"
    container = {
        "name": "main",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", script],
        "resources": {"requests": {"cpu": "200m", "memory": "64Mi"}, "limits": {"memory": "64Mi"}},
    }
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": "real-v2"},
        "restartPolicy": "Never",
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "on-v2"}, "spec": spec}


def test_a_pod_runs_on_cgroup_v2(cluster: Cluster) -> None:
    with v2_node(cluster, silent):
        node = json.loads(cluster.kubectl("get", "node", "real-v2", "--output=json"))
        assert node["status"]["nodeInfo"]["kubeletVersion"] == "v1.36.3"
        cluster.kubectl("create", "--filename=-", stdin=json.dumps(pod()))
        done = "--for=jsonpath={.status.phase}=Succeeded"
        cluster.kubectl("wait", done, "pod/on-v2", "--timeout=400s", seconds=420)
        found = json.loads(cluster.kubectl("get", "pod", "on-v2", "--output=json"))
        said = found["status"]["containerStatuses"][0]["state"]["terminated"]["message"]
        weight, limit, controllers = said.splitlines()
        assert 1 <= int(weight) <= 10_000
        assert limit == str(64 << 20)
        assert {"cpu", "memory", "io"} <= set(controllers.split())
    cluster.kubectl("delete", "pod/on-v2", "node/real-v2", "--force", "--grace-period=0")
