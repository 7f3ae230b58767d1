"""What a scenario does: its steps, one action each."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from lab.scenario.checks import Check
from lab.scenario.fields import Amounts, Model, Name, Seconds
from qos.api.upstream import Toleration, TopologySpreadConstraint

Component = Literal["extender", "standby", "kube-scheduler"]


def _default_allocatable() -> Amounts:
    return {"cpu": "8", "memory": "32Gi"}


class Taint(Model):
    """A node's taint."""

    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class NodeGroup(Model):
    """Nodes of one shape, named NAME-0, NAME-1 and so on."""

    name: Name = "node"
    count: int = Field(default=1, ge=1, le=5000)
    allocatable: Amounts = Field(default_factory=_default_allocatable, min_length=1)
    """What pods may request there; pods: 110 unless given."""
    labels: dict[str, str] = Field(default_factory=dict)
    taints: list[Taint] = Field(default_factory=list)


class Workload(Model):
    """Pods that a step creates: by themselves, or through a Deployment, StatefulSet, Job or DaemonSet."""

    name: Name
    kind: Literal["Pods", "Deployment", "StatefulSet", "Job", "DaemonSet"] = "Pods"
    count: int = Field(default=1, ge=0, le=20_000)
    """Pods, replicas or completions; a DaemonSet ignores it."""
    requests: Amounts = Field(default_factory=dict)
    shapes: list[Amounts] = Field(default_factory=list)
    """In place of requests, with kind Pods: taken in turn."""
    labels: dict[str, str] = Field(default_factory=dict)
    """On every pod, beside app: NAME."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """On every pod."""
    priority_class_name: str | None = None
    scheduler_name: str | None = None
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: list[Toleration] = Field(default_factory=list)
    topology_spread_constraints: list[TopologySpreadConstraint] = Field(default_factory=list)
    grace_seconds: int = Field(default=0, ge=0, le=600)
    """terminationGracePeriodSeconds."""
    rate: float | None = Field(default=None, gt=0, le=2000)
    """With kind Pods: so many a second. All at once unless given."""
    background: bool = False
    """With a rate: go on to the next step at once; the end of the scenario waits for it."""
    node_names: str | None = None
    """With kind Pods: set nodeName, in turn over the nodes whose name begins so. They bypass every
    scheduler.
    """
    max_surge: int | str | None = None
    """With kind Deployment: strategy.rollingUpdate.maxSurge."""
    volume_zones: list[str] = Field(default_factory=list, max_length=100)
    """With kind StatefulSet: each pod has a volume of its own, that of ordinal n is in the n-th zone."""

    @model_validator(mode="after")
    def _fields_of_the_kind(self) -> Workload:
        for field in ("shapes", "rate", "node_names"):
            if getattr(self, field) and self.kind != "Pods":
                raise ValueError(f"{field} needs kind: Pods")
        if self.volume_zones and self.kind != "StatefulSet":
            raise ValueError("volumeZones needs kind: StatefulSet")
        if self.max_surge is not None and self.kind != "Deployment":
            raise ValueError("maxSurge needs kind: Deployment")
        if bool(self.shapes) == bool(self.requests):
            raise ValueError("give exactly one of requests and shapes")
        if self.background and self.rate is None:
            raise ValueError("background needs rate")
        return self


class Scale(Model):
    """Change the replicas of a workload."""

    workload: Name
    count: int = Field(ge=0, le=20_000)


class Delete(Model):
    """Delete pods of a workload, the oldest first; all, and the workload itself, unless `count` is given."""

    workload: Name
    count: int | None = Field(default=None, ge=1)
    bound: bool | None = None
    """Only pods that are bound (true) or wait (false)."""


class Churn(Model):
    """Delete a pod of a workload and create another in its place, again and again."""

    workload: Name
    rate: float = Field(gt=0, le=500)
    seconds: Seconds
    background: bool = False


class Signal(Model):
    """Kill a component."""

    component: Component
    signal: Literal["KILL", "TERM"] = "KILL"


class Start(Model):
    """Start a component that was killed, and wait until it is ready."""

    component: Component


class Nodes(Model):
    """Existing nodes: those of a group, the last first."""

    group: Name
    count: int | None = Field(default=None, ge=1)
    """All of them unless given."""
    held: bool = False
    """Only nodes on which the policies' status shows holds."""


class TaintNodes(Nodes):
    """Nodes and the taint they get."""

    taint: Taint


class Patch(Model):
    """A JSON merge patch of one object of this scenario."""

    kind: Literal["Policy", "Budget", "Deployment", "StatefulSet", "Pod", "Node"]
    name: str
    patch: dict[str, Any]


class Fail(Model):
    """Let pods of a workload end as Failed, as a kubelet reports it, the oldest first."""

    workload: Name
    count: int = Field(ge=1)


class Bind(Model):
    """Bind waiting pods of a workload as another scheduler does: a Binding, past the extender."""

    workload: Name
    nodes: str
    """Nodes whose name begins so, in turn."""


class TenantApplies(Model):
    """A tenant creates policies: it may make any in the scenario's namespace, and has the verb use on no
    PriorityClass and no QoSProfile.
    """

    policies: list[Name] = Field(min_length=1)
    refused: str | None = None
    """Text of the refusal that each must meet; unless given each must be accepted."""


class Wait(Model):
    """Wait until all checks are true at the same moment; the scenario fails when they are not in time."""

    until: list[Check] = Field(min_length=1)
    within: Seconds = 30.0


_ACTIONS = (
    "create", "scale", "delete", "churn", "kill", "start", "add_nodes", "remove_nodes", "cordon", "uncordon",
    "taint", "patch", "fail", "bind", "wait", "pause", "expect", "remember", "apply_policies",
    "delay_answers", "tenant_applies",
)  # fmt: skip


class Step(Model):
    """One step: exactly one action."""

    says: str | None = None
    """What happens, in words; shown as progress."""
    create: Workload | None = None
    scale: Scale | None = None
    delete: Delete | None = None
    churn: Churn | None = None
    kill: Signal | None = None
    start: Start | None = None
    add_nodes: NodeGroup | None = None
    remove_nodes: Nodes | None = None
    cordon: Nodes | None = None
    uncordon: Nodes | None = None
    taint: TaintNodes | None = None
    patch: Patch | None = None
    fail: Fail | None = None
    bind: Bind | None = None
    wait: Wait | None = None
    pause: Seconds | None = None
    """Let time pass."""
    delay_answers: Seconds | None = None
    """From now on all that the API server sends to the extender, answers and watches, arrives so late; what
    the extender asks takes effect at once. 0s: no delay any more.
    """
    expect: list[Check] | None = Field(default=None, min_length=1)
    """Must be true now."""
    remember: Name | None = None
    """Remember on which nodes this policy's slots are held, for heldWhereRemembered."""
    apply_policies: list[Name] | None = None
    """Create these of the scenario's policies now; those that no step names are created before the first
    step.
    """

    tenant_applies: TenantApplies | None = None

    @model_validator(mode="after")
    def _one_action(self) -> Step:
        given = [name for name in _ACTIONS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"a step is exactly one action (given: {', '.join(given) or 'none'})")
        return self

    @property
    def creates_policies(self) -> list[str]:
        """Names of the policies that come to be, or are refused, with this step."""
        return [*(self.apply_policies or ()), *(self.tenant_applies.policies if self.tenant_applies else ())]

    @property
    def action(self) -> str:
        """The action's name."""
        return next(name for name in _ACTIONS if getattr(self, name) is not None)
