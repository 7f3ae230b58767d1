"""Plans from what people wrote: which policy and profile a pod has, and what follows on a node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from adapters.documents import DocumentsError, Problem
from adapters.pod_files import Objects, PodEntry
from cli.plan_node import PlanNode
from qos.classes import CLASSES
from qos.cluster.policy import Profile
from qos.keys import BANDWIDTHS, CPU, MEMORY
from qos.plan.assumed import DoesNotFitError
from qos.plan.container_plan import ContainerPlan, container_plan
from qos.plan.overcommit import with_shortfall
from qos.plan.placements import elsewhere
from qos.plan.planning import parts
from qos.plan.settings import Shortfall
from qos.pods.containers import NodePod
from qos.pods.decision import Decided, decided, is_exempt
from qos.pods.peers.unheeded import unheeded
from qos.pods.traffic import traffic


@dataclass(frozen=True, slots=True)
class PodPlan:
    """A pod's plans. `containers`: empty until they are planned; `notes`: for people."""

    entry: PodEntry
    decided: Decided
    containers: tuple[ContainerPlan, ...]
    notes: tuple[str, ...]


def plans(objects: Objects, node: PlanNode, profile: Profile | None = None) -> list[PodPlan]:
    """A plan for each pod, beside all the others; profile: of pods whose policy names none.

    DocumentsError has all problems.
    """
    problems: list[Problem] = []
    unplanned: list[PodPlan] = []
    made: list[PodPlan] = []
    for entry in objects.pods:
        try:
            unplanned.append(_decided(objects, entry, profile))
        except DocumentsError as error:
            problems += error.problems
    for one in unplanned:
        others = node.with_pods(
            (other.entry.pod, other.decided.kept.get(CPU, 0)) for other in unplanned if other is not one
        )
        try:
            containers = list(_containers(one, others))
        except DocumentsError as error:
            problems += error.problems
        else:
            made.append(replace(one, containers=tuple(_forecast(one, containers, node))))
    if problems:
        raise DocumentsError(list(dict.fromkeys(problems)))
    return made


def idle_policies(objects: Objects) -> list[str]:
    """What to say of policies that select none of the pods."""
    selecting = {policy.key for entry in objects.pods for policy, _ in objects.policies_of(entry.pod)}
    return [
        f"{origin.file}: policy {policy.namespace or 'default'}/{policy.name} selects no pod in these files"
        for policy, origin in objects.policies
        if policy.key not in selecting
    ]


def _decided(objects: Objects, entry: PodEntry, given: Profile | None) -> PodPlan:
    """What a pod gets, without the plans of its containers."""
    selecting = objects.policies_of(entry.pod)
    one = decided(entry.pod, [policy for policy, _ in selecting], objects.profiles, given)
    if one.problem:
        message = f"{one.problem} in these files: name its file with --profile"
        raise DocumentsError([selecting[0][1].problem("spec.profileName", message)])
    return PodPlan(entry, one, (), tuple(_notes(entry.pod, one)))


def _containers(pod_plan: PodPlan, node: PlanNode) -> Iterator[ContainerPlan]:
    pod, origin = pod_plan.entry.pod, pod_plan.entry.origin
    floors = parts(pod, pod_plan.decided.kept)
    for container in pod.containers:
        try:
            facts = node.facts(pod, container.name)
        except DoesNotFitError as error:
            raise DocumentsError([origin.problem("", f"{error} with --node")]) from None
        yield container_plan(pod_plan.decided, container, facts, floors)


def _forecast(pod_plan: PodPlan, containers: list[ContainerPlan], node: PlanNode) -> Iterator[ContainerPlan]:
    """The plans, with what is missing where the others on an unknown node are placed otherwise."""
    short: dict[str, Shortfall] = {}
    if node.here is None and pod_plan.decided.kept.get(CPU):
        planned = {one.name: (one.facts, one.plan) for one in containers}
        promised = {one.name: one.floor.get(CPU, 0) for one in containers}
        short = elsewhere(pod_plan.entry.pod, node.machine, planned, promised)
    for one in containers:
        yield replace(one, plan=with_shortfall(one.plan, short.get(one.name)))


def _notes(pod: NodePod, one: Decided) -> Iterator[str]:
    expected, floor, name = one.expected, one.floor, one.policy.name if one.policy else ""
    yield from (str(each) for each in expected.misread)
    network = traffic(one)
    yield from (str(each) for each in network.misread)
    unsupported = (*expected.unsupported, *network.unsupported, *unheeded(pod))
    yield from (f"{each.promise}: {each.why}" for each in unsupported)
    yield from (f"network {line}" for line in network.stated())
    if one.exempt and is_exempt(pod):
        yield "it is one of the node's own: it gets nothing unless a policy, a profile or a label says so"
    elif one.exempt:
        yield "it has no policy and states no class: it is left alone unless the agent has --class-defaults"
    for other in one.others:
        yield f"policy {other.name} selects the pod too; {name} wins (priority, then age)"
    if floor and not CLASSES[expected.class_name].has_floor:
        yield f"class {expected.class_name} has no floor: policy {name}'s is not kept"
    for resource in floor or ():
        if resource not in (CPU, MEMORY, *BANDWIDTHS.values()):
            yield f"floor {resource}: held by scheduling; no kernel file keeps it"
