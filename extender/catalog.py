"""Policies and what they refer to, resolved into the ledger's demands; work per change, not per pod."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from ledger.ledger import Ledger
from qos.cluster.objects import Demand
from qos.cluster.policy import Policy, Profile, Workload
from qos.cluster.resolve import PriorityClasses, Problem, resolve

log = logging.getLogger(__name__)

WorkloadKey = tuple[str, str, str]
"""namespace, kind, name."""


class Catalog:
    """What policies ask for. Nothing reaches the ledger before `open`: until then lists are incomplete."""

    def __init__(self, ledger: Ledger, changed: Callable[[], None]) -> None:
        self._ledger = ledger
        self._changed = changed
        self._open = False
        self.policies: dict[str, Policy] = {}
        self.resolved: dict[str, Demand | Problem] = {}
        self._profiles: dict[str, Profile] = {}
        self._classes: dict[str, tuple[int, bool]] = {}
        self._priorities = PriorityClasses()
        self._workloads: dict[WorkloadKey, Workload] = {}
        self._users: dict[WorkloadKey, set[str]] = defaultdict(set)

    def open(self) -> None:
        """Every list is in: resolve all, and each change from now on."""
        self._open = True
        self._resolve(self.policies)

    def set_policy(self, policy: Policy) -> None:
        """Take a policy as it is now."""
        earlier = self.policies.get(policy.key)
        if earlier is not None:
            self._unuse(earlier)
        self.policies[policy.key] = policy
        target = _target(policy)
        if target is not None:
            self._users[target].add(policy.key)
        if earlier is None or _asks(earlier) != _asks(policy):
            self._resolve([policy.key])
        self._changed()

    def remove_policy(self, key: str) -> None:
        """Release what it held."""
        policy = self.policies.pop(key, None)
        if policy is None:
            return
        self._unuse(policy)
        if isinstance(self.resolved.pop(key, None), Demand):
            self._ledger.remove_demand(key)
        self._changed()

    def set_profile(self, profile: Profile) -> None:
        """Take a profile as it is now."""
        self._profiles[profile.name] = profile
        self._resolve_users_of(profile.name)

    def remove_profile(self, name: str) -> None:
        """Its policies have a problem now."""
        self._profiles.pop(name, None)
        self._resolve_users_of(name)

    def set_priority_class(self, name: str, value: int, global_default: bool) -> None:
        """Take a PriorityClass as it is now."""
        self._classes[name] = value, global_default
        self._reorder()

    def remove_priority_class(self, name: str) -> None:
        """Forget a PriorityClass."""
        self._classes.pop(name, None)
        self._reorder()

    def set_workload(self, workload: Workload) -> None:
        """Take a scale target as it is now."""
        key = workload.namespace, workload.kind, workload.name
        if self._workloads.get(key) == workload:
            return
        self._workloads[key] = workload
        self._resolve(self._users.get(key, ()))

    def remove_workload(self, namespace: str, kind: str, name: str) -> None:
        """Forget a scale target."""
        key = namespace, kind, name
        self._workloads.pop(key, None)
        self._resolve(self._users.get(key, ()))

    def _resolve_users_of(self, profile: str) -> None:
        self._resolve([key for key, policy in self.policies.items() if policy.profile_name == profile])

    def _reorder(self) -> None:
        values = {name: value for name, (value, _) in self._classes.items()}
        # Of several defaults the API server takes the lowest.
        default = min((value for value, is_default in self._classes.values() if is_default), default=0)
        priorities = PriorityClasses(values, default)
        if priorities != self._priorities:
            self._priorities = priorities
            self._resolve(self.policies)

    def _unuse(self, policy: Policy) -> None:
        target = _target(policy)
        if target is not None:
            self._users[target].discard(policy.key)

    def _resolve(self, policy_keys: Iterable[str]) -> None:
        if not self._open:
            return
        for key in list(policy_keys):
            self._resolve_one(self.policies[key])
        self._changed()

    def _resolve_one(self, policy: Policy) -> None:
        target = _target(policy)
        workload = self._workloads.get(target) if target is not None else None
        now = resolve(policy, self._profiles, self._priorities, workload)
        before = self.resolved.get(policy.key)
        if now == before:
            return
        self.resolved[policy.key] = now
        if isinstance(now, Demand):
            self._ledger.set_demand(now)
            log.info("policy resolved policy=%s desired=%d priority=%d", now.key, now.desired, now.priority)
            return
        if isinstance(before, Demand):
            self._ledger.remove_demand(policy.key)
        log.warning(
            "policy has a problem policy=%s reason=%s message=%r", policy.key, now.reason, now.message
        )

    def demands(self) -> Mapping[str, Demand]:
        """The policies that are resolved."""
        return {key: one for key, one in self.resolved.items() if isinstance(one, Demand)}


def _target(policy: Policy) -> WorkloadKey | None:
    target = policy.scale_target
    return (policy.namespace, target.kind, target.name) if target is not None else None


def _asks(policy: Policy) -> tuple[str, int]:
    """What changes when the policy asks for something else; a write of its status changes neither."""
    return policy.uid, policy.generation
