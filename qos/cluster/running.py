"""Pods as rescheduling sees them: where they may run, what speaks against moving them, what was done before.

Source of the priority bands and of the order of classes: koordinator-sh/koordinator, apis/extension.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from qos.cluster.objects import NodePredicate, Pod, Resources

BANDS: Final = ("koord-free", "koord-batch", "koord-mid", "koord-prod")
"""Koordinator's priority classes, the least important first."""
PROD: Final = BANDS.index("koord-prod")
CLASSES: Final = ("BE", "LS", "LSR", "LSE", "SYSTEM")
"""Classes, the least important first."""
QUALITIES: Final = ("BestEffort", "Burstable", "Guaranteed")
"""Kubernetes' QoS classes, the least important first."""
NEVER: Final = 2**31 - 1
"""The eviction cost of a pod that nobody may evict."""


@dataclass(frozen=True, slots=True)
class Moved:
    """What is known of a pod that came in another's place by a migration.

    `at`: when, `decided`: in which round, seconds since the epoch. `times`: how often it has been moved in a
    row. `own`: what the pod used before, `node`: what the target was then expected to use, it included, and
    what was decided before it in the same round.
    """

    at: float
    times: int
    own: Resources
    node: Resources
    decided: float = 0.0


@dataclass(frozen=True, slots=True)
class RunningPod:
    """A pod on a node. `band`, `quality`, `rank`: places in BANDS, QUALITIES, CLASSES.

    `local`: it has an emptyDir or a hostPath. `claims`: it mounts claims. `tied`: why other pods or the node
    decide where it may run, "" if they do not. `floor`: a policy keeps a floor for it.
    """

    pod: Pod
    where: NodePredicate = field(default_factory=NodePredicate)
    ready: bool = True
    band: int = PROD
    quality: int = 1
    rank: int = 1
    deletion_cost: int = 0
    eviction_cost: int = 0
    local: bool = False
    claims: bool = False
    tied: str = ""
    floor: bool = False
    moved: Moved | None = None

    @property
    def workload(self) -> str:
        """UID of what controls it, "" nothing."""
        return self.pod.controller.uid if self.pod.controller else ""


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """What a node used, in canonical units. `at`: when its report was last seen to change."""

    at: float
    usage: Resources = field(default_factory=dict)
