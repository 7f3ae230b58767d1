"""MinimalReservationPolicy: a floor and how many slots of it are held; `kubectl explain mrp` shows this."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from qos.api.fields import (
    DNS_SUBDOMAIN,
    LARGEST_QUANTITY,
    LONGEST_DELAY,
    LONGEST_LIFE,
    MAX_SLOTS,
    Model,
    Moment,
    Quantity,
    Reported,
    SurgeAmount,
    cel,
    validations,
)
from qos.api.network import Limit, Network, no_less_than_floor, refuse_below_floor
from qos.api.upstream import (
    Condition,
    LabelKey,
    LabelSelector,
    LabelValue,
    ObjectMeta,
    Toleration,
    TopologySpreadConstraint,
)
from qos.cluster.remembered import MOST as MOST_REMEMBERED
from qos.keys import BANDWIDTHS, CPU, HIGHEST_USER_PRIORITY
from qos.quantity import is_whole, parse

ObjectName = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=DNS_SUBDOMAIN)]

MAX_SELECTOR_TEXT: Final = 160_000
"""Above what the largest selector of a spec comes to: 32 labels, and 32 expressions with 64 values each."""

_EXTENDED = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
RESOURCE_NAME = rf"^(cpu|memory|ephemeral-storage|hugepages-[0-9]+[KMGT]i|{_EXTENDED})$"
"""What a floor may name. pods is counted by the ledger itself; requests.* are quota names, not resources."""
_NAMES_MESSAGE = (
    "can hold only cpu, memory, ephemeral-storage, hugepages-SIZE and names such as example.com/gpu"
)
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
API_VERSION: Final = rf"^({_LABEL}([.]{_LABEL})*/)?[a-z]([-a-z0-9]*[a-z0-9])?$"
KIND: Final = r"^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$"
_NEEDS_GROUP = "without a group only ReplicationController can be scaled: write the group, such as apps/v1"
_NO_WORKLOAD = "a policy is no workload: name what runs the pods"
_STATED = "nodeSelector, tolerations and topologySpreadConstraints"
_STATES_NODES = "(has({0}.nodeSelector) || has({0}.tolerations) || has({0}.topologySpreadConstraints))"
_NEEDS_FALSE = f"placement's {_STATED} need placement.inheritFromWorkload: false with slots.scaleTargetRef"
_EMPTY_FLOOR = "a floor must name resources, network or both"
_ONCE_NEEDS_COUNT = f"consumePolicy Once needs slots.count, of at most {MOST_REMEMBERED}"
_SURVIVE_NEEDS_MOST = "surviveNodeFailures needs maxSlotsPerNode: what the loss of a node costs at most"
MOST_FAILURES: Final = 16
_HEADROOM_NEEDS_TARGET = "headroomTo needs scaleTargetRef: with count, ask for more slots"
_TWO_ENDS = "at most one of ttlSeconds and expirationTime may be set"
_BANDWIDTH_MESSAGE = "network bandwidth is stated in floor.network: egress and ingress, in bits a second"


def _refuse_what_cannot_be_held(name: str, value: int | str) -> None:
    if name in BANDWIDTHS.values():
        raise ValueError(f"resources: {name}: {_BANDWIDTH_MESSAGE}")
    reserved = name.startswith("requests.") or "kubernetes.io/" in name
    if len(name) > 317 or reserved or not re.fullmatch(RESOURCE_NAME, name):
        raise ValueError(f"resources: {name}: {_NAMES_MESSAGE}")
    if parse(name, value) <= 0:
        raise ValueError(f"resources: {name}: {value!r} must be greater than zero")
    if parse("", value) > parse("", LARGEST_QUANTITY):
        raise ValueError(f"resources: {name}: {value!r} must be at most {LARGEST_QUANTITY}")
    # With a binary suffix a fraction is common (1.5Gi), and CEL's isInteger does not see that it is whole.
    if name != CPU and not str(value).endswith("i") and not is_whole(name, value):
        raise ValueError(f"resources: {name}: {value!r}: only cpu may have a fraction")


class Floor(Model):
    """The least that each pod gets, whatever else runs."""

    model_config = ConfigDict(
        json_schema_extra=validations(cel("has(self.resources) || has(self.network)", _EMPTY_FLOOR))
    )

    resources: dict[str, Quantity] | None = Field(
        default=None,
        min_length=1,
        max_length=8,
        description=(
            "The least of each resource for one pod, each above zero: cpu, memory, ephemeral-storage, "
            "hugepages-SIZE, and extended resources such as example.com/gpu. A slot is the larger of this "
            "and what the pod template requests."
        ),
        json_schema_extra=validations(
            cel(
                f"self.all(name, size(name) <= 317 && name.matches('{RESOURCE_NAME}')"
                " && !name.startsWith('requests.') && !name.contains('kubernetes.io/'))",
                _NAMES_MESSAGE,
            ),
            cel(
                "self.all(name, name == 'cpu' || type(self[name]) == int || !isQuantity(self[name])"
                " || self[name].endsWith('i') || quantity(self[name]).isInteger())",
                "only cpu may have a fraction",
            ),
            cel(f"!self.exists(name, name in {[*BANDWIDTHS.values()]})", _BANDWIDTH_MESSAGE),
        ),
    )
    network: Network | None = Field(
        default=None,
        description=(
            "The least bandwidth of one pod, in bits a second. A slot holds it as the extended resources "
            f"{' and '.join(BANDWIDTHS.values())}, on nodes whose agent publishes them, and a pod that fills "
            "a slot counts as much there, whatever it requests."
        ),
    )

    request_policy: Literal["Raise", "Reject"] = Field(
        default="Raise",
        description=(
            "What becomes of a pod that requests less than floor.resources when it is made, or resized in "
            "place. Raise: its requests are raised to the floor, and its limits where they would be lower. "
            "Reject: it is refused. Default Raise."
        ),
    )

    @model_validator(mode="after")
    def _resources_that_can_be_held(self) -> Floor:
        if self.resources is None and self.network is None:
            raise ValueError(_EMPTY_FLOOR)
        for name, value in (self.resources or {}).items():
            _refuse_what_cannot_be_held(name, value)
        return self


class ScaleTargetRef(Model):
    """The workload whose replicas are the slots."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            cel(
                "self.apiVersion.contains('/') || self.kind == 'ReplicationController'",
                _NEEDS_GROUP,
                field=".apiVersion",
            ),
            cel("!self.apiVersion.startsWith('j10ce.io/')", _NO_WORKLOAD, field=".apiVersion"),
        )
    )

    api_version: Annotated[str, StringConstraints(max_length=317, pattern=API_VERSION)] = Field(
        description="The workload's API version, such as apps/v1."
    )
    kind: Annotated[str, StringConstraints(max_length=63, pattern=KIND)] = Field(
        description=(
            "The workload's kind: Deployment, StatefulSet, ReplicaSet, Job, or any other whose resource has "
            "the scale subresource and which the extender may read."
        )
    )
    name: ObjectName = Field(description="The workload's name; it is in the policy's namespace.")

    @model_validator(mode="after")
    def _a_workload(self) -> ScaleTargetRef:
        if "/" not in self.api_version and self.kind != "ReplicationController":
            raise ValueError(_NEEDS_GROUP)
        if self.api_version.startswith("j10ce.io/"):
            raise ValueError(_NO_WORKLOAD)
        return self


