"""What a Node says of its link: labels that people set, and the resources that its agent publishes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from adapters.api import NODES
from adapters.kubernetes.requests import vector_of
from adapters.kubernetes.wire import Metadata, read
from qos import keys

_RESOURCES: Final = (keys.EGRESS_BANDWIDTH, keys.INGRESS_BANDWIDTH)


class _Amounts(msgspec.Struct, gc=False, omit_defaults=True):
    """Of a node's resources, ours; the others are not even read."""

    egress: str | int | None = msgspec.field(default=None, name=keys.EGRESS_BANDWIDTH)
    ingress: str | int | None = msgspec.field(default=None, name=keys.INGRESS_BANDWIDTH)


class _Status(msgspec.Struct, gc=False):
    capacity: _Amounts | None = None
    allocatable: _Amounts | None = None


class _Node(msgspec.Struct, gc=False):
    metadata: Metadata
    status: _Status = msgspec.field(default_factory=_Status)


_NODE: Final = msgspec.json.Decoder(_Node)


@dataclass(frozen=True, slots=True)
class NodeBandwidth:
    """labels: all of them. capacity, allocatable: bits a second by resource."""

    name: str
    labels: Mapping[str, str]
    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]

    def says(self, wanted: Mapping[str, int]) -> bool:
        """Whether both are just this."""
        return self.capacity == wanted and self.allocatable == wanted


def node_bandwidth(raw: bytes) -> NodeBandwidth:
    """What a Node says. DecodeError."""
    node = read(_NODE, NODES.kind, raw)
    meta, status = node.metadata, node.status
    labels = meta.labels or {}
    return NodeBandwidth(
        meta.name,
        labels,
        _vector(meta, "status.capacity", status.capacity),
        _vector(meta, "status.allocatable", status.allocatable),
    )


def _vector(meta: Metadata, field: str, amounts: _Amounts | None) -> Mapping[str, int]:
    if amounts is None:
        return {}
    pairs = zip(_RESOURCES, (amounts.egress, amounts.ingress), strict=True)
    return vector_of(NODES.kind, meta, field, {name: text for name, text in pairs if text is not None})


def change_to(wanted: Mapping[str, int]) -> dict[str, Any]:
    """The merge patch of a Node's status after which it says just this; {}: nothing of ours is left in it.

    allocatable as well, which kubelet would compute from capacity some seconds later.
    """
    amounts = {name: str(wanted[name]) if name in wanted else None for name in _RESOURCES}
    return {"status": {"capacity": amounts, "allocatable": amounts}}
