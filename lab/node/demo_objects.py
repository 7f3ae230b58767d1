"""What the demonstration on a real node applies: a policy with its profile, its pod, and a neighbour."""

from __future__ import annotations

from typing import Any

from lab.nodes import REAL
from lab.runtimes.images import BUSYBOX
from qos import keys

NAME = "checkout"
NEIGHBOUR = "neighbour"
CONTAINER = "main"
FLOOR_MILLICORES = 700
REQUEST = "700m"
"""What the pod requests at first: no more of its floor would count, and kubelet alone goes by it."""
RESIZED = "800m"
HELD_MEMORY = 32_000_000
"""Bytes that the floor's pod holds in a shell's variable: never written again, so the first to go."""


def rules() -> list[dict[str, Any]]:
    """A profile of class LS, and a policy: one slot, which only a real node may hold."""
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
            "floor": {"resources": {"cpu": f"{FLOOR_MILLICORES}m"}},
            "slots": {"count": 1},
            "placement": {"inheritFromWorkload": False, "nodeSelector": {REAL: "true"}},
        },
    }
    return [profile, policy]


def owner(cpu_file: str, processes: int) -> dict[str, Any]:
    """The floor's pod: says what its own kernel file holds, then wants all CPUs. It names no node."""
    script = f"cat {cpu_file}; kept=$(yes | head -c {HELD_MEMORY}); {_busy(processes)}; wait"
    return _pod(NAME, script, {"cpu": REQUEST, "memory": "64Mi"}, labels={"app": NAME})


def neighbour(node: str, processes: int) -> dict[str, Any]:
    """A pod on the same node with a request ten times as large: busy processes, and memory over and over."""
    churn = "while :; do more=$(yes | head -c 200000000); done"
    made = _pod(NEIGHBOUR, f"{_busy(processes)}; {churn}", {"cpu": "1", "memory": "64Mi"}, labels={})
    made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return made


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