class Slots(Model):
    """How many floors are kept, filled and held together: a number, or a workload's replicas."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            cel(
                "has(self.count) != has(self.scaleTargetRef)",
                "exactly one of count and scaleTargetRef must be set",
            ),
            cel(
                "!has(self.surge) || has(self.scaleTargetRef)",
                "surge needs scaleTargetRef: with count, ask for more slots",
                field=".surge",
            ),
            cel(
                "!has(self.headroomTo) || has(self.scaleTargetRef)",
                _HEADROOM_NEEDS_TARGET,
                field=".headroomTo",
            ),
        )
    )

    count: int | None = Field(
        default=None,
        ge=0,
        le=MAX_SLOTS,
        description=(
            "The number of slots, filled and held together. Can be changed with kubectl scale. Exclusive "
            "with scaleTargetRef."
        ),
    )
    scale_target_ref: ScaleTargetRef | None = Field(
        default=None,
        description=(
            "The workload in this namespace whose replicas are the number of slots: spec.replicas, or those "
            "of its scale subresource; of a Job as many as it still runs at a time. Exclusive with count."
        ),
    )
    surge: SurgeAmount | None = Field(
        default=None,
        description=(
            "Slots beyond the replicas, for pods that a rollout starts before the old ones are gone: a "
            "number, or a percentage of the replicas, rounded up, such as 25%. Only with scaleTargetRef."
        ),
    )

    headroom_to: Literal["HPAMaximum"] | None = Field(
        default=None,
        description=(
            "HPAMaximum: hold as many slots as the maxReplicas of the HorizontalPodAutoscaler that targets "
            "the workload, the largest of several, while it has any replicas. Only with scaleTargetRef. "
            "Default: its replicas."
        ),
    )

    @model_validator(mode="after")
    def _headroom_of_a_workload(self) -> Slots:
        if self.headroom_to is not None and self.scale_target_ref is None:
            raise ValueError(_HEADROOM_NEEDS_TARGET)
        return self

    @model_validator(mode="after")
    def _one_kind(self) -> Slots:
        if (self.count is None) == (self.scale_target_ref is None):
            raise ValueError("exactly one of count and scaleTargetRef must be set")
        if self.surge is not None and self.scale_target_ref is None:
            raise ValueError("surge needs scaleTargetRef: with count, ask for more slots")
        return self


class Placement(Model):
    """On which nodes slots may be held, and whether holds may move."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            cel(
                "!(has(self.inheritFromWorkload) && self.inheritFromWorkload"
                f" && {_STATES_NODES.format('self')})",
                f"inheritFromWorkload excludes {_STATED}: they come from the pod template",
                field=".inheritFromWorkload",
            ),
            cel(
                "!has(self.surviveNodeFailures) || has(self.maxSlotsPerNode)",
                _SURVIVE_NEEDS_MOST,
                field=".surviveNodeFailures",
            ),
        )
    )

    mode: Literal["Floating", "Pinned"] = Field(
        default="Floating",
        description=(
            "Floating: a hold moves to another node when its capacity is wanted and the slot fits "
            "elsewhere. Pinned: it moves only when its node is lost. Default Floating."
        ),
    )
    node_selector: dict[LabelKey, LabelValue] | None = Field(
        default=None, max_length=32, description="Labels a node must have to hold a slot of this policy."
    )
    tolerations: list[Toleration] | None = Field(
        default=None,
        max_length=32,
        description="Taints that slots are held in spite of.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    topology_spread_constraints: list[TopologySpreadConstraint] | None = Field(
        default=None,
        max_length=4,
        description=(
            "How evenly filled and held slots lie over zones, nodes or the values of any node label: held "
            "where kube-scheduler, which counts the same pods, will let the slots' pods go."
        ),
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    inherit_from_workload: bool | None = Field(
        default=None,
        description=(
            "Take node selector, required affinity of all kinds, tolerations and topology spread constraints "
            "from the workload's pod template. Default: true with slots.scaleTargetRef, "
            "false with slots.count, where there is no template."
        ),
    )
    max_slots_per_node: int | None = Field(
        default=None,
        ge=1,
        le=MAX_SLOTS,
        description="The most slots on one node, filled and held together. Default: no limit.",
    )
    survive_node_failures: int | None = Field(
        default=None,
        ge=1,
        le=MOST_FAILURES,
        description=(
            "So many nodes may be lost at once, and as many slots as are desired are still filled or held: "
            "for each of them maxSlotsPerNode more slots are held, by count. Needs maxSlotsPerNode. Pods "
            "beyond the desired slots have no floor on the node. Default: no more slots are held."
        ),
    )

    @model_validator(mode="after")
    def _survive_counted(self) -> Placement:
        if self.survive_node_failures is not None and self.max_slots_per_node is None:
            raise ValueError(_SURVIVE_NEEDS_MOST)
        return self

    @model_validator(mode="after")
    def _inherit_or_state(self) -> Placement:
        if self.inherit_from_workload and self.states_nodes:
            raise ValueError(f"inheritFromWorkload excludes {_STATED}")
        return self

    @property
    def states_nodes(self) -> bool:
        """True when the policy itself says which nodes."""
        stated = (self.node_selector, self.tolerations, self.topology_spread_constraints)
        return any(one is not None for one in stated)


class MinimalReservationPolicySpec(Model):
    """What the policy asks for."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            cel(
                "!(has(self.slots.count) && has(self.placement) && has(self.placement.inheritFromWorkload)"
                " && self.placement.inheritFromWorkload)",
                "placement.inheritFromWorkload needs slots.scaleTargetRef: slots.count has no pod template",
                field=".placement.inheritFromWorkload",
            ),
            cel(
                "!(has(self.slots.scaleTargetRef) && has(self.placement) && "
                f"!has(self.placement.inheritFromWorkload) && {_STATES_NODES.format('self.placement')})",
                _NEEDS_FALSE,
                field=".placement",
            ),
            *(no_less_than_floor(direction) for direction in BANDWIDTHS),
            cel(
                "self.consumePolicy != 'Once' || (has(self.slots.count) && "
                f"self.slots.count <= {MOST_REMEMBERED})",
                _ONCE_NEEDS_COUNT,
                field=".consumePolicy",
            ),
            cel("!(has(self.ttlSeconds) && has(self.expirationTime))", _TWO_ENDS, field=".expirationTime"),
        )
    )

    selector: LabelSelector = Field(
        description=(
            "The pods of this namespace that fill the slots (its owners). Not empty, and immutable: make "
            "another policy instead. Of two policies that select the same pod the one of higher priority "
            "has it, then the older one."
        ),
        json_schema_extra=validations(
            cel("self == oldSelf", "is immutable: make another policy instead"),
        ),
    )
    profile_name: ObjectName | None = Field(
        default=None,
        description=(
            "The QoSProfile, whose class says what the pods may expect of a node. Needs RBAC verb `use` on "
            "that profile. With a profile of class BE nothing is held."
        ),
    )
    priority_class_name: ObjectName | None = Field(
        default=None,
        description=(
            "The PriorityClass of the holds: they yield only to pods of strictly higher priority, and "
            "policies are served in this order, the older first. Needs RBAC verb `use` on that "
            "PriorityClass, and a value of at most the extender's maxPolicyPriority. Default: the profile's, "
            "else the cluster's default."
        ),
    )
    suspend: bool = Field(default=False, description="Release all holds. Pods that run are not touched.")
    floor: Floor = Field(description="The least that each pod gets, whatever else runs.")
    limit: Limit | None = Field(
        default=None, description="The most that each pod gets, even of what is idle. Default: no limit."
    )
    slots: Slots = Field(
        description="How many slots of the floor are kept: exactly one of count, scaleTargetRef."
    )
    consume_policy: Literal["Reuse", "Once"] = Field(
        default="Reuse",
        description=(
            "What becomes of a slot whose pod ends. Reuse: it is held again for the next pod. Once: the "
            "first pod that fills it uses it up, and it is released when that pod ends, or "
            f"releaseDelaySeconds later. Once needs slots.count, of at most {MOST_REMEMBERED}. Default Reuse."
        ),
    )
    release_delay_seconds: int | None = Field(
        default=None,
        ge=0,
        le=LONGEST_DELAY,
        description=(
            "For so long a slot is held after its pod has ended, where it would be let go otherwise: with "
            "Once, or because the slots have become fewer since. The pod that comes next fills it. Default 0."
        ),
    )
    owner_fit: Literal["Aligned", "Restricted"] = Field(
        default="Aligned",
        description=(
            "Whether a pod that requests more than a slot (status.slot) fills one. Aligned: it does, and the "
            "rest comes from the node. Restricted: one that requests more of a resource that the slot names "
            "fills none, and is scheduled as any other pod; it has no floor. Default Aligned."
        ),
    )
    ttl_seconds: int | None = Field(
        default=None,
        ge=1,
        le=LONGEST_LIFE,
        description=(
            "So many seconds after metadata.creationTimestamp all holds are released, and none is made any "
            "more; pods keep their floors on the nodes. Exclusive with expirationTime. Default: never."
        ),
    )
    expiration_time: Moment | None = Field(
        default=None,
        description=(
            "From this moment on nothing is held, as with ttlSeconds. Exclusive with ttlSeconds. Default: "
            "never."
        ),
    )
    placement: Placement = Field(
        default=Placement(),
        description="On which nodes slots may be held, and whether holds may move.",
        json_schema_extra={"default": {}},
    )
    node_enforcement: Literal["BestEffort", "Strict"] = Field(
        default="BestEffort",
        description=(
            "Strict: slots are held on, and pods go to, only nodes whose NodeQoS is fresh and says that "
            "every promise of the class and the floor is enforced there. BestEffort: any node; what one "
            "cannot enforce is reported by the condition Applied. Default BestEffort."
        ),
    )
    keeper: Literal["Extender", "Placeholders"] | None = Field(
        default=None,
        description=(
            "What makes schedulers respect the holds. Extender: kube-scheduler asks the extender about every "
            "pod. Placeholders: a pod of the installation stands where each hold lies. It can be changed at "
            "any time; holds stay where they are meanwhile. Where the installation does not run it the other "
            "one keeps them, and Guarded is False, reason KeeperNotInstalled. Default: the installation's."
        ),
    )

    @model_validator(mode="after")
    def _placement_fits_slots(self) -> MinimalReservationPolicySpec:
        if self.slots.count is not None and self.placement.inherit_from_workload:
            raise ValueError(
                "placement.inheritFromWorkload needs slots.scaleTargetRef: slots.count has no pod template"
            )
        follows = self.slots.scale_target_ref is not None and self.placement.inherit_from_workload is None
        if follows and self.placement.states_nodes:
            raise ValueError(_NEEDS_FALSE)
        return self

    @model_validator(mode="after")
    def _once_counts(self) -> MinimalReservationPolicySpec:
        if self.consume_policy == "Once" and (self.slots.count is None or self.slots.count > MOST_REMEMBERED):
            raise ValueError(_ONCE_NEEDS_COUNT)
        return self

    @model_validator(mode="after")
    def _one_end(self) -> MinimalReservationPolicySpec:
        if self.ttl_seconds is not None and self.expiration_time is not None:
            raise ValueError(_TWO_ENDS)
        return self

    @model_validator(mode="after")
    def _limit_above_floor(self) -> MinimalReservationPolicySpec:
        refuse_below_floor(self.floor.network, self.limit.network if self.limit else None)
        return self

    @property
    def inherits(self) -> bool:
        """Whether placement comes from the workload's pod template, the default applied."""
        if self.placement.inherit_from_workload is None:
            return self.slots.scale_target_ref is not None
        return self.placement.inherit_from_workload


class SlotsStatus(Reported):
    """The account of slots: desired + spare = filled + held + unplaced, unless more pods run than that.

    With consumePolicy Once less those that were let go, and with releaseDelaySeconds more by those that
    outlive their pods beyond what is desired.
    """

    desired: int = Field(default=0, ge=0, description="Slots asked for.")
    spare: int = Field(
        default=0, ge=0, description="Slots beyond those, for the loss of nodes: surviveNodeFailures."
    )
    filled: int = Field(default=0, ge=0, description="Slots that a pod of this policy has taken.")
    held: int = Field(default=0, ge=0, description="Slots whose capacity is held free on a node.")
    unplaced: int = Field(default=0, ge=0, description="Slots that no node has room for.")
    consumed: int = Field(
        default=0,
        ge=0,
        description="With consumePolicy Once: slots that some pod has filled, whether it runs or has ended.",
    )


class SlotResourceStatus(Reported):
    """One resource of a slot."""

    resource: str = Field(max_length=317, description="The resource.")
    quantity: str = Field(max_length=64, description="The amount in one slot.")


class UnplacedStatus(Reported):
    """Slots that are not held, and what is missing."""

    count: int = Field(ge=1, description="The number of slots.")
    reason: str = Field(
        max_length=64,
        description=(
            "Why: Insufficient (the nodes lack the resource), Fragmented (enough in all, on no single "
            "node), NoNode (no node is eligible), MaxSlotsPerNode (every eligible node is at its limit), "
            "CapReached (the installation-wide cap), PoolCapReached (the cap of every pool of nodes that has "
            "room), Spread (where there is room, topology spread or pod affinity lets no more of them go), "
            "VolumeNodeAffinity (no room on the nodes where the volumes of their pods can be used), "
            "NodeCannotEnforce (nodeEnforcement is Strict, and nodes that would do otherwise do not enforce "
            "every promise), BudgetExceeded (a ReservationBudget leaves less than is asked), BudgetForbids "
            "(it permits no such PriorityClass or QoSProfile)."
        ),
    )
    resource: str | None = Field(default=None, max_length=317, description="The resource that is missing.")
    missing: str | None = Field(
        default=None,
        max_length=64,
        description="How much of it is missing for all of these slots, as a quantity.",
    )
    message: str | None = Field(
        default=None,
        max_length=1024,
        description=(
            "With NodeCannotEnforce the first reason, by node; with Spread the constraint, and how many pods "
            "and holds each domain has; with BudgetExceeded the budget, and what is asked, used and left."
        ),
    )


class FillerStatus(Reported):
    """A pod that fills a slot."""

    pod_uid: str = Field(alias="podUID", max_length=64, description="The pod's UID.")
    node_name: str = Field(max_length=253, description="The node it is bound to.")


class OutlivingStatus(FillerStatus):
    """A slot that is held although its pod has ended."""

    release_time: datetime = Field(description="When it is let go, unless another pod has filled it.")


class HoldStatus(Reported):
    """The holds on one node."""

    node_name: str = Field(max_length=253, description="The node.")
    slots: int = Field(ge=1, description="The number of slots held there.")


class MinimalReservationPolicyStatus(Reported):
    """What is filled and held now; the extender writes it."""

    observed_generation: int | None = Field(
        default=None, ge=0, description="The metadata.generation this was computed from."
    )
    slots: SlotsStatus | None = Field(default=None, description="The account of slots.")
    slot: list[SlotResourceStatus] | None = Field(
        default=None,
        max_length=32,
        description=(
            "One slot as it is held: of each resource the largest of the floor, what the pod template "
            "requests and what the workload's pods are seen to request, which admission may have raised."
        ),
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    unplaced: list[UnplacedStatus] | None = Field(
        default=None,
        max_length=16,
        description="The slots that are not held, by what is missing.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    filled_by: list[FillerStatus] | None = Field(
        default=None,
        max_length=MOST_REMEMBERED,
        description=(
            "With consumePolicy Once or releaseDelaySeconds: the pods that fill slots, by which it is known "
            "after a restart whose pod has ended meanwhile."
        ),
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    outliving: list[OutlivingStatus] | None = Field(
        default=None,
        max_length=MOST_REMEMBERED,
        description="Slots that are held although their pods have ended, for releaseDelaySeconds.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    owner_priority: int | None = Field(
        default=None,
        ge=-(1 << 31),
        le=HIGHEST_USER_PRIORITY,
        description=(
            "With placeholders as keeper: what the API server raises new pods of the policy's own priority, "
            "one below, to while nobody hands holds over."
        ),
    )
    survives_node_failures: int | None = Field(
        default=None,
        ge=0,
        description=(
            "With placement.surviveNodeFailures: any so many of the nodes may be lost now, and as many slots "
            "as are desired are still filled or held on the others."
        ),
    )
    holds: list[HoldStatus] | None = Field(
        default=None,
        max_length=1000,
        description=(
            "The 20 nodes with the most holds; of a Pinned policy up to 1000, which hold again after a "
            "restart. "
            "All of them are at the extender's /holds."
        ),
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    selector: str | None = Field(
        default=None,
        max_length=MAX_SELECTOR_TEXT,
        description="spec.selector as a string, for the scale subresource.",
    )
    conditions: list[Condition] | None = Field(
        default=None,
        max_length=16,
        description=(
            "Ready (all is as asked), Feasible (every slot has a place), Held (every unfilled slot is "
            "held), Guarded (kube-scheduler asks the extender), SlotsUsable (no owner waits while slots are"
            " held), Overlapping (another policy has pods that this one selects), Expired (with ttlSeconds "
            "or expirationTime: its end has come, and nothing is held), Provisioned (what the autoscaler "
            "answers that is asked for nodes, where one is), Applied (its pods have all their settings on "
            "their nodes), Verified (and they were read back there)."
        ),
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )


class MinimalReservationPolicy(Model):
    """A floor for the pods it selects, and capacity held for those that do not exist yet."""

    api_version: Literal["j10ce.io/v1alpha1"] = "j10ce.io/v1alpha1"
    kind: Literal["MinimalReservationPolicy"] = "MinimalReservationPolicy"
    metadata: ObjectMeta = ObjectMeta()
    spec: MinimalReservationPolicySpec = Field(description="What the policy asks for.")
    status: MinimalReservationPolicyStatus | None = Field(
        default=None, description="What is filled and held now; the extender writes it."
    )
