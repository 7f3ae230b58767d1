"""What all pods of a node receive by the weight of the cgroup that they share, and the weight with which
that is what is allocatable. Said once a node. Pure.

It is no pod's shortfall: no weight of a pod mends it, and no other pod is to pay for it.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from qos.plan import observed
from qos.plan.assumed import Machine
from qos.plan.hierarchy import load_of
from qos.plan.layout import is_kubepods, requested
from qos.plan.node import Level
from qos.plan.placed_pod import NodeTree
from qos.plan.siblings import Capacity
from qos.plan.weights import LEGACY, UNIFIED, Scale, misses


class NodeShares(Enum):
    """An administrator's choice: the weight of the cgroup of all pods at the root is kubelet's, or the one
    with which allocatable CPU is true.
    """

    KUBELET = "Kubelet"
    ALLOCATABLE = "Allocatable"


class NodeShare(NamedTuple):
    """Millicores. `reaching`: what reaches all pods while everything beside them wants all it can get; `due`:
    what they are due by kubelet's weight: allocatable, or less by up to one step of that weight.

    `beside`: what is left to that which is populated beside them; `reserved`: what kubelet leaves to it, 0
    where there is nothing beside them.
    """

    reaching: int
    due: int
    beside: int = 0
    reserved: int = 0

    @property
    def pods_lack(self) -> bool:
        """Whether pods receive less than is allocatable, by more than rounding."""
        return misses(self.reaching, self.due)

    @property
    def beside_lacks(self) -> bool:
        """Whether what runs beside pods receives less than is reserved for it, by more than rounding."""
        return misses(self.beside, self.reserved)


def node_share(kubepods: Level, cpus: int, unified: bool, weight: int = 0) -> NodeShare:
    """The share of the cgroup of all pods, with the weight that kubelet gave it and with what is beside it.

    cpus: the node's, in millicores. weight: the one that it has in place of kubelet's; 0: it has kubelet's.
    """
    scale = scale_of(unified)
    others = load_of(kubepods.rivals, scale)
    own = scale.load(weight or kubepods.weight)
    reaching = Capacity(cpus).shared(own, others).limited(kubepods.cpu_quota).whole
    due = min(requested(kubepods.weight, unified), cpus)
    return NodeShare(reaching, due, cpus - reaching, cpus - due if others else 0)


def allocatable_weight(kubepods: Level, cpus: int, unified: bool) -> int:
    """The smallest weight, never below kubelet's, with which what is allocatable reaches all pods while
    everything populated beside them wants all it can get; the largest there is where none is enough.

    kubelet's own where it reserves nothing, as far as its weight tells: any other would starve the rest.
    """
    scale = scale_of(unified)
    others = load_of(kubepods.rivals, scale)
    if kubepods.idle or not others or requested(kubepods.weight + 1, unified) > cpus:
        return kubepods.weight
    due = requested(kubepods.weight, unified)
    least = scale.least(-(-due * others // (cpus - due)))
    return max(kubepods.weight, scale.high if least is None else least)


def pods_level(tree: NodeTree, machine: Machine) -> Level | None:
    """The cgroup of all pods with all that competes with it; None where there is none at the root."""
    root, file = tree.groups.get("/"), scale_of(machine.unified).file
    for name in root.children if root else ():
        own = tree.groups.get(f"/{name}")
        if root is None or own is None or not is_kubepods(name) or file not in own.values:
            continue
        if not observed.rival(own.values, machine.memory).populated:
            continue  # of another cgroup driver, once
        paths = [f"/{other}" for other in root.children if other != name]
        beside = [tree.groups[path].values for path in paths if path in tree.groups]
        level = observed.level(Level(f"/{name}", 0), own.values, beside, machine.memory)
        return observed.among_threads(level, root.loose, machine.cpus // 1000, machine.unified)
    return None


def with_weight(tree: NodeTree, path: str, weight: int, unified: bool) -> NodeTree:
    """The tree in which the cgroup there has this weight."""
    seen = tree.groups[path]
    values = {**seen.values, scale_of(unified).file: str(weight)}
    return replace(tree, groups={**tree.groups, path: seen._replace(values=values)})


def scale_of(unified: bool) -> Scale:
    """The weights of cgroup v2, or of v1."""
    return UNIFIED if unified else LEGACY
