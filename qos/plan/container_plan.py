"""One container's plan: its part of the floor, its settings, and what cannot be kept. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from qos.cluster.objects import Resources
from qos.keys import CPU, MEMORY
from qos.plan.controller import Case
from qos.plan.node import NodeFacts
from qos.plan.overcommit import overcommitted, with_shortfall
from qos.plan.planning import planned
from qos.plan.settings import Plan, Shortfall
from qos.pods.containers import Container
from qos.pods.decision import Decided
from qos.pods.expectation import Expectation


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """One container's plan, its part of the floor, and the facts that the plan was made from."""

    name: str
    floor: Resources
    facts: NodeFacts
    plan: Plan


def container_plan(
    decided: Decided, container: Container, facts: NodeFacts, floors: Mapping[str, Resources]
) -> ContainerPlan:
    """The plan of a container of the pod; empty where the pod is exempt. floors: each container's part of the
    pod's floor (qos.plan.planning.parts).
    """
    part = floors[container.name]
    if decided.exempt:
        return ContainerPlan(container.name, part, facts, Plan(()))
    made = planned(case_of(decided, container, facts, floors))
    if decided.kept:
        made = with_shortfall(made, _overcommitted(decided.kept, part, facts))
    else:
        made = made._replace(shortfalls=(*made.shortfalls, *_unkept(part, decided.expected, facts)))
    return ContainerPlan(container.name, part, facts, made)


def case_of(
    decided: Decided, container: Container, facts: NodeFacts, floors: Mapping[str, Resources]
) -> Case:
    """The case of a container of the pod; floors: as for container_plan."""
    kept = decided.kept
    return Case(
        decided.pod,
        container,
        decided.expected.of(container.name),
        facts,
        kept,
        floors if kept else {name: {} for name in floors},
    )


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
