"""DefaultPreemption: which pods would have to go, where, and where that costs least."""

from __future__ import annotations

from collections.abc import Mapping

from qos.cluster.objects import Pod
from simulation.parsed import PREEMPTED
from simulation.scheduler.cache import RESOLVABLE, Cache, Placed

Victims = dict[str, list[Placed]]
"""By node, most important first."""


def eligible(cache: Cache, pod: Pod, statuses: Mapping[str, str]) -> bool:
    """Whether the pod may preempt: not while victims of an earlier preemption are on their way out."""
    node = pod.nominated_node_name
    if not node or statuses.get(node, "") not in RESOLVABLE:
        return True
    return not any(
        one.pod.priority < pod.priority and one.pod.deleting and PREEMPTED in one.raw
        for one in cache.on.get(node, {}).values()
    )


def dry_run(cache: Cache, pod: Pod, statuses: Mapping[str, str]) -> Victims:
    """The victims on each node where evicting helps, in the nodes' order."""
    found: Victims = {}
    if all(one.pod.priority >= pod.priority for one in cache.placed.values()):
        return found
    for name, status in statuses.items():
        if status in RESOLVABLE and name in cache.nodes:
            victims = _on(cache, pod, name)
            if victims:
                found[name] = victims
    return found


def _on(cache: Cache, pod: Pod, name: str) -> list[Placed]:
    """Remove all of lower priority, then let back in whom there is room for, the most important first."""
    node = cache.nodes[name]
    lower = [one for one in cache.on.get(name, {}).values() if one.pod.priority < pod.priority]
    if not lower or cache.obstacle(pod, node, without=[one.pod for one in lower]):
        return []
    gone = sorted(lower, key=lambda one: (-one.pod.priority, one.pod.created, one.pod.uid))
    for one in list(gone):
        rest = [other for other in gone if other is not one]
        if not cache.obstacle(pod, node, without=[other.pod for other in rest]):
            gone = rest
    return gone


def cheapest(victims: Victims) -> str:
    """Lowest highest priority, lowest sum of priorities, fewest victims, youngest; "" for none."""
    if not victims:
        return ""

    def cost(name: str) -> tuple[float, ...]:
        pods = [one.pod for one in victims[name]]
        top = pods[0].priority
        youngest = min(pod.created for pod in pods if pod.priority == top)
        return top, sum(pod.priority + (1 << 31) for pod in pods), len(pods), -youngest

    return min(victims, key=cost)
