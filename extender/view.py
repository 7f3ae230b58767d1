"""What is seen of the cluster beyond the ledger; status, events and annotations are made from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import msgspec

from ledger.eligibility import admits_node
from qos import keys
from qos.cluster.objects import Node, NodePredicate, Pod


@dataclass(slots=True)
class View:
    """Nodes by name, the nodes that we annotated against being removed, and pods that are unschedulable.

    `annotated`: what our mark on a node says (keys.HELD_FROM). `guarded_by_others`: nodes that a person keeps
    from the autoscaler that made them. `openings`: how often a node came, or may admit pods that it did not
    admit before.
    """

    nodes: dict[str, Node] = field(default_factory=dict)
    annotated: dict[str, str] = field(default_factory=dict)
    guarded_by_others: set[str] = field(default_factory=set)
    unschedulable: dict[str, Pod] = field(default_factory=dict)
    openings: int = 0

    def set_node(self, node: Node, marks: NodeMarks) -> None:
        """Take a node and its annotations as they are now."""
        before = self.nodes.get(node.name)
        if node.ready and (before is None or _admission(before) != _admission(node)):
            self.openings += 1
        self.nodes[node.name] = node
        if marks.held is None:
            self.annotated.pop(node.name, None)
        else:
            self.annotated[node.name] = marks.held
        wanted = mark_of(node)
        theirs = marks.held != wanted and marks.of(wanted) == "true"
        _keep(self.guarded_by_others, node.name, theirs)

    def remove_node(self, name: str) -> None:
        """Forget a node."""
        self.nodes.pop(name, None)
        self.annotated.pop(name, None)
        self.guarded_by_others.discard(name)

    def serves(self, where: NodePredicate, name: str) -> bool:
        """Whether a node is there, ready, and admits pods that may run on such nodes."""
        node = self.nodes.get(name)
        return node is not None and node.ready and admits_node(where, node)

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
    """The annotations by which a node is kept from being removed, and our mark beside them (trap T22)."""

    held: str | None = msgspec.field(name=keys.HELD_ANNOTATION, default=None)
    scale_down_disabled: str | None = msgspec.field(name=keys.SCALE_DOWN_DISABLED_ANNOTATION, default=None)
    do_not_disrupt: str | None = msgspec.field(name=keys.DO_NOT_DISRUPT_ANNOTATION, default=None)

    def of(self, mark: str) -> str | None:
        """The value of the annotation that such a mark of ours stands for."""
        return self.do_not_disrupt if mark == _KARPENTER else self.scale_down_disabled


_KARPENTER: Final = "karpenter"


def mark_of(node: Node) -> str:
    """The mark of ours for a node, which says what keeps its autoscaler from removing it."""
    return _KARPENTER if keys.KARPENTER_NODE_LABEL in node.labels else "true"


class _Metadata(msgspec.Struct, gc=False):
    annotations: NodeMarks | None = None


class _Annotated(msgspec.Struct, gc=False):
    metadata: _Metadata


_decode = msgspec.json.Decoder(_Annotated).decode


def marks_of(raw: bytes) -> NodeMarks:
    """The marks in a node's JSON."""
    return _decode(raw).metadata.annotations or NodeMarks()


def _admission(node: Node) -> tuple[object, ...]:
    """What decides which pods a node admits, beside resources."""
    return node.ready, node.unschedulable, node.taints, node.labels


def _keep(members: set[str], name: str, belongs: bool) -> None:
    if belongs:
        members.add(name)
    else:
        members.discard(name)
