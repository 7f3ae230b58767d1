"""What nodes and pods use, as nodes say it in their NodeQoS, and as metrics.k8s.io does (metrics-server)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from adapters.api import NODE_QOS
from adapters.kubernetes import wire
from adapters.kubernetes.requests import vector_of
from adapters.kubernetes.wire import DecodeError, key_of, read
from qos.cluster.objects import Resources
from qos.keys import CPU, MEMORY


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


class _PodUsage(msgspec.Struct):
    pod: str
    cpu: str = "0"
    memory: str = "0"


class _Usage(msgspec.Struct, rename="camel"):
    measured_at: str = ""
    cpu: str | None = None
    memory: str | None = None
    pods: msgspec.Raw = msgspec.Raw(b"[]")


class _Status(msgspec.Struct):
    usage: _Usage | None = None


class _NodeQoS(msgspec.Struct):
    metadata: wire.Metadata
    status: _Status = msgspec.field(default_factory=_Status)


_REPORT: Final = msgspec.json.Decoder(_NodeQoS)
_PODS: Final = msgspec.json.Decoder(list[_PodUsage])
_NODE: Final = msgspec.json.Decoder(_NodeMetrics)
_POD: Final = msgspec.json.Decoder(_PodMetrics)


@dataclass(frozen=True, slots=True)
class Used:
    """What a node or a pod uses, canonical units. `key`: a node's name, a pod's namespace/name.

    `stamp`: when it was measured, as it is written, by the clock of who measured: only its change counts.
    `pods`: of a NodeQoS, what each pod uses, as reported_pods() reads it: they are many, and seldom asked.
    """

    key: str
    stamp: str
    usage: Resources
    pods: bytes = b"[]"


def reported_usage(raw: bytes) -> Used:
    """What a NodeQoS says of usage; `stamp` "" where it says nothing. DecodeError."""
    obj = read(_REPORT, NODE_QOS.kind, raw)
    one = obj.status.usage or _Usage()
    told = {CPU: one.cpu, MEMORY: one.memory}
    amounts = {name: text for name, text in told.items() if text is not None}
    usage = _used(NODE_QOS.kind, obj.metadata, "status.usage", amounts)
    return Used(obj.metadata.name, one.measured_at, usage, bytes(one.pods))


def reported_pods(node: str, pods: bytes) -> dict[str, Resources]:
    """By namespace/name what each pod of the node uses, of a NodeQoS. DecodeError."""
    meta = wire.Metadata(name=node)
    try:
        told = _PODS.decode(pods)
    except msgspec.MsgspecError as error:
        raise DecodeError(NODE_QOS.kind, node, "status.usage.pods", "", str(error)) from None
    return {one.pod: _used(NODE_QOS.kind, meta, one.pod, {CPU: one.cpu, MEMORY: one.memory}) for one in told}


def node_usage(raw: bytes) -> Used:
    """A NodeMetrics. DecodeError."""
    obj = read(_NODE, "NodeMetrics", raw)
    usage = _used("NodeMetrics", obj.metadata, "usage", obj.usage or {})
    return Used(obj.metadata.name, obj.timestamp, usage)


def pod_usage(raw: bytes) -> Used:
    """A PodMetrics: its containers together. DecodeError."""
    obj = read(_POD, "PodMetrics", raw)
    total: dict[str, int] = {}
    for one in obj.containers or ():
        for name, amount in _used("PodMetrics", obj.metadata, "usage", one.usage or {}).items():
            total[name] = total.get(name, 0) + amount
    return Used(key_of(obj.metadata), obj.timestamp, total)


def _used(kind: str, meta: wire.Metadata, field: str, amounts: Mapping[str, str | float]) -> Resources:
    """None is negative: by a mean of all nodes one that says so would make all others high. DecodeError."""
    return {name: max(0, amount) for name, amount in vector_of(kind, meta, field, amounts).items()}
