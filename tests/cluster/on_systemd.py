"""What tests on a systemd node do there again and again: agents by their unit, pods, values, whole trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from cli.kubectl import Kubectl, as_list
from lab.node.systemd.node import SystemdNode
from lab.runtimes.images import BUSYBOX
from qos.plan.layout import Driver, kubelet_paths
from tests.waiting import until

SECONDS: Final = 300.0
"""The node's processor is emulated."""
MANAGERS: Final = {
    "cpuManagerPolicy": "static",
    "memoryManagerPolicy": "Static",
    "systemReserved": {"cpu": "500m", "memory": "256Mi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "256Mi"}}],
}
"""kubelet's settings."""
WEIGHT: Final = "cpu.weight"
ALL_PODS: Final = "/kubepods.slice"
_UNIT: Final = "j10ce-agent"
CHOSEN: Final = "/etc/j10ce/agent.env"
_OPTIONS: Final = "J10CE_AGENT_OPTIONS="


class There(NamedTuple):
    """A pod that runs: its own cgroup, and that of its container."""

    uid: str
    path: str
    container: str


def sleeping(name: str, node: str, **resources: Any) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", "cat /proc/self/cgroup; exec sleep 100000"],
        "resources": resources,
    }
    spec = {"nodeSelector": {"kubernetes.io/hostname": node}, "containers": [container]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def start(kubectl: Kubectl, *pods: dict[str, Any]) -> dict[str, There]:
    """Start pods of one container, by name."""
    kubectl.run("create", "-f", "-", stdin=as_list(pods))
    found = {}
    for pod in pods:
        name, scope = pod["metadata"]["name"], ("-n", pod["metadata"]["namespace"])
        ready = ("wait", "--for=condition=Ready", f"--timeout={SECONDS:.0f}s")
        kubectl.run(*ready, f"pod/{name}", *scope, seconds=int(SECONDS) + 10)
        (seen,) = kubectl.objects("get", "pod", name, *scope)
        uid, (container,) = seen["metadata"]["uid"], seen["status"]["containerStatuses"]
        own = container["containerID"].rpartition("/")[2]
        *_, path, inside = kubelet_paths(seen["status"]["qosClass"], uid, own, Driver.SYSTEMD)
        found[name] = There(uid, path, inside)
    return found


def removed(kubectl: Kubectl, *pods: dict[str, Any]) -> None:
    for namespace in {pod["metadata"]["namespace"] for pod in pods}:
        names = [
            f"pod/{pod['metadata']['name']}" for pod in pods if pod["metadata"]["namespace"] == namespace
        ]
        kubectl.run("delete", *names, "-n", namespace, "--grace-period=0", "--force")


def value(node: SystemdNode, folder: str, file: str = WEIGHT) -> str:
    return node.read(f"/sys/fs/cgroup{folder}/{file}").strip()


def write(node: SystemdNode, folder: str, file: str, text: str) -> None:
    node.run(["tee", f"/sys/fs/cgroup{folder}/{file}"], stdin=text).succeeded()


def agent_starts(node: SystemdNode, **chosen: str) -> None:
    """By its unit; chosen: variables of its environment, in place of those of the start before."""
    lines = [line for line in node.read(CHOSEN).splitlines() if line.startswith(_OPTIONS)]
    lines += [f"{name}={text}" for name, text in chosen.items()]
    node.run(["tee", CHOSEN], stdin="".join(f"{line}\n" for line in lines)).succeeded()
    node.run(["systemctl", "restart", _UNIT]).succeeded()


def agent_ends(node: SystemdNode) -> None:
    node.run(["systemctl", "stop", _UNIT]).succeeded()


def until_there(
    node: SystemdNode, condition: Callable[[], object], what: str, found: Callable[[], object] = str
) -> None:
    """Until it is so; else with what is found instead, and what the agent has said."""
    until(condition, what, SECONDS, lambda: f"{found()} {node.journal(_UNIT)}")
