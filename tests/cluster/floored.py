"""A pod with a floor, and the agent's DaemonSet where there is no image: for tests on nodes that are real."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from cli.kubectl import Kubectl
from lab.cluster import Cluster, LabError
from lab.runtimes.images import BUSYBOX

ACCOUNT = "j10ce-agent"
SCOPE = ("--namespace", "j10ce-system")


def thing(version: str, kind: str, name: str, spec: Any = None, **metadata: Any) -> dict[str, Any]:
    found = {"apiVersion": version, "kind": kind, "metadata": {"name": name} | metadata}
    return found | ({"spec": spec} if spec else {})


def on_one_node(
    daemonset: dict[str, Any],
    node: str,
    server: str,
    command: str,
    folders: Iterable[Path],
    rights: Collection[str],
) -> dict[str, Any]:
    """The DaemonSet for one node, its program in a busybox: there is no image, and no kube-proxy.

    folders: what the command needs of the node. rights: capabilities that may be given.
    """
    made = json.loads(json.dumps(daemonset))
    pod = made["spec"]["template"]["spec"]
    pod["nodeSelector"] = {"kubernetes.io/hostname": node}
    (agent,) = pod["containers"]
    agent |= {"image": BUSYBOX, "imagePullPolicy": "Never"}
    agent["command"] = [command]
    host, _, port = server.removeprefix("https://").rpartition(":")
    agent["env"] += [
        {"name": "KUBERNETES_SERVICE_HOST", "value": host},
        {"name": "KUBERNETES_SERVICE_PORT", "value": port},
    ]
    for number, path in enumerate(sorted(folders)):
        pod["volumes"].append({"name": f"p{number}", "hostPath": {"path": str(path)}})
        agent["volumeMounts"].append({"name": f"p{number}", "mountPath": str(path), "readOnly": True})
    given = agent["securityContext"]["capabilities"]["add"]
    agent["securityContext"]["capabilities"]["add"] = [name for name in given if name in rights]
    return dict(made)


def policy(cpu: str = "700m") -> dict[str, Any]:
    """One slot of that floor, for floored()."""
    spec = {
        "selector": {"matchLabels": {"app": "floored"}},
        "floor": {"resources": {"cpu": cpu}},
        "slots": {"count": 1},
    }
    return thing("j10ce.io/v1alpha1", "MinimalReservationPolicy", "floored", spec, namespace="default")


def floored(node: str, file: str = "cpu/cpu.shares", cpu: str = "700m") -> dict[str, Any]:
    """Writes down with its first instruction what it was born with: a kernel file of its own cgroup.

    It requests its floor: no more of it would count.
    """
    container = {
        "name": "main",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", f"cat /sys/fs/cgroup/{file}; exec sleep 100000"],
        "resources": {"requests": {"cpu": cpu}},
    }
    spec = {"nodeSelector": {"kubernetes.io/hostname": node}, "containers": [container]}
    return thing("v1", "Pod", "floored", spec, namespace="default", labels={"app": "floored"})


def applied(kubectl: Kubectl, node: str) -> int:
    """In how many pods the policy is applied, as the agent reports it."""
    policies = status(kubectl, node).get("policies", ())
    return next((int(one["applied"]) for one in policies if one["policy"] == "default/floored"), 0)


def by_nri(kubectl: Kubectl, node: str) -> bool:
    """Whether the agent is connected: it knows the runtime's name by NRI only."""
    return status(kubectl, node).get("containerRuntime", "unknown") != "unknown"


def status(kubectl: Kubectl, node: str) -> dict[str, Any]:
    """What the agent reports of the node; empty as long as it has not."""
    found = kubectl.objects("get", "nodeqos", node, "--ignore-not-found")
    return dict(found[0].get("status", {})) if found else {}


def roll_out(cluster: Cluster) -> None:
    """Until the one pod is ready: none is wanted as long as its controller does not know the node."""
    ready = ("wait", "--for=jsonpath={.status.numberReady}=1")
    try:
        for words in (ready, ("rollout", "status")):
            cluster.kubectl(*words, "daemonset/j10ce-agent", *SCOPE, "--timeout=200s", seconds=230)
    except LabError as error:
        said = cluster.kubectl("describe", "pods", *SCOPE)
        said += cluster.kubectl("logs", "daemonset/j10ce-agent", *SCOPE, check=False)
        raise AssertionError(said) from error
