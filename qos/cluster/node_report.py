"""What a node says of itself: which promises it keeps, for how many pods, under which pressure. Pure data.

The agent fills it; adapters.kubernetes.node_qos has it as the custom resource NodeQoS.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from qos import keys
from qos.cluster.network_state import NetworkState
from qos.cluster.objects import Resources

LEVELS: Final = ("None", "Some", "High")
"""How much processes wait for a resource, coarsely."""


@dataclass(frozen=True, slots=True)
class PromiseState:
    """Whether this node enforces a promise (qos.plan.controller.Keeps.promise); found out by doing it once.

    `file`: the kernel file that keeps it here, "" none. `message`: why not, or what is done instead.
    """

    promise: str
    enforced: bool
    file: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class PolicyState:
    """What a policy's pods on this node really have. `key`: namespace/name.

    `pods`: those with a container that runs; `applied`: all settings of all their containers are written;
    `verified`: of these, read back as planned at the last check. `message`: the first problem, "" none.
    `deficit_seconds`: in which a pod wanted a resource and received less than its floor, since this
    process of the agent first saw the policy: a restart begins at 0, the error budgets do not.
    """

    key: str
    uid: str
    pods: int = 0
    applied: int = 0
    verified: int = 0
    message: str = ""
    deficit_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class UsageState:
    """What the node uses, and each of its pods by namespace/name: CPU as a mean, memory without idle cache.

    `measured`: when, seconds since the epoch by the node's clock. Canonical units. A pod that nobody has
    measured yet is not there.
    """

    measured: float
    node: Resources
    pods: Mapping[str, Resources] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeReport:
    """A node. `cgroup`: v1, v2 or hybrid; `runtime`: such as containerd 2.1.4.

    `pressure`: cpu, memory, io -> one of LEVELS. `repaired`: settings that had drifted and were put back, in
    the last hour; `fights`: files and interfaces that somebody keeps changing back, left alone for now.
    `not_ready`: why the agent cannot keep promises now, "" when it can. `observing`: it writes nothing.
    `allocatable`: what all pods together, or what runs beside them, lack of their CPU; "" nothing, None: it
    is not known.
    `network`: None where the agent keeps no floors of it. `usage`: None where it is not measured yet.
    """

    agent_version: str
    kernel: str
    cgroup: str
    runtime: str
    promises: tuple[PromiseState, ...] = ()
    pressure: Mapping[str, str] = field(default_factory=dict)
    repaired: int = 0
    fights: int = 0
    policies: tuple[PolicyState, ...] = ()
    not_ready: str = ""
    observing: bool = False
    allocatable: str | None = None
    network: NetworkState | None = None
    usage: UsageState | None = None


class NodeCondition(NamedTuple):
    """A condition of a NodeQoS, without its time."""

    type: str
    status: str
    reason: str
    message: str


def conditions(report: NodeReport) -> Iterator[NodeCondition]:
    """The conditions that follow from the report, in reading order."""
    if report.observing:
        text = "the agent only observes: it plans and measures, and writes nothing"
        yield NodeCondition(keys.READY, "False", "Observing", text)
    elif report.not_ready:
        yield NodeCondition(keys.READY, "False", "AgentNotReady", report.not_ready)
    else:
        yield NodeCondition(keys.READY, "True", "AgentAtWork", "the agent applies, checks and repairs")
    behind = [one for one in report.policies if one.applied < one.pods]
    first = next((f"{one.key}: {one.message}" for one in behind if one.message), "")
    if first:
        yield NodeCondition(keys.APPLIED, "False", "PlanNotApplied", first)
    elif behind:
        yield NodeCondition(keys.APPLIED, "Unknown", "InProgress", f"{behind[0].key}: not applied yet")
    else:
        yield NodeCondition(keys.APPLIED, "True", "AllApplied", "every pod with a policy has its settings")
    if report.fights:
        text = f"somebody keeps changing {report.fights} settings back: see the agent's log for which"
        yield NodeCondition(keys.UNDISTURBED, "False", "Fight", text)
    else:
        yield NodeCondition(keys.UNDISTURBED, "True", "NoFight", "nobody keeps changing settings back")
    if report.allocatable:
        yield NodeCondition(keys.ALLOCATABLE_KEPT, "False", "WeightOfAllPods", report.allocatable)
    elif report.allocatable is not None:
        text = "allocatable CPU reaches the pods, and what is reserved the rest, under full contention"
        yield NodeCondition(keys.ALLOCATABLE_KEPT, "True", "WeightOfAllPods", text)

    if report.network is not None:
        yield from _of_network(report.network)


def _of_network(network: NetworkState) -> Iterator[NodeCondition]:
    obstacle = network.obstacle
    if obstacle is None:
        text = "what pods send is shaped where it leaves the node"
        yield NodeCondition(keys.NETWORK_KEPT, "True", "Shaped", text)
    else:
        yield NodeCondition(keys.NETWORK_KEPT, "False", obstacle.reason, obstacle.message)
    if network.contradictions:
        text = "; ".join(network.contradictions)
        yield NodeCondition(keys.NETWORK_CONSISTENT, "False", "Contradiction", text)
    else:
        text = "the link has what is configured of it"
        yield NodeCondition(keys.NETWORK_CONSISTENT, "True", "NoContradiction", text)


def settled(report: NodeReport) -> NodeReport:
    """The report without the figures that always change: two reports that are then equal say the same about
    floors.
    """
    calm = tuple(replace(one, deficit_seconds=0.0) for one in report.policies)
    return replace(report, pressure={}, repaired=0, policies=calm, usage=None)
