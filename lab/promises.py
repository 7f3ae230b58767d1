"""What policies promise, worked out by the checker itself: slot vector, number of slots, priority.

Written apart from qos.cluster.resolve on purpose: two accounts that share their arithmetic share its
mistakes. Shared are the records of qos.cluster.objects, qos.cluster.selectors (label and node matching) and
qos.cluster.requests (a pod's effective request).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from lab.budgets import Want, left_to
from lab.changes import Namespace, PriorityClass
from lab.moored import Moored, moored
from lab.tenures import Tenures
from qos.cluster.budget import ReservationBudget
from qos.cluster.objects import NodePredicate, OwnerFit, PlacementMode, Pod, Resources, Selector, Spread
from qos.cluster.policy import Autoscaler, Policy, Profile, Workload
from qos.cluster.selectors import matches
from qos.cluster.volumes import StorageClass, Volume, VolumeClaim
from qos.keys import EGRESS_BANDWIDTH, INGRESS_BANDWIDTH, PODS, SYSTEM_CRITICAL_PRIORITY

_BANDWIDTHS = (EGRESS_BANDWIDTH, INGRESS_BANDWIDTH)


@dataclass(frozen=True, slots=True)
class Promise:
    """One policy's promise: `slots` of `vector` on nodes that `where` admits, at most `per_node` on each.

    `owed`: what its pods count for at least, whatever they request. `spread`: how its pods must lie
    (lab/evenness.py). `restricted`: no pod that asks for more than the slot fills it. `moored`: its pods
    whose own volumes keep them to some nodes (lab/moorings.py). `reservation`: UID of Koordinator's
    Reservation that it is, whose pods say so themselves.
    """

    key: str
    namespace: str
    selector: Selector
    vector: Resources
    slots: int
    priority: int
    created: float
    where: NodePredicate
    per_node: int | None = None
    pinned: bool = False
    restricted: bool = False
    owed: Resources = field(default_factory=dict)
    spread: tuple[Spread, ...] = ()
    moored: Moored = field(default_factory=dict)
    reservation: str = ""

    def owned(self, pod: Pod) -> bool:
        """Whether the pod is one that fills a slot of this policy."""
        if self.reservation:
            return bool(pod.node_name) and pod.reserved_by == self.reservation
        if pod.namespace != self.namespace or not matches(self.selector, pod.labels):
            return False
        return not self.restricted or all(pod.requests.get(r, 0) <= v for r, v in self.vector.items())

    def yields_to(self, pod: Pod) -> bool:
        """Whether slots of this policy make way for a pod: higher priority, DaemonSet, system-critical."""
        daemon = pod.controller is not None and pod.controller.kind == "DaemonSet"
        return daemon or pod.priority >= SYSTEM_CRITICAL_PRIORITY or pod.priority > self.priority


def counted(pod: Pod, promises: Iterable[Promise]) -> Pod:
    """The pod as one that requests what it counts for: bound pods that fill a slot count at their floor.

    Of which nobody has said that it fills none, fills one.
    """
    owner = next((p for p in promises if p.owned(pod)), None) if pod.node_name and pod.slot != "" else None
    more = {r: v for r, v in owner.owed.items() if v > pod.requests.get(r, 0)} if owner else {}
    return replace(pod, requests={**pod.requests, **more}) if more else pod


@dataclass(slots=True)
class Sources:
    """The objects that promises follow from, by name."""

    policies: dict[str, Policy]
    profiles: dict[str, Profile]
    classes: dict[str, PriorityClass]
    workloads: dict[tuple[str, str, str], Workload]
    budgets: dict[str, ReservationBudget] = field(default_factory=dict)
    namespaces: dict[str, Namespace] = field(default_factory=dict)
    autoscalers: dict[str, Autoscaler] = field(default_factory=dict)
    claims: dict[str, VolumeClaim] = field(default_factory=dict)
    volumes: dict[str, Volume] = field(default_factory=dict)
    storage: dict[str, StorageClass] = field(default_factory=dict)

    def promises(self, now: float, tenures: Tenures) -> list[Promise]:
        """All promises, the one that comes first when capacity is short first: priority, then age, then
        key. `now`: seconds since the epoch.
        """
        made = [self._promise(policy, now, tenures) for policy in self.policies.values()]
        ordered = sorted(made, key=lambda p: (-p.priority, p.created, p.key))
        return self._within_budgets(ordered) if self.budgets else ordered

    def _within_budgets(self, ordered: list[Promise]) -> list[Promise]:
        wants = [
            Want(one.namespace, one.vector, one.slots, self._class_of(policy), policy.profile_name)
            for one in ordered
            for policy in (self.policies[one.key],)
        ]
        rules = [budget.rules for budget in self.budgets.values()]
        labels = {one.name: one.labels for one in self.namespaces.values()}
        slots = left_to(wants, rules, labels)
        return [replace(one, slots=left) for one, left in zip(ordered, slots, strict=True)]

    def _class_of(self, policy: Policy) -> str:
        profile = self.profiles.get(policy.profile_name)
        return policy.priority_class_name or (profile.priority_class_name if profile else "")

    def _promise(self, policy: Policy, now: float, tenures: Tenures) -> Promise:
        profile = self.profiles.get(policy.profile_name)
        workload = self._workload(policy)
        follows = policy.inherit_from_workload and workload is not None
        per_node = policy.max_slots_per_node
        if follows and workload is not None and workload.one_per_node:
            per_node = 1
        return Promise(
            key=policy.key,
            namespace=policy.namespace,
            selector=policy.selector,
            vector=_slot(policy.floor, workload.requests if workload else {}),
            slots=_slots(policy, profile, workload, now, tenures, self._most(policy)),
            priority=self._priority(policy),
            created=policy.created,
            where=self._where(policy, workload, follows=follows),
            per_node=per_node,
            pinned=policy.mode is PlacementMode.PINNED,
            restricted=policy.owner_fit is OwnerFit.RESTRICTED,
            owed=_owed(policy, profile),
            spread=_spread(policy, workload, follows=follows),
            moored=self._moored(policy, workload) if workload is not None and workload.mounts.own else {},
        )

    def _where(self, policy: Policy, workload: Workload | None, *, follows: bool) -> NodePredicate:
        """With the volumes that all pods mount."""
        where = workload.where if follows and workload is not None else policy.where
        keeping = []
        for name in workload.mounts.shared if workload is not None else ():
            claim = self.claims.get(f"{policy.namespace}/{name}")
            if claim is not None and claim.volume:
                volume = self.volumes.get(claim.volume)
                keeping.append(volume.nodes if volume is not None else None)
                continue
            named = claim.class_name if claim is not None else None
            kinds = (s for s in self.storage.values() if (s.default if named is None else s.name == named))
            keeping.append(next((s.nodes for s in kinds), None))
        return replace(where, volumes=tuple(nodes for nodes in keeping if nodes is not None))

    def _moored(self, policy: Policy, workload: Workload) -> Moored:
        """Of the replicas, or as many as the workload may be scaled to."""
        replicas = max(workload.replicas, self._most(policy)) if workload.replicas else 0
        return moored(workload, replicas, self.claims, self.volumes, self.storage.values())

    def _most(self, policy: Policy) -> int:
        """To how many replicas the policy's workload may be scaled, where it asks for headroom."""
        if not policy.headroom or policy.scale_target is None:
            return 0
        named = policy.namespace, policy.scale_target.full_kind, policy.scale_target.name
        mine = (
            a for a in self.autoscalers.values() if (a.namespace, a.target.full_kind, a.target.name) == named
        )
        return max((one.maximum for one in mine), default=0)

    def _workload(self, policy: Policy) -> Workload | None:
        target = policy.scale_target
        return self.workloads.get((policy.namespace, target.full_kind, target.name)) if target else None

    def _priority(self, policy: Policy) -> int:
        name = self._class_of(policy)
        if name:
            return self.classes[name].value if name in self.classes else 0
        return next((c.value for c in self.classes.values() if c.is_default), 0)


