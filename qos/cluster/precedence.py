"""Which of several policies goes first: one answer, for the extender and for every node's agent. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from qos.classes import CLASSES
from qos.cluster.policy import Policy, Profile
from qos.keys import HIGHEST_USER_PRIORITY


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a policy cannot be resolved: the reason and the message of its condition Ready, both stable."""

    reason: str
    message: str


class PriorityClass(NamedTuple):
    """A PriorityClass: its value, and whether it is the cluster's for those who name none (globalDefault)."""

    value: int
    is_default: bool = False


@dataclass(frozen=True, slots=True)
class PriorityClasses:
    """The PriorityClasses there are, by name. `highest`: the highest value that a policy may have."""

    by_name: Mapping[str, PriorityClass] = field(default_factory=dict)
    highest: int = HIGHEST_USER_PRIORITY

    @property
    def default(self) -> int:
        """The value of the global default, 0 for none; of several the API server takes the lowest."""
        return min((value for value, is_default in self.by_name.values() if is_default), default=0)


def priority_of(policy: Policy, profiles: Mapping[str, Profile], classes: PriorityClasses) -> int | Problem:
    """The value of the policy's PriorityClass, else of its profile's, else of the global default."""
    problem = profile_problem(policy, profiles)
    if problem is not None:
        return problem
    name = class_of(policy, profiles.get(policy.profile_name))
    if name and name not in classes.by_name:
        return Problem("PriorityClassNotFound", f"PriorityClass {name} does not exist")
    priority = classes.by_name[name].value if name else classes.default
    if priority > classes.highest:
        which = f"PriorityClass {name}" if name else "the default PriorityClass"
        return Problem(
            "PriorityTooHigh",
            f"{which} has the value {priority}, and the extender allows policies at most "
            f"{classes.highest}: name a lower class, or ask for a higher maxPolicyPriority",
        )
    return priority


def class_of(policy: Policy, profile: Profile | None) -> str:
    """The PriorityClass that the policy names, or its profile does, or ""."""
    return policy.priority_class_name or (profile.priority_class_name if profile else "")


def precedence(priority: int | Problem, created: float, name: str) -> tuple[bool, int, float, str]:
    """A key to sort by: highest priority first, then oldest, then by name; last what cannot be resolved.

    created: seconds since the epoch; 0: not known, which is the youngest. name: with the namespace where
    policies of several are compared.
    """
    youngest = float("inf")
    if isinstance(priority, Problem):
        return True, 0, created or youngest, name
    return False, -priority, created or youngest, name


def profile_problem(policy: Policy, profiles: Mapping[str, Profile]) -> Problem | None:
    """What is wrong with the profile that the policy names."""
    name = policy.profile_name
    if not name:
        return None
    if name not in profiles:
        return Problem("ProfileNotFound", f"QoSProfile {name} does not exist")
    class_name = profiles[name].class_name
    if not CLASSES[class_name].has_floor:
        return Problem(
            "ProfileWithoutFloor", f"QoSProfile {name} is of class {class_name}, which has no floor"
        )
    return None
