"""One container's plan: its part of the floor, its settings, and what cannot be kept. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from qos.classes import CLASSES
from qos.cluster.objects import Resources
from qos.keys import CPU, MEMORY
from qos.plan.controller import Case
from qos.plan.controllers import oom
from qos.plan.node import NodeFacts
from qos.plan.overcommit import overcommitted, with_shortfall
from qos.plan.planning import parts, planned
from qos.plan.settings import Plan, Shortfall
from qos.pods.containers import Container
from qos.pods.decision import Decided
from qos.pods.expectation import Expectation
from qos.promises import Promises, Unsupported
from qos.quantity import render


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """One container's plan, its part of the whole floor, and the facts that the plan was made from."""

    name: str
    floor: Resources
    facts: NodeFacts
    plan: Plan


def container_plan(
    decided: Decided, container: Container, facts: NodeFacts, floors: Mapping[str, Resources]
) -> ContainerPlan:
    """The plan of a container of the pod; empty where the pod is exempt. floors: each container's part of
    what counts of the pod's floor (Decided.kept; qos.plan.planning.parts).
    """
    whole = parts(decided.pod, decided.floor)[container.name]
    if decided.exempt:
        return ContainerPlan(container.name, whole, facts, Plan(()))
    case = case_of(decided, container, facts, floors)
    made = planned(case)
    asked = decided.expected.of(container.name).oom_score_adj
    if asked != case.promises.oom_score_adj:
        why = f"{asked} is below kubelet's {case.promises.oom_score_adj}: that needs --author-oom-scores"
        refused = Unsupported(oom.ADJUSTMENT, oom.ADJUSTMENT, why)
        made = made._replace(unsupported=(*made.unsupported, refused))
    if CLASSES[decided.expected.class_name].has_floor:
        part = floors[container.name]
        made = with_shortfall(made, _overcommitted(decided.kept, part, facts))
        made = made._replace(shortfalls=tuple(_of_whole(made.shortfalls, decided, whole, part, facts)))
    else:
        made = made._replace(shortfalls=(*made.shortfalls, *_unkept(whole, decided.expected, facts)))
    return ContainerPlan(container.name, whole, facts, made)


def _of_whole(
    known: tuple[Shortfall, ...], decided: Decided, whole: Resources, part: Resources, facts: NodeFacts
) -> Iterator[Shortfall]:
    """The shortfalls; where a floor counts in part, because the pod requests less, of the whole of it."""
    less = {name for name in (CPU, MEMORY) if part.get(name, 0) < whole.get(name, 0)}
    for short in known:
        if short.resource not in less:
            yield short
        elif not short.condition:
            less.discard(short.resource)
            yield short._replace(promised=whole[short.resource])
    for name in sorted(less):
        floor, bound = (render(name, amounts[name]) for amounts in (decided.floor or {}, decided.bound))
        why = f"the pod requests {bound}, so no more of its floor of {floor} counts: request the floor"
        yield Shortfall(name, 0, facts.levels[-1].path, whole[name], part.get(name, 0), why)


def case_of(
    decided: Decided, container: Container, facts: NodeFacts, floors: Mapping[str, Resources]
) -> Case:
    """The case of a container of the pod; floors: as for container_plan."""
    kept = decided.kept
    return Case(
        decided.pod,
        container,
        _promises(decided, container, facts),
        facts,
        kept,
        floors if kept else {name: {} for name in floors},
    )


_LOWEST: Final = 1
"""cpu.weight of what is idle, while it cannot be."""


def _promises(decided: Decided, container: Container, facts: NodeFacts) -> Promises:
    """What its class promises the container, without what its author alone cannot have."""
    expected, name = decided.expected, container.name
    promises = expected.of(name)
    if decided.pod.resizing and promises.cpu_idle:  # the kernel refuses kubelet's weights in an idle cgroup
        promises = replace(promises, cpu_idle=False, cpu_weight=_LOWEST)
    by_author = name in expected.oom_score_adj or expected.sources.get(oom.ADJUSTMENT, "").startswith(
        "annotation "
    )
    if promises.oom_score_adj is None or not by_author or decided.choices.author_oom_scores:
        return promises
    least = oom.kubelets(decided.pod.qos, container.memory_request, facts.memory)
    return replace(promises, oom_score_adj=max(promises.oom_score_adj, least))


def _overcommitted(floor: Resources, part: Resources, facts: NodeFacts) -> Shortfall | None:
    """A container's part of what its pod lacks because others were promised it."""
    short = overcommitted(facts.levels[:-1], facts.cpus, floor.get(CPU, 0))
    if short is None or not part.get(CPU):
        return None
    kept = part[CPU] * short.kept // short.promised
    return short._replace(level=short.level + 1, promised=part[CPU], kept=kept)


def _unkept(part: Resources, expected: Expectation, facts: NodeFacts) -> Iterator[Shortfall]:
    """Shortfalls of the whole floor, for a class that keeps no floors."""
    why = f"class {expected.class_name}, from {expected.class_source}, has no floor"
    for resource in (CPU, MEMORY):
        if part.get(resource):
            yield Shortfall(resource, 0, facts.levels[-1].path, part[resource], 0, why)