def _owed(policy: Policy, profile: Profile | None) -> Resources:
    if profile is not None and profile.class_name == "BE":
        return {}
    return {name: policy.floor[name] for name in _BANDWIDTHS if name in policy.floor}


def _slots(
    policy: Policy,
    profile: Profile | None,
    workload: Workload | None,
    now: float,
    tenures: Tenures,
    most: int,
) -> int:
    said = _asked(policy, profile, workload, most)
    asked = tenures.slots(policy, said, now)
    over = policy.suspend or (policy.expires is not None and now >= policy.expires)
    follows = policy.inherit_from_workload and workload is not None and workload.one_per_node
    per_node = 1 if follows else policy.max_slots_per_node or 0
    spare = policy.survives * per_node if said and asked else 0
    return 0 if over else asked + spare


def _spread(policy: Policy, workload: Workload | None, *, follows: bool) -> tuple[Spread, ...]:
    """A policy without a workload has the pods with the labels that its selector names."""
    if workload is not None and follows:
        return workload.spread
    exact = {
        r.key: r.values[0] for r in policy.selector.requirements if r.operator == "In" and len(r.values) == 1
    }
    labels = (workload.selected if workload is not None else None) or exact
    return tuple(replace(one, itself=matches(one.selector, labels)) for one in policy.spread)


def _asked(policy: Policy, profile: Profile | None, workload: Workload | None, most: int) -> int:
    if profile is not None and profile.class_name == "BE":
        return 0
    if policy.count is not None:
        return policy.count
    if workload is None or workload.replicas == 0:
        return policy.surge.of(0) if workload else 0
    return max(most, workload.replicas + policy.surge.of(workload.replicas))


def _slot(floor: Mapping[str, int], requests: Mapping[str, int]) -> Resources:
    names = {*floor, *requests}
    return {name: max(floor.get(name, 0), requests.get(name, 0)) for name in names} | {PODS: 1}
