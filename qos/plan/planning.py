"""The plan: which kernel settings follow from a container, its class's promises and its pod's floor. Pure.

Hook, agent and command line all apply what is planned here; they differ in when, not in what.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from qos.cluster.objects import Resources
from qos.keys import CPU, MEMORY
from qos.plan.controller import Case, all_controllers, all_files
from qos.plan.node import LARGEST_PAGE, NodeFacts
from qos.plan.settings import PROCESS, Plan, Setting, Shortfall
from qos.pods.containers import Container, NodePod, at_once
from qos.promises import Promises, Unsupported
from qos.quantity import is_bytes


def plan(pod: NodePod, container: str, promises: Promises, floor: Resources | None, node: NodeFacts) -> Plan:
    """The settings for one container of the pod, ordered as they are written when all of them raise.

    floor: the pod's, cpu in millicores and memory in bytes; None: it has none. Each container gets the part
    that parts() says. KeyError: the pod has no such container.
    """
    return planned(
        Case(
            pod=pod,
            container={one.name: one for one in pod.containers}[container],
            promises=promises,
            node=node,
            floor=floor or {},
            parts=parts(pod, floor),
        )
    )


def planned(case: Case) -> Plan:
    """The plan, as plan() makes it, for a case that was made already."""
    found = [finding for controller in all_controllers() for finding in controller.settings(case)]
    return Plan(
        tuple(sorted((one for one in found if isinstance(one, Setting)), key=_write_order)),
        tuple(one for one in found if isinstance(one, Shortfall)),
        tuple(one for one in found if isinstance(one, Unsupported)),
    )


def parts(pod: NodePod, floor: Resources | None) -> Mapping[str, Resources]:
    """Each container's part of the pod's floor, in the floor's units; the parts of those that run at the same
    time add up to it.

    In proportion to their requests, by largest remainder (ties: the first); equal where none requests; bytes
    in whole pages, as the kernel counts them, as long as the floor is. An init container that is no sidecar
    gets what the sidecars that run then leave: mostly all of it.
    """
    return _parts(pod.containers, tuple((floor or {}).items()))


@lru_cache(maxsize=4096)
def _parts(
    containers: tuple[Container, ...], floor: tuple[tuple[str, int], ...]
) -> Mapping[str, Mapping[str, int]]:
    """Remembered: each container's plan asks for them, in every pass."""
    result: dict[str, dict[str, int]] = {one.name: {} for one in containers}
    running, *init = at_once(containers)
    for resource, amount in floor:
        unit = LARGEST_PAGE if is_bytes(resource) and amount % LARGEST_PAGE == 0 else 1
        portions = divided(amount // unit, [_requested(one, resource) for one in running])
        for one, portion in zip(running, portions, strict=True):
            result[one.name][resource] = portion * unit
        for *sidecars, one in init:
            result[one.name][resource] = amount - sum(result[beside.name][resource] for beside in sidecars)
    return result


def divided(amount: int, weights: list[int]) -> list[int]:
    """The amount in proportion to the weights (to equal ones where all are 0); the parts add up to it."""
    if not weights:
        return []
    weights = weights if any(weights) else [1] * len(weights)
    total = sum(weights)
    portions = [amount * weight // total for weight in weights]
    remainders = [amount * weight % total for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda index: -remainders[index])
    for index in by_remainder[: amount - sum(portions)]:
        portions[index] += 1
    return portions


def _requested(container: Container, resource: str) -> int:
    return {CPU: container.cpu_request, MEMORY: container.memory_request}.get(resource, 0)


def _write_order(setting: Setting) -> tuple[bool, int, int]:
    """Parents before children, the process last."""
    return (setting.level == PROCESS, -setting.level, all_files()[setting.file].order)
