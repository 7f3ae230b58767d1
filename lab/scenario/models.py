"""A scenario file: the cluster, what is in it from the start, what happens, and what is expected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, model_validator

from lab.scenario.checks import Check, Expectation
from lab.scenario.fields import Model, Name
from lab.scenario.steps import NodeGroup, Step
from qos.api.budget import ReservationBudgetSpec
from qos.api.policy import MinimalReservationPolicySpec
from qos.api.profile import QoSProfileSpec


class Extender(Model):
    """The extender beside kube-scheduler."""

    enabled: bool = True
    mode: Literal["Observe", "Guard", "Strict"] = "Guard"
    standby: bool = False
    """A second one: it writes the policies' status while the first, which kube-scheduler calls, is dead."""
    cap_percent: int = Field(default=100, ge=1, le=100)
    """How much of the cluster all holds together may take. The product's default is 40."""
    binds: bool = True
    """Whether kube-scheduler binds through it; false takes bindVerb out of schedulerConfig."""
    config: dict[str, Any] = Field(default_factory=dict)
    """More fields of its configuration file (docs/extender.md); schedulerNames follow from
    schedulerConfig.
    """


class Autoscaler(Model):
    """Karpenter, which makes KWOK nodes of 4 CPUs for pods that wait, and for CapacityBuffers."""

    idle: str = Field(default="Never", pattern=r"^(Never|[0-9]+[smh])$")
    """After what time it removes a node that others can do without; Never: not at all."""


class Cluster(Model):
    """The control plane to run on."""

    scheduler_config: str = "../scheduler-config/default-scheduler.yaml"
    """A KubeSchedulerConfiguration, relative to this file. Its extenders are taken out where extender is
    disabled.
    """
    extender: Extender = Extender()
    raises_requests: bool = False
    """With the admission that raises requests to a policy's floor, or refuses pods (floor.requestPolicy)."""
    gates_gangs: bool = False
    """With the admission that gates pods of gangs; the extender needs config: {quotas: {enabled: true}}."""
    autoscaler: Autoscaler | None = None
    """With an autoscaler; the extender asks it for nodes with config: {autoscaling: {buffers: true}}."""


class PriorityClass(Model):
    """A PriorityClass."""

    name: Name
    value: int = Field(ge=-1_000_000_000, le=1_000_000_000)
    global_default: bool = False
    preemption_policy: Literal["PreemptLowerPriority", "Never"] = "PreemptLowerPriority"


class Metadata(Model):
    """The metadata of a whole manifest; a namespace is the scenario's own."""

    name: Name
    labels: dict[str, str] = Field(default_factory=dict)


class Policy(Model):
    """A MinimalReservationPolicy: its name and spec, or the whole manifest."""

    name: Name | None = None
    api_version: Literal["j10ce.io/v1alpha1"] | None = None
    kind: Literal["MinimalReservationPolicy"] | None = None
    metadata: Metadata | None = None
    spec: MinimalReservationPolicySpec

    @model_validator(mode="after")
    def _one_name(self) -> Policy:
        if (self.name is None) == (self.metadata is None):
            raise ValueError("give either name or metadata.name")
        return self

    @property
    def called(self) -> str:
        """The policy's name."""
        return self.metadata.name if self.metadata else str(self.name)


class Profile(Model):
    """A QoSProfile: its name and spec."""

    name: Name
    spec: QoSProfileSpec


class Budget(Model):
    """A ReservationBudget: its name and spec. It concerns the scenario's namespace alone, in which its
    namespaceSelector must hold as well.
    """

    name: Name
    spec: ReservationBudgetSpec


class Reservation(Model):
    """Koordinator's Reservation: its name, labels and spec. The definition is made with it."""

    name: Name
    labels: dict[str, str] = Field(default_factory=dict)
    spec: dict[str, Any]


class Quota(Model):
    """An ElasticQuota in the scenario's namespace: its name, labels, annotations and spec. The definition is
    made with it.
    """

    name: Name
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    spec: dict[str, Any]


class PodGroup(Model):
    """A PodGroup in the scenario's namespace: its name, annotations and spec. The definition is made with
    it.
    """

    name: Name
    annotations: dict[str, str] = Field(default_factory=dict)
    spec: dict[str, Any]


class Run(Model):
    """One variant: the same nodes and steps on a cluster of its own."""

    name: Name
    says: str | None = None
    policies: list[Name] | None = None
    """Which of the policies exist; all unless given."""
    extender: Extender | None = None
    """In place of cluster.extender."""
    expectations: list[Expectation] = Field(default_factory=list)
    """Beside those of the scenario."""


