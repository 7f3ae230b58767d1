"""NodeQoS: what a node's agent reports; `kubectl explain nodeqos` shows this."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

from pydantic import Field

from qos.api.fields import Model, Reported
from qos.api.upstream import Condition, ObjectMeta

MOST_POLICIES: Final = 1000
"""An upper bound: no node runs as many pods."""

MOST_PODS: Final = 500
"""Pods whose usage is told; kubelet's usual limit is 110."""

PressureLevel = Literal["None", "Some", "High"]
LinkSource = Literal["Label", "Option", "Interface"]
TrafficKind = Literal["ToLink", "FromLink", "ToPods", "Queues"]


class NodeQoSSpec(Model):
    """Empty: a NodeQoS asks nothing of its node, it reports."""


class PromiseStatus(Reported):
    """One promise, and whether this node's kernel and runtime enforce it."""

    promise: str = Field(max_length=64, description="The promise, as docs/kernel-table.md names it.")
    enforced: bool = Field(
        description=(
            "True when the agent has written and read back its file in a cgroup made for the trial; of the "
            "network, when what is needed was done in a network namespace made for it, and is done here."
        )
    )
    file: str | None = Field(default=None, max_length=64, description="The kernel file that keeps it here.")
    message: str | None = Field(
        default=None, max_length=1024, description="Why it is not enforced, or what is done instead."
    )


class PressureStatus(Reported):
    """How much the node's processes wait (PSI), coarsely and with hysteresis; absent: not measured."""

    cpu: PressureLevel | None = Field(default=None, description="Waiting for CPU.")
    memory: PressureLevel | None = Field(default=None, description="Waiting for memory.")
    io: PressureLevel | None = Field(default=None, description="Waiting for disks.")


class PodUsageStatus(Reported):
    """What a pod uses, its containers together."""

    pod: str = Field(max_length=512, description="namespace/name of the pod.")
    cpu: str | None = Field(default=None, max_length=32, description="As the node's.")
    memory: str | None = Field(default=None, max_length=32, description="As the node's.")


class UsageStatus(Reported):
    """What the node and its pods really use; absent: not measured yet. Written once a minute at most."""

    measured_at: datetime | None = Field(
        default=None,
        description="When, by the node's clock. Others judge its age by when they saw it change.",
    )
    cpu: str | None = Field(
        default=None, max_length=32, description="CPU of all that runs here, the mean of 45 seconds (1500m)."
    )
    memory: str | None = Field(
        default=None,
        max_length=32,
        description="Memory in use, without free memory and page cache that was not used lately (6Gi).",
    )
    pods: list[PodUsageStatus] | None = Field(
        default=None,
        max_length=MOST_PODS,
        description="The same of each pod, once measured; of more than 500 those with most memory.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["pod"]},
    )


class DriftStatus(Reported):
    """Settings that did not stay as they were written."""

    repaired_last_hour: int = Field(
        default=0, ge=0, description="Settings that somebody changed and the agent put back, in an hour."
    )
    fights: int = Field(
        default=0,
        ge=0,
        description="Kernel files that somebody keeps changing back; the agent leaves them for a while.",
    )


class PolicyOnNodeStatus(Reported):
    """What a policy's pods on this node really have."""

    policy: str = Field(max_length=512, description="namespace/name of the MinimalReservationPolicy.")
    uid: str = Field(default="", max_length=64, description="Its metadata.uid.")
    pods: int = Field(default=0, ge=0, description="Its pods here with a container that runs.")
    applied: int = Field(
        default=0, ge=0, description="Those of them whose containers have all their settings."
    )
    verified: int = Field(
        default=0,
        ge=0,
        description="Those of them whose settings were read back as planned at the last check.",
    )
    message: str | None = Field(default=None, max_length=1024, description="The first problem.")
    deficit_seconds: int = Field(
        default=0,
        ge=0,
        description=(
            "Seconds in which a pod wanted a resource and received less than its floor, since the agent's"
            " process first saw the policy; 0 after it restarts; rounded up."
        ),
    )


