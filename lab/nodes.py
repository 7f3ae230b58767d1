"""KWOK nodes as the API server takes them. KWOK makes them Ready and keeps them so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

REAL = "lab.j10ce.io/real-node"
"""Label of a node with a kubelet of its own (lab/node): KWOK leaves it alone."""

DEFAULT_CAPACITY: Mapping[str, str] = {
    "cpu": "32",
    "memory": "128Gi",
    "ephemeral-storage": "500Gi",
    "pods": "110",
}


def node(
    name: str,
    capacity: Mapping[str, str] | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """One Node object; what `capacity` leaves out is DEFAULT_CAPACITY's. Capacity is allocatable."""
    amounts = dict(DEFAULT_CAPACITY) | dict(capacity or {})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "type": "kwok"}
            | dict(labels or {}),
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"taints": [dict(taint) for taint in taints]} if taints else {},
        "status": {"capacity": amounts, "allocatable": amounts, "phase": "Running"},
    }


def nodes(
    prefix: str, count: int, capacity: Mapping[str, str] | None = None, **options: Any
) -> list[dict[str, Any]]:
    """Nodes prefix-0 .. prefix-(count-1) of one shape; names are padded so that they sort."""
    width = len(str(max(count - 1, 0)))
    return [node(f"{prefix}-{number:0{width}d}", capacity, **options) for number in range(count)]
