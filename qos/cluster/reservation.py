"""Koordinator's Reservation, as it is read and as the ledger needs it; what pods may use one. Pure.

Source: koordinator-sh/koordinator, apis/scheduling/v1alpha1/reservation_types.go and pkg/util/reservation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from qos import keys
from qos.cluster.objects import (
    Demand,
    Node,
    NodePredicate,
    NodeSelectorTerm,
    OwnerFit,
    PlacementMode,
    Pod,
    Requirement,
    Resources,
    Selector,
    Taint,
    Toleration,
)
from qos.cluster.precedence import PriorityClasses, Problem
from qos.cluster.resolve import slot_vector
from qos.cluster.selectors import admits, matches

PENDING, AVAILABLE, SUCCEEDED, FAILED = "Pending", "Available", "Succeeded", "Failed"
OVER: Final = (SUCCEEDED, FAILED)
"""Phases in which nothing is held any more; none follows them."""
DEFAULT_TTL_SECONDS: Final = 24 * 3600.0
NO_PREFERENCE: Final = NodePredicate()


@dataclass(frozen=True, slots=True)
class ControllerRef:
    """A controlling owner of pods: all that is stated must be so; "" states nothing."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    namespace: str = ""

    def controls(self, pod: Pod) -> bool:
        """Whether it is the pod's."""
        if self.namespace not in ("", pod.namespace) or pod.controller is None:
            return False
        stated = (self.kind, self.name, self.uid, self.api_version)
        one = pod.controller
        real = (one.kind, one.name, one.uid, one.api_version)
        return all(said in ("", is_) for said, is_ in zip(stated, real, strict=True))


@dataclass(frozen=True, slots=True)
class PodOwner:
    """An entry of spec.owners: pods for which all that it states is so. Stating nothing it is any pod."""

    uid: str = ""
    name: str = ""
    namespace: str = ""
    controller: ControllerRef | None = None
    selector: Selector | None = None

    def owns(self, pod: Pod) -> bool:
        """Whether the pod may use the Reservation."""
        return (
            self.uid in ("", pod.uid)
            and self.name in ("", pod.name)
            and self.namespace in ("", pod.namespace)
            and (self.controller is None or self.controller.controls(pod))
            and (self.selector is None or matches(self.selector, pod.labels))
        )


@dataclass(frozen=True, slots=True)
class Reserved:
    """What the ledger must know of a demand that is a Reservation: its pods, and how they choose it.

    `node`: where it is Available, "" before that: nobody may use it then. `order`: lower first, 0 last.
    `shared`: several pods use it, and what is held is what they leave of this; None: one pod uses it up.
    """

    name: str
    uid: str
    owners: tuple[PodOwner, ...]
    node: str = ""
    order: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    shared: Resources | None = None

    def left(self, taken: Iterable[Resources]) -> dict[str, int]:
        """What pods that take so much leave of what is shared; room for one more pod always."""
        assert self.shared is not None, "it is used up by its first pod"
        left = dict(self.shared)
        for amounts in taken:
            for name in left:
                left[name] = max(0, left[name] - amounts.get(name, 0))
        return left | {keys.PODS: 1}

    def admits(self, pod: Pod) -> bool:
        """Whether the pod may come to use it: an owner, which it tolerates and selects."""
        if self.unschedulable or pod.labels.get(keys.RESERVATION_IGNORED_LABEL) == "true":
            return False
        wanted = pod.reservation_affinity or NO_PREFERENCE
        itself = Node(self.name, self.uid, {}, labels=self.labels, taints=self.taints)
        return self.owned_by(pod) and admits(wanted, itself)

    def owned_by(self, pod: Pod) -> bool:
        """Whether one of its owners is the pod."""
        return any(owner.owns(pod) for owner in self.owners)


@dataclass(frozen=True, slots=True)
class Reservation:
    """A Reservation as the API server has it.

    `vector`: its template's effective request. `priority`: the template's, or what the Reservation's label
    says, None: neither. `expires`: when it ends, seconds since the epoch, None: never. `phase`, `node`: as
    its status says. `unheeded`: what of it is not honoured, for people.
    """

    name: str
    uid: str
    generation: int
    resource_version: str
    created: float
    vector: Resources
    where: NodePredicate
    owners: tuple[PodOwner, ...]
    node_name: str = ""
    priority: int | None = None
    priority_class_name: str = ""
    expires: float | None = None
    once: bool = True
    restricted: bool = False
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    order: int = 0
    phase: str = ""
    node: str = ""
    unheeded: tuple[str, ...] = ()
    status: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """That of its demand: no namespace is empty, so it is no policy's."""
        return key_of(self.name)

    @property
    def namespace(self) -> str:
        """It is in none."""
        return ""

    @property
    def over(self) -> bool:
        """Whether its status says that it holds nothing any more."""
        return self.phase in OVER

    def expired(self, now: float) -> bool:
        """Whether its end has come; `now` in seconds since the epoch."""
        return self.expires is not None and self.expires <= now


def key_of(name: str) -> str:
    """The key of a Reservation's demand, by its name."""
    return f"/{name}"


def is_reservation(key: str) -> bool:
    """Whether a demand's key is a Reservation's."""
    return key.startswith("/")


def demand_of(one: Reservation, classes: PriorityClasses) -> Demand | Problem:
    """One slot, Pinned: anywhere its template allows until it is Available, and on that node from then on."""
    priority = _priority(one, classes)
    if isinstance(priority, Problem):
        return priority
    if not one.vector:
        return Problem("NothingReserved", "spec.template requests nothing: state requests of its containers")
    vector = slot_vector({}, one.vector)
    return Demand(
        key=one.key,
        namespace=one.namespace,
        selector=Selector(),
        vector=vector,
        desired=1,
        priority=priority,
        created=one.created,
        mode=PlacementMode.PINNED,
        owner_fit=OwnerFit.RESTRICTED if one.restricted else OwnerFit.ALIGNED,
        where=_where(one),
        reserved=Reserved(
            name=one.name,
            uid=one.uid,
            owners=one.owners,
            node=one.node,
            order=one.order,
            labels=one.labels,
            taints=one.taints,
            unschedulable=one.unschedulable,
            shared=None if one.once else vector,
        ),
    )


def _where(one: Reservation) -> NodePredicate:
    """Once Available it stays on its node, whatever becomes of the node's labels and taints."""
    if one.node:
        return NodePredicate(affinity=(_named(one.node),), tolerations=(Toleration(operator="Exists"),))
    if not one.node_name:
        return one.where
    # As a pod with spec.nodeName: no scheduler asks for taints then, but the node must be fit for it.
    return NodePredicate(one.where.node_selector, (_named(one.node_name),), one.where.tolerations)


def _named(node: str) -> NodeSelectorTerm:
    return NodeSelectorTerm(fields=(Requirement("metadata.name", "In", (node,)),))


def _priority(one: Reservation, classes: PriorityClasses) -> int | Problem:
    """Its own, its class's, or, where it states neither, the highest: nobody takes its place."""
    priority = one.priority
    if priority is None and one.priority_class_name:
        known = classes.by_name.get(one.priority_class_name)
        if known is None:
            return Problem("PriorityClassNotFound", f"PriorityClass {one.priority_class_name} does not exist")
        priority = known.value
    if priority is None:
        return classes.highest
    if priority > classes.highest:
        return Problem(
            "PriorityTooHigh",
            f"its priority is {priority}, and the extender allows at most {classes.highest}: state a lower "
            "one, or ask for a higher maxPolicyPriority",
        )
    return priority