class LinkStatus(Reported):
    """The interface through which pods leave the node, and what all of them together may send and receive."""

    interface: str = Field(max_length=15, description="Its name.")
    egress: str | None = Field(
        default=None,
        max_length=32,
        description=(
            "Bits a second that pods may send together, as a quantity (9400M): what the interface can do, "
            "less headroom. Absent: not known. What of it floors may have is in the Node's status, as "
            "j10ce.io/egress-bandwidth."
        ),
    )
    egress_source: LinkSource | None = Field(
        default=None,
        description="Who says so: Label (of the Node), Option (of the agent), Interface (measured).",
    )
    ingress: str | None = Field(
        default=None, max_length=32, description="Bits a second that pods may receive together; as egress."
    )
    ingress_source: LinkSource | None = Field(default=None, description="Who says so; as egressSource.")


class TechniqueStatus(Reported):
    """How one kind of traffic is shaped on this node: the best that its kernel can really do."""

    traffic: TrafficKind = Field(
        description=(
            "ToLink: what leaves through the link. FromLink: what comes in through it. ToPods: what each pod "
            "receives. Queues: what waits in the class of a pod."
        )
    )
    technique: str = Field(max_length=128, description="What is used for it, such as htb, tbf, fq_codel.")
    message: str | None = Field(
        default=None, max_length=1024, description="Why nothing better is used; absent: it is the best."
    )


class NetworkStatus(Reported):
    """The node's link, and how traffic on it is shaped; absent where the agent keeps no network floors."""

    link: LinkStatus | None = Field(
        default=None,
        description="The node's link; absent: nobody knows it. The condition NetworkKept says why.",
    )
    techniques: list[TechniqueStatus] | None = Field(
        default=None,
        max_length=8,
        description="How each kind of traffic is shaped, and why nothing better is used.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["traffic"]},
    )


class NodeQoSStatus(Reported):
    """What the node enforces and how it goes; written by its agent."""

    last_heartbeat: datetime | None = Field(
        default=None,
        description=(
            "When the agent last wrote this, by the node's clock. Others judge its age by when they saw it "
            "change."
        ),
    )
    agent_version: str | None = Field(default=None, max_length=64, description="The agent's version.")
    kernel_version: str | None = Field(
        default=None, max_length=128, description="The kernel, as uname has it."
    )
    cgroup_version: Literal["v1", "v2", "hybrid"] | None = Field(
        default=None,
        description="v2, v1, or hybrid: v1 controllers beside an empty unified tree, planned as v1.",
    )
    container_runtime: str | None = Field(
        default=None, max_length=128, description="The container runtime and its version, if it is known."
    )
    promises: list[PromiseStatus] | None = Field(
        default=None,
        max_length=64,
        description="What this node can enforce; a policy with nodeEnforcement Strict goes by it.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["promise"]},
    )
    pressure: PressureStatus | None = Field(
        default=None, description="How much the node's processes wait for CPU, memory and disks."
    )
    usage: UsageStatus | None = Field(
        default=None, description="What the node and its pods use; rescheduling goes by it."
    )
    drift: DriftStatus | None = Field(
        default=None, description="Settings that did not stay as they were written."
    )
    network: NetworkStatus | None = Field(
        default=None, description="The node's link, and how its traffic is shaped (docs/network.md)."
    )
    policies: list[PolicyOnNodeStatus] | None = Field(
        default=None,
        max_length=MOST_POLICIES,
        description="The policies with pods on this node; Applied and Verified of a policy are made from it.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["policy"]},
    )
    conditions: list[Condition] | None = Field(
        default=None,
        max_length=16,
        description=(
            "Ready (the agent is at work), Applied (every pod with a policy has its settings), Undisturbed "
            "(nobody keeps changing settings back), AllocatableKept (allocatable CPU reaches the pods even "
            "when all that runs beside them wants all it can get); where the agent keeps network floors, "
            "NetworkKept (what pods send is shaped) and NetworkConsistent (the link has what is configured)."
        ),
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )


class NodeQoS(Model):
    """What a node's kernel and runtime can enforce, and what its pods really have; named as the node."""

    api_version: Literal["j10ce.io/v1alpha1"] = "j10ce.io/v1alpha1"
    kind: Literal["NodeQoS"] = "NodeQoS"
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeQoSSpec | None = Field(
        default=None, description="Empty: a NodeQoS asks nothing of its node, it reports."
    )
    status: NodeQoSStatus | None = Field(
        default=None, description="What the node enforces and how it goes; written by its agent."
    )
