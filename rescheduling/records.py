"""What goes into a decision, and what comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from qos.cluster.objects import Node, Resources
from qos.cluster.running import NodeUsage, RunningPod


@dataclass(frozen=True, slots=True)
class Migration:
    """One pod that goes from one node to another. `pod`: namespace/name; `workload`: its controller's UID.

    `at`: the round, seconds since the epoch. `usage`: what it used; `expected`: what the target will then
    use; `times`: as Moved has it. `why`: for people. `target` "": any other node. `job`: UID of the
    PodMigrationJob that asks for it, which gives it `ttl` seconds.
    """

    pod: str
    uid: str
    workload: str
    source: str
    target: str
    usage: Resources
    requests: Resources
    expected: Resources
    times: int = 1
    why: str = ""
    prod: bool = False
    at: float = 0.0
    job: str = ""
    ttl: float = 0.0

    @property
    def namespace(self) -> str:
        """The pod's."""
        return self.pod.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Failure:
    """A migration of the workload's pod that did not end as it should, and when; in the last day."""

    workload: str
    at: float


@dataclass(frozen=True, slots=True)
class World:
    """The cluster at one moment. `pods`: by node, those that are not over; `usage`: what each used, by key.

    `under_way`: migrations that have begun and not ended; `begun`: when those of the last minute began.
    """

    nodes: Mapping[str, Node]
    reports: Mapping[str, NodeUsage]
    pods: Mapping[str, Sequence[RunningPod]]
    usage: Mapping[str, Resources]
    under_way: Sequence[Migration] = ()
    failures: Sequence[Failure] = ()
    begun: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class PoolState:
    """A pool in a round: how many of its nodes are so, and why nothing moves there, "" if it may."""

    nodes: int = 0
    unknown: int = 0
    low: int = 0
    high: int = 0
    abnormal: int = 0
    stopped: str = ""


@dataclass(frozen=True, slots=True)
class Round:
    """What a round decided. `hot`: by node that stays hot, why; `pools`: by name, of prods `NAME/prod`."""

    migrations: tuple[Migration, ...] = ()
    hot: Mapping[str, str] = field(default_factory=dict)
    pools: Mapping[str, PoolState] = field(default_factory=dict)
