"""Policies, profiles and workloads as the domain sees them; parsed at the edge from custom resources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from qos.bandwidth import UNLIMITED, Band, Limits
from qos.cluster.objects import (
    Keeper,
    NodeEnforcement,
    NodePredicate,
    OwnerFit,
    PlacementMode,
    Resources,
    Selector,
    Spread,
)
from qos.cluster.remembered import NOTHING, Remembered
from qos.cluster.volumes import NO_MOUNTS, Mounts
from qos.promises import Overrides

_OWN_KINDS: Final = {"apps": ("Deployment", "StatefulSet", "ReplicaSet"), "batch": ("Job",)}
ANYWHERE: Final = NodePredicate()
"""Every node without taints."""
FIRST_MOMENT: Final = 0
LAST_MOMENT: Final = 253_402_214_400
"""Seconds since the epoch between which a policy's end lies: the years that can be written in UTC."""


@dataclass(frozen=True, slots=True)
class ScaleTarget:
    """The workload whose replicas are the slots."""

    api_version: str
    kind: str
    name: str

    @property
    def group(self) -> str:
        """Its API group, "" for core."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        """Its version within the group."""
        return self.api_version.rpartition("/")[2]

    @property
    def full_kind(self) -> str:
        """The kind, with its group where that is none of Kubernetes' own: two groups may have one kind."""
        own = not self.group or self.kind in _OWN_KINDS.get(self.group, ())
        return self.kind if own else f"{self.kind}.{self.group}"


@dataclass(frozen=True, slots=True)
class Surge:
    """Slots beyond the replicas, for rollouts: a count, or a percentage of the replicas, rounded up."""

    value: int
    percent: bool = False

    def of(self, replicas: int) -> int:
        """The number of extra slots for this number of replicas."""
        return -(-replicas * self.value // 100) if self.percent else self.value


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """A HorizontalPodAutoscaler: to how many replicas it may scale its target."""

    namespace: str
    name: str
    target: ScaleTarget
    maximum: int

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Policy:
    """A MinimalReservationPolicy. Exactly one of `count`, `scale_target` is set.

    `floor` and `limit` have bandwidth as keys.BANDWIDTHS, in bits a second. `expires`: when all holds are
    released, seconds since the epoch; None: never. `headroom`: slots up to what
    autoscalers may scale to. `survives`: the loss of so many nodes, by
    `max_slots_per_node` more slots for each. `once`: a slot is used up by its first pod. `delay`: for
    so many seconds a slot outlives its pod. `remembered`: what its status says of that. `keeper`: None
    for the installation's (qos.cluster.keeping).
    """

    key: str
    namespace: str
    name: str
    uid: str
    generation: int
    resource_version: str
    created: float
    selector: Selector
    floor: Resources
    limit: Resources = field(default_factory=dict)
    profile_name: str = ""
    priority_class_name: str = ""
    suspend: bool = False
    expires: float | None = None
    once: bool = False
    delay: float = 0.0
    owner_fit: OwnerFit = OwnerFit.ALIGNED
    count: int | None = None
    scale_target: ScaleTarget | None = None
    surge: Surge = Surge(0)
    headroom: bool = False
    mode: PlacementMode = PlacementMode.FLOATING
    where: NodePredicate = ANYWHERE
    spread: tuple[Spread, ...] = ()
    inherit_from_workload: bool = False
    max_slots_per_node: int | None = None
    survives: int = 0
    enforcement: NodeEnforcement = NodeEnforcement.BEST_EFFORT
    keeper: Keeper | None = None
    status: Mapping[str, Any] = field(default_factory=dict)
    remembered: Remembered = NOTHING

    @property
    def remembers(self) -> bool:
        """Whether its status remembers who fills slots."""
        return self.once or self.delay > 0

    def expired(self, now: float) -> bool:
        """Whether its end has come; `now` in seconds since the epoch."""
        return self.expires is not None and self.expires <= now


@dataclass(frozen=True, slots=True)
class Profile:
    """A QoSProfile: its class, its overrides, and the PriorityClass of policies that name none.

    `band`: of its pods' traffic; None: the class's. `limits`: of each pod's.
    """

    name: str
    class_name: str
    priority_class_name: str = ""
    overrides: Overrides = field(default_factory=Overrides)
    band: Band | None = None
    limits: Limits = UNLIMITED


@dataclass(frozen=True, slots=True)
class Workload:
    """What a scale target asks for: replicas, and its pod template's requests and placement.

    `kind`: ScaleTarget.full_kind. `one_per_node`: the template refuses its own kind on one host (required pod
    anti-affinity on kubernetes.io/hostname). `selected`: labels of its pods; None: not known. `templated`:
    False where only the scale subresource is known of it, and no pod template.
    """

    namespace: str
    kind: str
    name: str
    replicas: int
    requests: Resources
    where: NodePredicate = ANYWHERE
    spread: tuple[Spread, ...] = ()
    one_per_node: bool = False
    selected: Mapping[str, str] | None = field(default_factory=dict)
    templated: bool = True
    mounts: Mounts = NO_MOUNTS
