"""What a policy needs of a node (nodeEnforcement Strict), and whether a node says it enforces that. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final

from qos.bandwidth import UNLIMITED
from qos.classes import promises_of
from qos.cluster.objects import Resources
from qos.cluster.policy import Policy, Profile
from qos.keys import BANDWIDTHS, CPU, MEMORY
from qos.promises import Promises, kept_as

CLASS_WITHOUT_PROFILE: Final = "LS"
"""The class of a pod with a floor whose policy names no profile, unless the pod states another."""
CPU_FLOOR: Final = "floor (cpu)"
NETWORK_FLOOR: Final = "floor (network)"
NETWORK_LIMIT: Final = "limit (network)"

_OF_MEMORY_FLOOR: Final = frozenset({"memory_min_percent", "memory_low_percent"})
"""Promises that are percentages of the memory floor: without such a floor they ask nothing of a node."""


def needs(promises: Promises, floor: Resources) -> frozenset[str]:
    """The promises that a node has to enforce, as qos.plan.controller.Keeps names them.

    These are the promises that are made at all, and the floor's own dimensions; what a floor holds beside
    CPU, memory and bandwidth is kept by kubelet and device plugins alone.
    """
    none = Promises()
    made = {one.name for one in fields(promises) if getattr(promises, one.name) != getattr(none, one.name)}
    if not floor.get(MEMORY):
        made -= _OF_MEMORY_FLOOR
    floors = ((CPU_FLOOR, floor.get(CPU)), (NETWORK_FLOOR, any(map(floor.get, BANDWIDTHS.values()))))
    return frozenset(map(kept_as, made)).union(name for name, there in floors if there)


def needs_of(policy: Policy, profile: Profile | None) -> frozenset[str]:
    """What the pods of a policy need; `profile`: the one that it names."""
    limits = policy.limit or (profile and profile.limits != UNLIMITED)
    limited = {NETWORK_LIMIT} if limits else set[str]()
    if profile is None:
        return needs(promises_of(CLASS_WITHOUT_PROFILE), policy.floor) | limited
    return needs(promises_of(profile.class_name, profile.overrides), policy.floor) | limited


@dataclass(frozen=True, slots=True)
class Enforcement:
    """What a node says it enforces. `refused`: promise -> why not.

    `problem`: why none of it counts; "" when it does.
    """

    enforced: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


UNREPORTED: Final = Enforcement(problem="has no NodeQoS: no agent has reported")


def obstacle(needed: frozenset[str], said: Enforcement) -> str:
    """Why a node cannot enforce all of this: the first reason, stable for the same cause; "" when it can."""
    if said.problem:
        return said.problem
    missing = needed - said.enforced
    if not missing:
        return ""
    first = min(missing, key=lambda promise: (promise not in said.refused, promise))
    return f"{first}: {said.refused.get(first) or 'the agent does not say that it is enforced'}"
