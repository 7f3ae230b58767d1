"""The domain's records of Kubernetes objects: what a decision needs of them, parsed once at the edge.

Resource vectors are mappings of resource name to int in canonical units: cpu in millicores, memory,
ephemeral-storage and hugepages in bytes, everything else (pods, extended resources) in counts. A dimension
that is absent is zero. Times are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from qos.cluster.reservation import Reserved

Resources: TypeAlias = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Requirement:
    """One expression of a label or node selector; operators In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Selector:
    """A label selector, matchLabels already turned into requirements; matches when all of them do."""

    requirements: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeSelectorTerm:
    """One term of a required node affinity: expressions on labels and on metadata.name (matchFields)."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint; effects NoSchedule, PreferNoSchedule, NoExecute."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration; an empty key with Exists tolerates all, an empty effect every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


Terms: TypeAlias = tuple[NodeSelectorTerm, ...]
"""Nodes that meet one of them; without any: no node."""


@dataclass(frozen=True, slots=True)
class NodePredicate:
    """Where a pod may run, as far as we judge it: node selector, required node affinity, tolerations.

    `affinity` is None when there is none; an empty tuple matches no node, as upstream has it. `volumes`:
    where each of the volumes can be used that all its pods mount; kube-scheduler's spread constraints do not
    look at that.
    """

    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: Terms | None = None
    tolerations: tuple[Toleration, ...] = ()
    volumes: tuple[Terms, ...] = ()


@dataclass(frozen=True, slots=True)
class Spread:
    """How evenly pods lie over the values of the node label `key`, each of which is a spread domain.

    As kube-scheduler's plugin PodTopologySpread counts (KEP-895, 3022, 3094): pods of their namespace that
    `selector` matches and that are not being deleted, on nodes with the keys of all constraints of the same
    kind. No domain may come to have more than `max_skew` pods more than the emptiest one, which counts as
    empty while there are fewer than `min_domains`. `required` is DoNotSchedule; else it is a preference.
    `honor_affinity`, `honor_taints`: nodes that the pods' placement, or tolerations, do not admit are in no
    domain. `itself`: the selector matches the pods that are spread. `apart`: a required pod anti-affinity, as
    the plugin InterPodAffinity counts: no domain may have one of these pods beside those that `selector`
    matches, which count until they are gone; a node without the key is in no domain, and open to all.
    `together`: a required pod affinity, likewise: pods go to domains that have one of those; where there is
    none and they are such pods themselves, all of them to the first one's.
    """

    key: str
    max_skew: int
    selector: Selector
    required: bool = True
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False
    itself: bool = True
    apart: bool = False
    together: bool = False

    @property
    def between_pods(self) -> bool:
        """Whether it is an (anti-)affinity: each stands alone, and counts pods until they are gone."""
        return self.apart or self.together

    @property
    def keyed(self) -> bool:
        """Whether pods go only to nodes that have the key."""
        return self.required and not self.apart


@dataclass(frozen=True, slots=True)
class Node:
    """A node. `ready` is the Ready condition; `labels` as they are."""

    name: str
    uid: str
    allocatable: Resources
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True


@dataclass(frozen=True, slots=True)
class OwnerReference:
    """The controlling owner of a pod."""

    kind: str
    name: str
    uid: str
    api_version: str = ""


@dataclass(slots=True)
class Pod:
    """A pod: what the ledger and the status need.

    Never changed once made, but not frozen: that makes it twice as slow to make, and there is one an event.
    `requests` is effective (qos.cluster.requests), with pods: 1. `slot`: qos.keys.POLICY_ANNOTATION.
    `reserved_by`: UID of the Reservation that it uses, as its annotation says. `reservation_affinity`: which
    Reservations it must use one of, as if they were nodes; None: it need not.
    """

    uid: str
    namespace: str
    name: str
    requests: Resources
    labels: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    node_name: str = ""
    nominated_node_name: str = ""
    phase: str = "Pending"
    deleting: bool = False
    scheduler_name: str = "default-scheduler"
    controller: OwnerReference | None = None
    mirror: bool = False
    bound_by: str = ""
    slot: str | None = None
    created: float = 0.0
    scheduled: float = 0.0
    unschedulable_since: float = 0.0
    reserved_by: str = ""
    reservation_affinity: NodePredicate | None = None

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def terminal(self) -> bool:
        """True when the pod no longer counts against its node."""
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Anchor:
    """Pods whose own volumes can be used on the same nodes only: those that meet each of `volumes`.

    `pods`: by name, what their volumes are called.
    """

    volumes: tuple[Terms, ...]
    pods: Mapping[str, str]


class PlacementMode(Enum):
    """Whether a hold may move while its node is there."""

    FLOATING = "Floating"
    PINNED = "Pinned"


class NodeEnforcement(Enum):
    """Which nodes may hold a policy's slots: any, or only those that enforce every promise."""

    BEST_EFFORT = "BestEffort"
    STRICT = "Strict"


