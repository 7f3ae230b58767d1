"""The configuration of rescheduling: Koordinator's LowNodeLoad by its names, and what is ours."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints, model_validator

from adapters.configuration import Section
from qos.cluster.objects import Requirement
from qos.cluster.objects import Selector as LabelSelector
from rescheduling.settings import Limits, Pool, Settings, Thresholds

Percent = Annotated[float, Field(ge=0, le=100)]
Percents = dict[str, Percent]
Part = Annotated[str, StringConstraints(pattern=r"^(100|[1-9]?[0-9])%$")]
_ALWAYS_SPARED: Final = ("kube-system", "kube-public", "kube-node-lease", "j10ce-system")


class RescheduleMode(Enum):
    """Whether anything is moved."""

    OFF = "Off"
    PREVIEW = "Preview"
    ACTIVE = "Active"


class Expression(Section):
    """An expression of a label selector."""

    key: str = Field(min_length=1, description="The label.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(description="As Kubernetes has it.")
    values: list[str] = Field(default=[], description="Of In and NotIn.")


class Selector(Section):
    """A label selector; an empty one selects all."""

    match_labels: dict[str, str] = Field(default={}, description="Labels that must have these values.")
    match_expressions: list[Expression] = Field(default=[], description="Further expressions.")

    def read(self) -> LabelSelector:
        """As the domain has it."""
        exact = [Requirement(key, "In", (value,)) for key, value in sorted(self.match_labels.items())]
        more = [Requirement(one.key, one.operator, tuple(one.values)) for one in self.match_expressions]
        return LabelSelector((*exact, *more))


class AnomalyCondition(Section):
    """When a node that is high counts as abnormal."""

    consecutive_abnormalities: int = Field(
        default=5, ge=1, description="Reports in a row that must be exceeded; 1: at once."
    )
    consecutive_normalities: int = Field(
        default=3, ge=0, description="Reports in a row, not high, that must be exceeded to be normal again."
    )


class NodePool(Section):
    """Nodes that are compared with each other."""

    name: str = Field(min_length=1, description="For people.")
    node_selector: Selector = Field(default=Selector(), description="Which nodes; a node is in the first.")
    use_deviation_thresholds: bool = Field(
        default=False, description="Thresholds are distances from the mean of the pool, percentage points."
    )
    low_thresholds: Percents = Field(
        default={"cpu": 45.0, "memory": 55.0}, description="A node below all of these is low; percent."
    )
    high_thresholds: Percents = Field(
        default={"cpu": 65.0, "memory": 75.0}, description="A node above any of these is high; percent."
    )
    prod_low_thresholds: Percents = Field(default={}, description="The same of what prod pods use.")
    prod_high_thresholds: Percents = Field(default={}, description="The same of what prod pods use.")
    resource_weights: dict[str, Annotated[int, Field(ge=0)]] = Field(
        default={}, description="What counts more in which node comes first; else 1."
    )
    anomaly_condition: AnomalyCondition = Field(
        default=AnomalyCondition(), description="When a high node counts as abnormal."
    )

    @model_validator(mode="after")
    def _pairs(self) -> NodePool:
        for low, high, what in (
            (self.low_thresholds, self.high_thresholds, ""),
            (self.prod_low_thresholds, self.prod_high_thresholds, "prod "),
        ):
            if low.keys() != high.keys():
                raise ValueError(f"{what}low and high thresholds name different resources; name the same")
        return self

    def gaps(self) -> list[tuple[str, float]]:
        """How far low and high are apart, by resource, percentage points."""
        pairs = (
            (self.low_thresholds, self.high_thresholds),
            (self.prod_low_thresholds, self.prod_high_thresholds),
        )
        sign = 1 if self.use_deviation_thresholds else -1
        return [(name, high[name] + sign * low[name]) for low, high in pairs for name in high]

    def read(self) -> Pool:
        """As the domain has it."""
        return Pool(
            self.name,
            self.node_selector.read(),
            Thresholds(self.low_thresholds, self.high_thresholds),
            Thresholds(self.prod_low_thresholds, self.prod_high_thresholds),
            self.use_deviation_thresholds,
            self.resource_weights,
            self.anomaly_condition.consecutive_abnormalities,
            self.anomaly_condition.consecutive_normalities,
        )


class Namespaces(Section):
    """Whose pods may be moved."""

    include: list[str] = Field(default=[], description="Only these; empty: all.")
    exclude: list[str] = Field(
        default=[], description=f"Never these, and never those of {', '.join(_ALWAYS_SPARED)}."
    )


class Rescheduling(Section):
    """Load-aware rescheduling (docs/rescheduling.md)."""

    mode: RescheduleMode = Field(
        default=RescheduleMode.OFF, description="`Off`; `Preview`: says what it would do; `Active`: does it."
    )
    interval_seconds: float = Field(default=60.0, ge=1, description="Between two rounds.")
    node_pools: list[NodePool] = Field(
        default=[NodePool(name="default")], min_length=1, description="Nodes, and their thresholds."
    )
    pod_migration_jobs: bool = Field(
        default=False,
        description="Carry out PodMigrationJobs, too; not where koord-descheduler does. With `Active`.",
    )
    ttl_seconds: float = Field(
        default=300.0,
        ge=1,
        description="Until a moved pod must have its new place, and as long again until it must be ready.",
    )
    number_of_nodes: int = Field(
        default=0, ge=0, description="Nothing moves unless more nodes than this are low."
    )
    node_metric_expiration_seconds: float = Field(
        default=180.0, gt=0, description="An older report of a node says nothing."
    )
    fresh_percent: Percent = Field(
        default=80.0, description="Nothing moves in a pool of whose nodes fewer than this have reported."
    )
    change_percent: Percent = Field(
        default=10.0,
        description="A load that differs by less has not changed; targets stay so far below high.",
    )
    settle_seconds: float = Field(
        default=120.0, ge=0, description="How long after a migration reports do not show it yet."
    )
    cooldown_seconds: float = Field(
        default=300.0, ge=0, description="Until a pod may be moved again; doubled with each time."
    )
    evictable_namespaces: Namespaces = Field(default=Namespaces(), description="Whose pods may be moved.")
    pod_selectors: list[Selector] = Field(
        default=[], description="Only pods that one of these selects; empty: all."
    )
    evict_local_storage_pods: bool = Field(
        default=False, description="Move pods with an emptyDir or a hostPath, too."
    )
    ignore_pvc_pods: bool = Field(default=True, description="Leave pods alone that mount claims.")
    max_migrating_per_node: int = Field(default=2, ge=1, description="Of a node at a time, from it or to it.")
    max_migrating_per_namespace: int | None = Field(
        default=None, ge=1, description="Of a namespace at a time."
    )
    max_migrating_per_workload: int | Part | None = Field(
        default=None, description="Of a workload at a time; without: 1 of fewer than 4, 2 up to 10, else 10%."
    )
    max_unavailable_per_workload: int | Part | None = Field(
        default=None, description="How many of it may be not ready, those under way included; likewise."
    )
    max_migrations_per_minute: int = Field(default=10, ge=1, description="Of all, that begin in a minute.")

    @model_validator(mode="after")
    def _room(self) -> Rescheduling:
        if self.pod_migration_jobs and self.mode is not RescheduleMode.ACTIVE:
            raise ValueError(f"podMigrationJobs is true and mode {self.mode.value}: jobs need mode Active")
        names = [one.name for one in self.node_pools]
        if len(set(names)) != len(names):
            raise ValueError("two nodePools have the same name")
        for pool in self.node_pools:
            for name, gap in pool.gaps():
                if gap < self.change_percent:
                    raise ValueError(
                        f"nodePool {pool.name}: {name}: low and high are {gap:g} apart, less than "
                        "changePercent: widen the gap, or lower changePercent"
                    )
        return self

    def read(self) -> Settings:
        """As the domain has it."""
        return Settings(
            pools=tuple(pool.read() for pool in self.node_pools),
            limits=Limits(
                self.max_migrating_per_node,
                self.max_migrating_per_namespace,
                _limit(self.max_migrating_per_workload),
                _limit(self.max_unavailable_per_workload),
                self.max_migrations_per_minute,
            ),
            fewest_low=self.number_of_nodes,
            change=self.change_percent,
            expiry=self.node_metric_expiration_seconds,
            settle=self.settle_seconds,
            cooldown=self.cooldown_seconds,
            fresh=self.fresh_percent / 100,
            namespaces=frozenset(self.evictable_namespaces.include),
            spared=frozenset((*_ALWAYS_SPARED, *self.evictable_namespaces.exclude)),
            selectors=tuple(one.read() for one in self.pod_selectors),
            claims=not self.ignore_pvc_pods,
            local=self.evict_local_storage_pods,
        )


def _limit(said: int | str | None) -> float | None:
    """A number stays whole; a percentage becomes a part."""
    return int(said[:-1]) / 100 if isinstance(said, str) else said