class Comparison(Model):
    """What the runs must have in common."""

    runs: list[Name] = Field(min_length=2)
    bound_requests_differ_at_most_percent: float = Field(ge=0, le=100)
    """The sum of the requests of all bound pods at the end, in each of the resources."""
    resources: list[str] = Field(default_factory=lambda: ["cpu", "memory"])
    says: str | None = None


class Difference(Model):
    """What of a scenario is kept otherwise by placeholders (docs/keepers.md)."""

    says: str
    """Why, in a sentence."""
    unmet: list[str] = Field(default_factory=list)
    """Expectations that need not be met then, each as its row in the results begins."""
    runs: bool = True
    """False: it cannot be run with that keeper."""


class Scenario(Model):
    """A scenario."""

    name: Name
    description: str
    cluster: Cluster = Cluster()
    nodes: list[NodeGroup] = Field(min_length=1)
    priority_classes: list[PriorityClass] = Field(default_factory=list)
    profiles: list[Profile] = Field(default_factory=list)
    budgets: list[Budget] = Field(default_factory=list)
    reservations: list[Reservation] = Field(default_factory=list)
    """The extender needs config: {koordinator: {reservations: true}}."""
    quotas: list[Quota] = Field(default_factory=list)
    """The extender needs config: {quotas: {enabled: true}}."""
    pod_groups: list[PodGroup] = Field(default_factory=list)
    """Their pods need cluster.gatesGangs to start together."""
    policies: list[Policy] = Field(default_factory=list)
    runs: list[Run] = Field(default_factory=list)
    """Variants to compare; one run of everything unless given."""
    steps: list[Step] = Field(min_length=1)
    expectations: list[Expectation] = Field(default_factory=list)
    comparisons: list[Comparison] = Field(default_factory=list)
    undecided_at_most_percent: float = Field(default=1.0, ge=0, le=100)
    """Of so many of all binds the checker may be unable to say whether they broke a floor."""
    with_placeholders: Difference | None = None
    """Where the scenario's promises differ with `--keeper placeholders`."""

    @model_validator(mode="after")
    def _names_are_known(self) -> Scenario:
        _unique("runs", [run.name for run in self.runs])
        _unique("policies", [policy.called for policy in self.policies])
        _unique("nodes", [group.name for group in self.nodes])
        _unique("steps: workload", [step.create.name for step in self.steps if step.create])
        for what, name, known in self._references():
            if name not in known:
                raise ValueError(
                    f"{what} {name!r} is not defined; there are: {', '.join(sorted(known)) or 'none'}"
                )
        return self

    def _references(self) -> Iterator[tuple[str, str, set[str]]]:
        policies = {policy.called for policy in self.policies}
        workloads = {step.create.name for step in self.steps if step.create}
        groups = {g.name for g in self.nodes} | {step.add_nodes.name for step in self.steps if step.add_nodes}
        runs = {run.name for run in self.runs}
        for run in self.runs:
            yield from (("policy", name, policies) for name in run.policies or ())
        for comparison in self.comparisons:
            yield from (("run", name, runs) for name in comparison.runs)
        for step in self.steps:
            yield from _step_references(step, policies, workloads, groups)
        for check in self.all_checks():
            if check.pods:
                yield "workload", check.pods.workload, workloads
            if check.policy:
                yield "policy", check.policy.name, policies
            if check.reservation:
                yield "reservation", check.reservation.name, {one.name for one in self.reservations}
            yield from (("workload", name, workloads) for name in check.refused_although_they_fit or ())

    def all_checks(self) -> Iterator[Check]:
        """Every check in it."""
        yield from self.expectations
        for run in self.runs:
            yield from run.expectations
        for step in self.steps:
            yield from step.expect or ()
            if step.wait:
                yield from step.wait.until

    def all_runs(self) -> list[Run]:
        """The runs; where none is given, one under the scenario's name."""
        return list(self.runs) or [Run(name=self.name)]


def _unique(what: str, names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{what} {twice[0]!r} is defined twice")


def _step_references(
    step: Step, policies: set[str], workloads: set[str], groups: set[str]
) -> Iterator[tuple[str, str, set[str]]]:
    for action in (step.scale, step.delete, step.churn, step.fail, step.bind):
        if action is not None:
            yield "workload", action.workload, workloads
    for nodes in (step.remove_nodes, step.cordon, step.uncordon, step.taint):
        if nodes is not None:
            yield "nodes", nodes.group, groups
    yield from (
        ("policy", name, policies) for name in [*step.creates_policies, *filter(None, [step.remember])]
    )