class Keeper(Enum):
    """What makes schedulers respect holds: kube-scheduler's calls of the verbs, or pods of ours."""

    EXTENDER = "Extender"
    PLACEHOLDERS = "Placeholders"


class OwnerFit(Enum):
    """Whether a pod that asks for more than a slot may fill it, as Koordinator's Reservation has it."""

    ALIGNED = "Aligned"
    RESTRICTED = "Restricted"


@dataclass(frozen=True, slots=True)
class Withheld:
    """Slots that a policy asks for and a budget does not give (qos.cluster.budget).

    reason: BudgetExceeded, or BudgetForbids, where the budget permits no slot of such a policy. `missing` of
    `resource`, canonical units, is what the budget lacks for all of them; `text` names the budget.
    """

    count: int
    reason: str
    budget: str
    text: str
    resource: str = ""
    missing: int = 0


@dataclass(frozen=True, slots=True)
class Demand:
    """A policy resolved against its workload, profile and PriorityClass: what the ledger shall hold.

    `vector` is one slot: max(floor, the template's effective request), pods: 1 included. `owed`: what of the
    floor a pod that fills a slot counts for even where it requests less: bandwidth.
    `desired` counts filled and held slots together, without those `withheld` by a budget; 0 when suspended.
    `slots`: what it has without budgets, suspended or not: nothing is held then, and floors stay; None: as
    desired. `asked`: how many the policy names, whatever has been used up since, or outlives its pod; None:
    as desired. `spare`: how many of those are for the loss of nodes only. `used_by`: of slots that are
    used up by their first pod, UIDs of the pods that are known for good to have one; None: slots are used
    again. `owner_fit`: RESTRICTED: of the pods it selects those own it that ask for no more than a slot.
    `priority_class` and `profile`: the names by which budgets permit it, "" for none.
    `reserved`: of a Reservation, which is no policy and in no namespace: which pods use it.
    `needs`: the promises that its nodes must enforce (NodeEnforcement.STRICT); None: any node does.
    `spread`: how its pods lie over spread domains; `where` admits only nodes with the required ones' keys.
    `anchors`: those of its pods whose own volumes keep them to some nodes; `mounted`: what the volumes of
    `where` are called.
    Demands are ordered by `qos.cluster.precedence`.
    """

    key: str
    namespace: str
    selector: Selector
    vector: Resources
    desired: int
    priority: int = 0
    created: float = 0.0
    mode: PlacementMode = PlacementMode.FLOATING
    where: NodePredicate = NodePredicate()
    max_slots_per_node: int | None = None
    needs: frozenset[str] | None = None
    slots: int | None = None
    owed: Resources = field(default_factory=dict)
    spread: tuple[Spread, ...] = ()
    anchors: tuple[Anchor, ...] = ()
    mounted: str = ""
    asked: int | None = None
    spare: int = 0
    used_by: frozenset[str] | None = None
    owner_fit: OwnerFit = OwnerFit.ALIGNED
    priority_class: str = ""
    profile: str = ""
    withheld: Withheld | None = None
    reserved: Reserved | None = None

    def admits(self, requests: Resources) -> bool:
        """Whether a pod that it selects and that requests this much may fill a slot.

        Restricted: only with no more of any resource than the slot names of it.
        """
        if self.owner_fit is OwnerFit.ALIGNED:
            return True
        return all(requests.get(name, 0) <= amount for name, amount in self.vector.items())

    @property
    def desired_of_budgets(self) -> int:
        """`desired` before any budget was looked at."""
        return self.desired + (self.withheld.count if self.withheld else 0)

    @property
    def most_seats(self) -> int:
        """How many of its pods keep their floor on the node that have it; a budget takes no pod's floor."""
        return self.desired_of_budgets if self.slots is None else self.slots

    @property
    def seats(self) -> int:
        """How many of its pods get their floor on the node."""
        return min(self.most_seats, self.desired) if self.withheld else self.most_seats


@dataclass(frozen=True, slots=True)
class DaemonSet:
    """A DaemonSet: what a node that lacks its pod is expected to give up soon."""

    uid: str
    key: str
    requests: Resources
    where: NodePredicate = NodePredicate()
