"""Where else the others on an unknown node may be, and what a pod's weights keep there. Pure.

An assumed node has all others in the pod's own QoS class (qos.plan.assumed). Guaranteed pods stand beside the
cgroup of all Burstable ones, and system.slice and user.slice beside that of all pods; both have the weight
that kubelet gives them: what is lost there no weight of the pod mends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from qos.keys import CPU
from qos.plan.assumed import HOST_SLICES, Machine
from qos.plan.controllers.cpu import NO_QUOTA
from qos.plan.hierarchy import load_of
from qos.plan.node import Level, NodeFacts, Rival
from qos.plan.settings import Plan, Shortfall
from qos.plan.siblings import Capacity
from qos.plan.weights import LEGACY, UNIFIED, Scale
from qos.pods.containers import BEST_EFFORT, BURSTABLE, Container, NodePod, request
from qos.quantity import render


def elsewhere(
    pod: NodePod, machine: Machine, planned: Mapping[str, tuple[NodeFacts, Plan]], parts: Mapping[str, int]
) -> dict[str, Shortfall]:
    """By container: what is missing of its part of the floor where the others are placed worst.

    planned: each container's facts, as qos.plan.assumed has them, and the plan that was made from these;
    parts: millicores.
    """
    if pod.qos == BEST_EFFORT:
        return {}
    scale = UNIFIED if machine.unified else LEGACY
    weights = {name: _weight(facts, made, 0, scale) for name, (facts, made) in planned.items()}
    found: dict[str, Shortfall] = {}
    for name, (facts, made) in planned.items():
        inside = sum(scale.load(weights[one.name]) for one in _beside(pod, name))
        for condition, beside, levels in _placements(pod, machine, facts):
            reaching = _reaching(facts, levels, made, scale)
            kept = reaching.shared(scale.load(weights[name]), inside)
            known = found.get(name)
            if not kept.holds(parts[name]) and (known is None or kept.whole < known.kept):
                why = f"{render(CPU, reaching.whole)} reach the pod, because {beside}"
                found[name] = Shortfall(CPU, 1, levels[-1].path, parts[name], kept.whole, why, condition)
    return found


def _placements(pod: NodePod, machine: Machine, facts: NodeFacts) -> Iterator[tuple[str, str, list[Level]]]:
    """Where the others may be, in as many pods as there can be or in few, and the levels that follow."""
    kubepods, *between, own, _ = facts.levels
    host = (Rival(machine.default_weight),) * HOST_SLICES
    beside = f"all pods together have weight {kubepods.weight}, kubelet's, against {_weights(host)}"
    busy = replace(kubepods, rivals=host)
    yield "system.slice and user.slice want all the CPU they can get", beside, [busy, *between, own]
    if pod.qos != BURSTABLE:
        return
    [burstable] = between
    cpu = request(pod)[0]
    weight = machine.kubelet_weight(cpu)
    beside = (
        "Guaranteed pods are beside the cgroup of all Burstable ones, and that weighs what kubelet gives it"
    )
    many = replace(burstable, weight=weight, rivals=tuple(own.rivals))
    yield "all other pods are Guaranteed", beside, [kubepods, many, replace(own, rivals=())]
    few = Rival(machine.kubelet_weight(machine.allocatable_cpus - cpu))
    idle = Rival(max(machine.pods - 1, 1) * machine.kubelet_weight(0))
    yield (
        "one Guaranteed pod requests the rest, and Burstable ones nothing",
        beside,
        [kubepods, replace(burstable, weight=weight, rivals=(few,)), replace(own, rivals=(idle,))],
    )


def _weights(rivals: tuple[Rival, ...]) -> str:
    return "+".join(str(rival.weight) for rival in rivals)


def _reaching(facts: NodeFacts, levels: list[Level], made: Plan, scale: Scale) -> Capacity:
    """What reaches the pod."""
    capacity = Capacity(facts.cpus)
    for level in levels:
        weight = _weight(facts, made, 1, scale) if level is levels[-1] else level.weight
        capacity = capacity.shared(scale.load(weight), load_of(level.rivals, scale))
        if not any(setting.file in (*NO_QUOTA.v2, *NO_QUOTA.v1) for setting in made.settings):
            capacity = capacity.limited(level.cpu_quota)
    return capacity


def _weight(facts: NodeFacts, made: Plan, number: int, scale: Scale) -> int:
    """What the plan gives a level, or else what it has."""
    planned = [one.value for one in made.settings if (one.level, one.file) == (number, scale.file)]
    return int(planned[0]) if planned else facts.levels[-1 - number].weight


def _beside(pod: NodePod, name: str) -> list[Container]:
    """The other containers that run at the same time: beside an init container only sidecars."""
    alone = any(one.name == name and one.init and not one.sidecar for one in pod.containers)
    return [one for one in pod.containers if one.name != name and (one.sidecar or not (one.init or alone))]
