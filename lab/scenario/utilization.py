"""How much of what could be in use was in use, over a run, by what the watches showed."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from lab.scenario.observation import Observation


def utilization(seen: Observation, resource: str) -> float:
    """The requests of pods on nodes, of what was asked for and there, both summed up over time; 0..1.

    From the first pod until the last change of one. A pod asks from its creation and takes from its bind on,
    until it is gone. What nodes offer is taken as it is now.
    """
    offered = sum(node.allocatable.get(resource, 0) for node in seen.nodes.values())
    asked, taken = defaultdict[float, int](int), defaultdict[float, int](int)
    for record in seen.pods.values():
        amount = record.pod.requests.get(resource, 0)
        for changes, begins in ((asked, record.created), (taken, record.bound)):
            if begins is not None:
                changes[begins] += amount
                if record.gone is not None:
                    changes[record.gone] -= amount
    used = usable = 0.0
    wants = has = 0
    for now, then in pairwise(sorted({*asked, *taken})):
        wants, has = wants + asked.get(now, 0), has + taken.get(now, 0)
        used += has * (then - now)
        usable += min(wants, offered) * (then - now)
    return used / usable if usable else 1.0
