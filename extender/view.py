"""What is seen of the cluster beyond the ledger; status, events and annotations are made from it."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from qos import keys
from qos.cluster.objects import Node, Pod


@dataclass(slots=True)
class View:
    """Nodes by name, the nodes that carry our scale-down annotation, and pods that are unschedulable."""

    nodes: dict[str, Node] = field(default_factory=dict)
    annotated: set[str] = field(default_factory=set)
    guarded_by_others: set[str] = field(default_factory=set)
    unschedulable: dict[str, Pod] = field(default_factory=dict)

    def set_node(self, node: Node, marks: NodeMarks) -> None:
        """Take a node and its annotations as they are now."""
        self.nodes[node.name] = node
        ours = marks.held is not None
        _keep(self.annotated, node.name, ours)
        _keep(self.guarded_by_others, node.name, not ours and marks.scale_down_disabled == "true")

    def remove_node(self, name: str) -> None:
        """Forget a node."""
        self.nodes.pop(name, None)
        self.annotated.discard(name)
        self.guarded_by_others.discard(name)

    def set_pod(self, pod: Pod) -> None:
        """Take a pod as it is now."""
        if pod.unschedulable_since and not (pod.node_name or pod.terminal or pod.deleting):
            self.unschedulable[pod.uid] = pod
        else:
            self.unschedulable.pop(pod.uid, None)

    def remove_pod(self, uid: str) -> None:
        """Forget a pod."""
        self.unschedulable.pop(uid, None)


class NodeMarks(msgspec.Struct, gc=False):
    """The two annotations by which a node is kept from being removed (trap T22)."""

    held: str | None = msgspec.field(name=keys.HELD_ANNOTATION, default=None)
    scale_down_disabled: str | None = msgspec.field(name=keys.SCALE_DOWN_DISABLED_ANNOTATION, default=None)


class _Metadata(msgspec.Struct, gc=False):
    annotations: NodeMarks | None = None


class _Annotated(msgspec.Struct, gc=False):
    metadata: _Metadata


_decode = msgspec.json.Decoder(_Annotated).decode


def marks_of(raw: bytes) -> NodeMarks:
    """The marks in a node's JSON."""
    return _decode(raw).metadata.annotations or NodeMarks()


def _keep(members: set[str], name: str, belongs: bool) -> None:
    if belongs:
        members.add(name)
    else:
        members.discard(name)
