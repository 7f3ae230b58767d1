"""From what a policy says to what the ledger shall hold. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from qos import keys
from qos.cluster.needs import needs_of
from qos.cluster.objects import Anchor, Demand, NodeEnforcement, Resources, Selector, Spread
from qos.cluster.policy import Policy, Profile, Workload
from qos.cluster.precedence import PriorityClasses, Problem, class_of, priority_of, profile_problem
from qos.cluster.remembered import NOTHING as REMEMBERED_NOTHING
from qos.cluster.selectors import matches
from qos.cluster.spreading import counting, labels_of, with_keys
from qos.cluster.volumes import NO_VOLUMES, Volumes

NOTHING: Final[Resources] = {}
MOST_CONSTRAINTS: Final = 16
"""Of a pod template: each costs a millisecond a pass at 5,000 nodes, and nobody else bounds them."""
_VALUELESS = frozenset({"Exists", "DoesNotExist"})
_VALUED = frozenset({"In", "NotIn"})


def resolve(
    policy: Policy,
    profiles: Mapping[str, Profile],
    priority_classes: PriorityClasses,
    workload: Workload | None,
    observed: Resources = NOTHING,
    *,
    now: float,
    ceiling: int | None = None,
    volumes: Volumes = NO_VOLUMES,
) -> Demand | Problem:
    """A policy's demand, or the problem that keeps it from having one.

    `workload` is the policy's scale target, None when there is none or it does not exist; `observed` is what
    its pods are seen to request, which can be more than its template says. `now`: seconds since the epoch;
    what has expired is held no more. `ceiling`: to how many replicas an autoscaler may scale the workload;
    None: there is none. `volumes`: where the volumes that its pods mount can be used.
    """
    problem = (
        _selector_problem(policy.selector)
        or profile_problem(policy, profiles)
        or _workload_problem(policy, workload)
    )
    if problem is not None:
        return problem
    profile = profiles.get(policy.profile_name)
    priority = priority_of(policy, profiles, priority_classes)
    if isinstance(priority, Problem):
        return priority
    inherited = workload if policy.inherit_from_workload else None
    spread = _spread(policy, workload, inherited)
    where = with_keys(
        inherited.where if inherited else policy.where, (one.key for one in spread if one.keyed)
    )
    mounted, told = volumes.shared(policy.namespace, workload.mounts) if workload else ((), "")
    asked = _asked(policy, workload, ceiling)
    known = policy.remembered if policy.remembers else REMEMBERED_NOTHING
    per_node = _max_per_node(policy.max_slots_per_node, inherited)
    held = not (policy.suspend or policy.expired(now))
    lasting = known.desired(asked) if held else 0
    spare = policy.survives * (per_node or 0) if asked and lasting else 0
    return Demand(
        key=policy.key,
        namespace=policy.namespace,
        selector=policy.selector,
        vector=slot_vector(policy.floor, workload.requests if workload else {}, observed),
        desired=lasting + spare,
        priority=priority,
        created=policy.created,
        mode=policy.mode,
        where=replace(where, volumes=mounted) if mounted else where,
        max_slots_per_node=per_node,
        needs=_needs(policy, profile),
        slots=known.seats(asked),
        owed=owed(policy.floor),
        spread=spread,
        anchors=_anchors(policy, workload, ceiling, volumes),
        mounted=told,
        asked=asked,
        spare=spare,
        used_by=frozenset(known.fillers) if policy.once else None,
        owner_fit=policy.owner_fit,
        priority_class=class_of(policy, profile),
        profile=policy.profile_name,
    )


def _spread(policy: Policy, workload: Workload | None, inherited: Workload | None) -> tuple[Spread, ...]:
    """The policy's own constraints, or its workload's. With slots.count no template says its pods' labels."""
    if inherited is not None:
        return inherited.spread
    return counting(policy.spread, (workload.selected if workload else None) or labels_of(policy.selector))


def _needs(policy: Policy, profile: Profile | None) -> frozenset[str] | None:
    return needs_of(policy, profile) if policy.enforcement is NodeEnforcement.STRICT else None


def slot_vector(floor: Resources, *requests: Resources) -> dict[str, int]:
    """One slot: in every dimension the largest of the floor and these effective requests, and one pod."""
    stated = (floor, *requests)
    names = set[str]().union(*stated)
    vector = {name: max(one.get(name, 0) for one in stated) for name in sorted(names)}
    return {name: amount for name, amount in vector.items() if amount > 0} | {keys.PODS: 1}


def owed(floor: Resources) -> dict[str, int]:
    """What of a floor a pod that fills a slot takes of its node whatever it requests.

    Bandwidth: hardly any pod requests it, and nobody beside the ledger counts it then.
    """
    return {name: floor[name] for name in keys.BANDWIDTHS.values() if name in floor}


def _asked(policy: Policy, workload: Workload | None, ceiling: int | None) -> int:
    if workload is None:
        return policy.count or 0
    asked = workload.replicas + policy.surge.of(workload.replicas)
    # No autoscaler touches a workload of no replicas.
    return max(asked, ceiling or 0) if policy.headroom and workload.replicas else asked


def _anchors(
    policy: Policy, workload: Workload | None, ceiling: int | None, volumes: Volumes
) -> tuple[Anchor, ...]:
    """Of the pods that the workload has or may be scaled to; claims of others stay, and wait for them."""
    if workload is None or not workload.mounts.own:
        return ()
    most = (
        max(workload.replicas, ceiling or 0) if policy.headroom and workload.replicas else workload.replicas
    )
    return volumes.anchors(policy.namespace, workload.name, workload.mounts, most)


def _max_per_node(limit: int | None, inherited: Workload | None) -> int | None:
    return 1 if inherited is not None and inherited.one_per_node else limit


def _selector_problem(selector: Selector) -> Problem | None:
    if not selector.requirements:
        return Problem("SelectorUnusable", "spec.selector selects every pod: name at least one label")
    for requirement in selector.requirements:
        operator, valued = requirement.operator, bool(requirement.values)
        if operator not in _VALUED | _VALUELESS:
            return Problem("SelectorUnusable", f"spec.selector: {operator} is no operator for labels")
        if valued != (operator in _VALUED):
            needs = "needs values" if operator in _VALUED else "takes no values"
            return Problem("SelectorUnusable", f"spec.selector: {requirement.key}: {operator} {needs}")
    return None


def _workload_problem(policy: Policy, workload: Workload | None) -> Problem | None:
    target = policy.scale_target
    if target is None:
        return None
    if workload is None:
        return Problem("WorkloadNotFound", f"{target.kind} {policy.namespace}/{target.name} does not exist")
    if policy.inherit_from_workload and not workload.templated:
        text = (
            f"{target.kind} {policy.namespace}/{target.name} has no pod template at spec.template to inherit "
            "from: set placement.inheritFromWorkload: false, and say in placement which nodes"
        )
        return Problem("TemplateNotFound", text)
    if workload.selected is not None and not matches(policy.selector, workload.selected):
        return Problem(
            "SelectorMismatch",
            f"spec.selector does not select the pods of {target.kind} {policy.namespace}/{target.name}",
        )
    if policy.inherit_from_workload and len(workload.spread) > MOST_CONSTRAINTS:
        return Problem(
            "TooManyConstraints",
            f"the pod template of {target.kind} {policy.namespace}/{target.name} has {len(workload.spread)} "
            f"topology spread constraints and required terms of pod affinity, at most {MOST_CONSTRAINTS} are "
            "kept: state fewer, or placement.inheritFromWorkload: false",
        )
    return None
