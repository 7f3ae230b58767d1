"""What nodes and pods use, as metrics.k8s.io says it: the resources that metrics-server serves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from adapters.kubernetes import wire
from adapters.kubernetes.requests import vector_of
from adapters.kubernetes.wire import key_of, read
from qos.cluster.objects import Resources


class _NodeMetrics(msgspec.Struct):
    metadata: wire.Metadata
    timestamp: str = ""
    usage: wire.Amounts | None = None


class _Container(msgspec.Struct):
    usage: wire.Amounts | None = None


class _PodMetrics(msgspec.Struct):
    metadata: wire.Metadata
    timestamp: str = ""
    containers: list[_Container] | None = None


_NODE: Final = msgspec.json.Decoder(_NodeMetrics)
_POD: Final = msgspec.json.Decoder(_PodMetrics)


@dataclass(frozen=True, slots=True)
class Used:
    """What a node or a pod uses, canonical units. `key`: a node's name, a pod's namespace/name.

    `stamp`: when it was measured, as it is written, by the clock of who measured: only its change counts.
    """

    key: str
    stamp: str
    usage: Resources


def node_usage(raw: bytes) -> Used:
    """A NodeMetrics. DecodeError."""
    obj = read(_NODE, "NodeMetrics", raw)
    return Used(
        obj.metadata.name, obj.timestamp, vector_of("NodeMetrics", obj.metadata, "usage", obj.usage or {})
    )


def pod_usage(raw: bytes) -> Used:
    """A PodMetrics: its containers together. DecodeError."""
    obj = read(_POD, "PodMetrics", raw)
    total: dict[str, int] = {}
    for one in obj.containers or ():
        for name, amount in vector_of("PodMetrics", obj.metadata, "usage", one.usage or {}).items():
            total[name] = total.get(name, 0) + amount
    return Used(key_of(obj.metadata), obj.timestamp, total)
