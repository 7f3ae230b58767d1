"""How many nodes kube-scheduler looks at for a pod, and how many of them an extender should be told."""

from __future__ import annotations

from typing import Final

RECOMMENDED: Final = ((5_000, 2), (1_000, 5))
"""percentageOfNodesToScore from so many nodes on, the largest clusters first; below, upstream's own rule, 0.

docs/which-pods.md has the figures. Both are what was measured: 100 names a call instead of 420 and 500.
"""
LEAST: Final = 100
"""kube-scheduler looks for no fewer (minFeasibleNodesToFind)."""


def recommended(nodes: int) -> int:
    """percentageOfNodesToScore for a cluster of so many nodes; 0: upstream's own rule."""
    return next((percentage for least, percentage in RECOMMENDED if nodes >= least), 0)


def names(nodes: int, percentage: int) -> int:
    """How many feasible nodes kube-scheduler looks for, and so sends at the most.

    Source: numFeasibleNodesToFind, pkg/scheduler/schedule_one.go of Kubernetes 1.36.
    """
    adaptive = percentage or max(50 - nodes // 125, 5)
    return nodes if nodes < LEAST else max(nodes * adaptive // 100, LEAST)


def said(nodes: int, percentage: int) -> str:
    """What to know of it for a cluster; percentage: as it is configured, or will be."""
    wanted, now = recommended(nodes), names(nodes, percentage)
    text = (
        f"{nodes} nodes, and a call of the extender names up to {now} (percentageOfNodesToScore {percentage})"
    )
    if percentage == wanted or names(nodes, wanted) >= now:
        return text
    return (
        f"{text}. --percentage-of-nodes-to-score={wanted} makes that {names(nodes, wanted)}, for more pods a "
        "second, unless most nodes' free capacity is held (docs/which-pods.md)"
    )
