"""What all pods of a node receive by the weight that kubelet gives them together: said once a node. Pure.

It is no pod's shortfall: no weight of a pod mends it, and no other pod is to pay for it.
"""

from __future__ import annotations

from typing import NamedTuple

from qos.plan.hierarchy import load_of
from qos.plan.layout import requested
from qos.plan.node import Level
from qos.plan.siblings import Capacity
from qos.plan.weights import LEGACY, UNIFIED


class NodeShare(NamedTuple):
    """Millicores: what reaches all pods while everything beside them wants all it can get, and what they are
    due by kubelet's weight: allocatable.
    """

    reaching: int
    due: int


def node_share(kubepods: Level, cpus: int, unified: bool) -> NodeShare:
    """The share of the cgroup of all pods, as it was read with what is beside it; cpus: the node's, in
    millicores.
    """
    scale = UNIFIED if unified else LEGACY
    reaching = Capacity(cpus).shared(scale.load(kubepods.weight), load_of(kubepods.rivals, scale)).whole
    return NodeShare(reaching, min(requested(kubepods.weight, unified), cpus))
