"""What rescheduling goes by, as Koordinator's LowNodeLoad names it where it has a name there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from qos.cluster.objects import Selector

MINUTE: Final = 60.0
DAY: Final = 24 * 3600.0
LEAST_PERCENT: Final = 1.0
"""Of what a node has: a pod that uses less of what is scarce there is not worth an eviction."""
ESTIMATE: Final[Mapping[str, int]] = {"cpu": 250, "memory": 200 << 20}
"""What a pod without requests is taken to use until it is measured (Koordinator's DefaultEstimator)."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Percent of allocatable, 0 to 100, by resource; of deviations from the mean in percentage points.

    A resource that either does not name is not looked at.
    """

    low: Mapping[str, float] = field(default_factory=dict)
    high: Mapping[str, float] = field(default_factory=dict)

    @property
    def resources(self) -> tuple[str, ...]:
        """What is looked at."""
        return tuple(sorted(self.low.keys() & self.high.keys()))


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes that are compared with each other; a node is in the first pool that selects it.

    `prod`: thresholds for what prod pods use together. `deviation`: thresholds are distances from the mean.
    `abnormal`, `normal`: reports in a row that must be exceeded before a node counts as abnormal, as normal
    again; `abnormal` 1: at once.
    """

    name: str
    selector: Selector = field(default_factory=Selector)
    all: Thresholds = field(default_factory=Thresholds)
    prod: Thresholds = field(default_factory=Thresholds)
    deviation: bool = False
    weights: Mapping[str, int] = field(default_factory=dict)
    abnormal: int = 5
    normal: int = 3


@dataclass(frozen=True, slots=True)
class Limits:
    """How many pods may be under way at a time; None: any number.

    `node`: from a node, and to one. `workload`, `unavailable`: a number, or a part (0 to 1) of its replicas;
    None: 1 of fewer than 4, 2 of up to 10, else a tenth. `minute`: how many may begin in a minute.
    """

    node: int = 2
    namespace: int | None = None
    workload: float | None = None
    unavailable: float | None = None
    minute: int = 10


@dataclass(frozen=True, slots=True)
class Settings:
    """All of it. Times in seconds.

    `fewest_low`: nothing moves unless more nodes than this are low. `change`: percentage points; a load that
    differs by less has not changed, and a target keeps so far below high. `expiry`: an older report says
    nothing. `settle`: how long after a migration reports do not yet show it. `cooldown`: until a pod may be
    moved again, or its workload after a failure; doubled each time. `fresh`: part of a pool's nodes that must
    have reported. `namespaces`: whose pods may be moved, empty: all but `spared`. `selectors`: pods that one
    of them matches, empty: all. `claims`, `local`: pods that mount claims, or local storage, may be moved.
    """

    pools: tuple[Pool, ...]
    limits: Limits = field(default_factory=Limits)
    fewest_low: int = 0
    change: float = 10.0
    expiry: float = 180.0
    settle: float = 120.0
    cooldown: float = 300.0
    fresh: float = 0.8
    namespaces: frozenset[str] = frozenset()
    spared: frozenset[str] = frozenset()
    selectors: tuple[Selector, ...] = ()
    claims: bool = True
    local: bool = False
