"""What the demonstration on a real node applies: a policy with its profile, its pod, and a neighbour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lab.node.far_end import Reached
from lab.nodes import REAL
from lab.runtimes.images import BUSYBOX
from qos import keys

NAME = "checkout"
NEIGHBOUR = "neighbour"
FLOOD = "flood"
CONTAINER = "main"
_MORE = 100
"""Millicores that a resize adds to the request."""
HELD_MEMORY = 32_000_000
"""Bytes that the floor's pod holds in a shell's variable: never written again, so the first to go."""
FLOWS = 8
"""Connections of the pod that floods, each way; the floor's pod has one."""


def rules(floor: int, network: Mapping[str, int]) -> list[dict[str, Any]]:
    """A profile of class LS, and a policy: one slot, which only a real node may hold.

    floor: millicores. network: egress and ingress in bits a second.
    """
    profile = {
        "apiVersion": keys.API_VERSION,
        "kind": "QoSProfile",
        "metadata": {"name": "latency-critical"},
        "spec": {"class": "LS"},
    }
    policy = {
        "apiVersion": keys.API_VERSION,
        "kind": "MinimalReservationPolicy",
        "metadata": {"name": NAME, "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": NAME}},
            "profileName": "latency-critical",
            "floor": {
                "resources": {"cpu": f"{floor}m"},
                "network": {way: str(bits) for way, bits in network.items()},
            },
            "slots": {"count": 1},
            "placement": {"inheritFromWorkload": False, "nodeSelector": {REAL: "true"}},
        },
    }
    return [profile, policy]


def resized(floor: int) -> str:
    """What the pod requests after its resize."""
    return f"{floor + _MORE}m"


def owner(floor: int, cpu_file: str, processes: int, far: Reached) -> dict[str, Any]:
    """The floor's pod: says what its own kernel file holds, then wants all CPUs and all of the link.

    It names no node. It requests its floor of CPU: no more of it would count, and kubelet alone goes by it.
    """
    traffic = _traffic(far.address, far.ports[NAME], flows=1)
    script = f"cat {cpu_file}; {traffic}kept=$(yes | head -c {HELD_MEMORY}); {_busy(processes)}; wait"
    return _pod(NAME, script, {"cpu": f"{floor}m", "memory": "64Mi"}, labels={"app": NAME})


def neighbour(node: str, cpu: str, processes: int) -> dict[str, Any]:
    """A pod on the same node that requests `cpu`: busy processes, and memory over and over."""
    churn = "while :; do more=$(yes | head -c 200000000); done"
    made = _pod(NEIGHBOUR, f"{_busy(processes)}; {churn}", {"cpu": cpu, "memory": "64Mi"}, labels={})
    made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return made


def flood(node: str, cpu: str, far: Reached) -> dict[str, Any]:
    """A pod on the same node that wants all of the link."""
    script = _traffic(far.address, far.ports[FLOOD], flows=FLOWS) + "wait"
    made = _pod(FLOOD, script, {"cpu": cpu, "memory": "16Mi"}, labels={})
    made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return made


def _traffic(address: str, ports: Sequence[int], flows: int) -> str:
    """So many connections that send zeros, and as many that read, for ever: large blocks cost little CPU."""
    send, receive = ports
    words = (f"{send} -e dd if=/dev/zero bs=256k", f"{receive} -e dd of=/dev/null bs=256k")
    return "".join(f"(while :; do nc {address} {one} 2>/dev/null; sleep 1; done) & " for one in words * flows)


def _busy(processes: int) -> str:
    return f"i=0; while [ $i -lt {processes} ]; do (while :; do :; done) & i=$((i+1)); done"


def _pod(name: str, script: str, requests: dict[str, str], labels: dict[str, str]) -> dict[str, Any]:
    container = {
        "name": CONTAINER,
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", script],
        "resources": {"requests": requests},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
    }
