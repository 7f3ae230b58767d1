"""Policies and what they refer to, resolved into the ledger's demands; work per change, not per pod."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice, takewhile
from typing import Final, TypeVar

from extender.mounted import MountedVolumes
from extender.owners import Owners, WorkloadKey
from ledger.ledger import Ledger
from qos.cluster.budget import ReservationBudget
from qos.cluster.keeping import Keepers
from qos.cluster.objects import Demand, Keeper, PlacementMode
from qos.cluster.policy import Autoscaler, Policy, Profile, ScaleTarget, Workload
from qos.cluster.precedence import PriorityClass, PriorityClasses, Problem
from qos.cluster.resolve import resolve
from qos.cluster.volumes import NO_MOUNTS
from qos.keys import HIGHEST_USER_PRIORITY

log = logging.getLogger(__name__)

_KEEPERS: Final = Keepers()
_AT_ONCE: Final = 8
"""Policies resolved at once, at half a millisecond each."""


class Catalog:
    """What policies ask for. Nothing reaches the ledger before `open`: until then lists are incomplete.

    Hundreds of policies may refer to what changes: those beyond the first few are resolved by `catch_up`.

    What policies refer to counts on for `grace` seconds of `clock` after it was deleted: who deletes a
    Deployment or a PriorityClass to make it again must not lose every slot in between. `postponed` has the
    problems of policies that are resolved for that reason only.

    `placed`: where a policy's placeholders stand, and how many: there its holds lay before a restart.
    `wall`: seconds since the epoch, for policies that expire; `catch_up` looks.
    """

    def __init__(
        self,
        ledger: Ledger,
        changed: Callable[[], None],
        owners: Owners,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        grace: float,
        highest_priority: int = HIGHEST_USER_PRIORITY,
        placed: Callable[[str], list[tuple[str, int]]] = lambda _policy: [],
        keepers: Keepers = _KEEPERS,
    ) -> None:
        self._ledger = ledger
        self._changed = changed
        self._owners = owners
        self._clock, self._wall = clock, wall
        self._grace = grace
        self._placed = placed
        self.keepers = keepers
        self._open = False
        self._due: dict[str, None] = {}
        self._expiring: dict[str, float] = {}
        self.policies: dict[str, Policy] = {}
        self.budgets: dict[str, ReservationBudget] = {}
        self.resolved: dict[str, Demand | Problem] = {}
        self.postponed: dict[str, Problem] = {}
        self._deleted_profiles: dict[str, float] = {}
        self._deleted_classes: dict[str, float] = {}
        self._deleted_workloads: dict[WorkloadKey, float] = {}
        self._profiles: dict[str, Profile] = {}
        self._classes: dict[str, PriorityClass] = {}
        self._priorities = PriorityClasses({}, highest_priority)
        self._workloads: dict[WorkloadKey, Workload] = {}
        self._users: dict[WorkloadKey, set[str]] = defaultdict(set)
        self.volumes = MountedVolumes()
        self.asks_for_volumes = asyncio.Event()
        """Set from the first policy on whose pods mount any: until then nobody needs to watch them."""
        self._kinds: Counter[ScaleTarget] = Counter()
        self._obstacles: dict[WorkloadKey, Problem] = {}
        self._autoscalers: dict[str, Autoscaler] = {}
        self.asks_for_autoscalers = asyncio.Event()
        """Set from the first policy on that follows one: until then nobody needs to watch them."""

    def open(self) -> None:
        """Every list is in: resolve all, and each change from now on."""
        for _ in self.open_in_steps():
            pass

    def open_in_steps(self) -> Iterator[None]:
        """The same, one policy a step."""
        self._open = True
        self._due.update(dict.fromkeys(self.policies))
        yield from self.catch_up()

    @property
    def due(self) -> bool:
        """Whether `catch_up` has work to do, but for policies that have just expired."""
        return bool(self._due)

    def catch_up(self) -> Iterator[None]:
        """Resolve the policies that are due still, or have expired, one a step."""
        if self._open and self._expiring:
            now = self._wall()
            self._due.update((key, None) for key, expires in self._expiring.items() if expires <= now)
        while self._due:
            key = next(iter(self._due))
            del self._due[key]
            if key in self.policies:
                self._resolve_one(self.policies[key])
                self._changed()
                yield

    def set_policy(self, policy: Policy) -> None:
        """Take a policy as it is now."""
        earlier = self.policies.get(policy.key)
        if earlier is not None:
            self._unuse(earlier)
        self.policies[policy.key] = policy
        target = _target(policy)
        if target is not None:
            self._users[target].add(policy.key)
            self._count_kind(policy, 1)
            self._ask_for_volumes(target)
        if policy.headroom:
            self.asks_for_autoscalers.set()
        if earlier is None or _asks(earlier) != _asks(policy):
            self._resolve([policy.key])
        self._changed()

    def remove_policy(self, key: str) -> None:
        """Release what it held."""
        policy = self.policies.pop(key, None)
        if policy is None:
            return
        self._unuse(policy)
        self._expiring.pop(key, None)
        self.postponed.pop(key, None)
        if isinstance(self.resolved.pop(key, None), Demand):
            self._ledger.remove_demand(key)
        self._changed()

    def keeper(self, key: str) -> Keeper:
        """The keeper of a policy; Reservations are the extender's."""
        policy = self.policies.get(key)
        return Keeper.EXTENDER if policy is None else self.keepers.of(policy)

    def set_budget(self, budget: ReservationBudget) -> None:
        """Take a budget as it is now."""
        self.budgets[budget.key] = budget
        self._ledger.set_budget(budget.rules)
        self._changed()

    def remove_budget(self, name: str) -> None:
        """Nobody must keep it any more."""
        self.budgets.pop(name, None)
        self._ledger.remove_budget(name)
        self._changed()

    def set_profile(self, profile: Profile) -> None:
        """Take a profile as it is now."""
        self._deleted_profiles.pop(profile.name, None)
        self._profiles[profile.name] = profile
        self._resolve(self._users_of(profile.name))

    def remove_profile(self, name: str) -> None:
        """Its policies have a problem once the grace is over."""
        if name in self._profiles:
            self._deleted_profiles[name] = self._clock()
            self._resolve(self._users_of(name))
            self.expire()

    def set_priority_class(self, name: str, value: int, global_default: bool) -> None:
        """Take a PriorityClass as it is now."""
        again = self._deleted_classes.pop(name, None) is not None
        self._classes[name] = PriorityClass(value, global_default)
        self._reorder(again=again)

    def remove_priority_class(self, name: str) -> None:
        """Forget a PriorityClass once the grace is over."""
        if name in self._classes:
            self._deleted_classes[name] = self._clock()
            self._resolve(self.policies)
            self.expire()

    def set_workload(self, workload: Workload) -> None:
        """Take a scale target as it is now."""
        key = workload.namespace, workload.kind, workload.name
        again = self._deleted_workloads.pop(key, None) is not None
        if self._workloads.get(key) == workload and not again:
            return
        self._workloads[key] = workload
        self.volumes.follow(key, workload.mounts)
        self._ask_for_volumes(key)
        self._resolve(self._users.get(key, ()))

    def remove_workload(self, namespace: str, kind: str, name: str) -> None:
        """Forget a scale target once the grace is over."""
        key = namespace, kind, name
        if key in self._workloads:
            self._deleted_workloads[key] = self._clock()
            self._resolve(self._users.get(key, ()))
            self.expire()

    def _ask_for_volumes(self, target: WorkloadKey) -> None:
        workload = self._workloads.get(target)
        if workload is not None and workload.mounts and target in self._users:
            self.asks_for_volumes.set()

    def follow_volumes(self, concerned: Iterable[WorkloadKey]) -> None:
        """Volumes of these workloads have changed: `catch_up` resolves their policies, each once for many."""
        if self._open:
            self._due.update((key, None) for workload in concerned for key in self._users.get(workload, ()))

    def target_kinds(self) -> list[ScaleTarget]:
        """The kinds that policies name for scale targets, each once, without the object's name."""
        return [*self._kinds]

    def _count_kind(self, policy: Policy, count: int) -> None:
        assert policy.scale_target is not None
        kind = replace(policy.scale_target, name="")
        self._kinds[kind] += count
        if not self._kinds[kind]:
            del self._kinds[kind]  # it is a tenant's word, too

    def followed(self, kind: str) -> set[WorkloadKey]:
        """The workloads of a kind (ScaleTarget.full_kind) that policies name."""
        return {key for key in self._users if key[1] == kind}

    def set_obstacle(self, target: WorkloadKey, problem: Problem | None) -> None:
        """Why a workload is not known; without namespace and name: all of its kind. None: no reason."""
        if self._obstacles.get(target) == problem:
            return
        if problem is None:
            del self._obstacles[target]
        else:
            self._obstacles[target] = problem
        users = self.followed(target[1]) if not target[2] else {target} & self._users.keys()
        self._resolve([key for user in users for key in self._users[user]])

    def unread(self, policy: Policy) -> str:
        """Why the policy's workload, which is known, is no longer read: slots are as they were read last."""
        target = _target(policy)
        if target is None or target not in self._workloads:
            return ""
        problem = self._obstacle(target)
        return problem.message if problem is not None else ""

    def _obstacle(self, target: WorkloadKey) -> Problem | None:
        return self._obstacles.get(target) or self._obstacles.get(("", target[1], ""))

    def set_autoscaler(self, one: Autoscaler) -> None:
        """Take a HorizontalPodAutoscaler as it is now."""
        before = self._autoscalers.get(one.key)
        if before != one:
            self._autoscalers[one.key] = one
            self._follow_autoscalers(before, one)

    def remove_autoscaler(self, key: str) -> None:
        """Its workload's policies have no headroom by it any more."""
        self._follow_autoscalers(self._autoscalers.pop(key, None))

    def _follow_autoscalers(self, *concerned: Autoscaler | None) -> None:
        targets = {_scaled(one) for one in concerned if one is not None}
        users = [key for target in targets for key in self._users.get(target, ())]
        self._resolve([key for key in users if self.policies[key].headroom])

    def ceiling(self, policy: Policy) -> int | None:
        """To how many replicas autoscalers may scale the policy's workload, if it asks; None: not known."""
        target = _target(policy) if policy.headroom else None
        return max(
            (one.maximum for one in self._autoscalers.values() if _scaled(one) == target), default=None
        )

    def expire(self) -> None:
        """Forget what was deleted longer than the grace ago."""
        due, concerned = self._clock() - self._grace, list[str]()
        for profile in _until(self._deleted_profiles, due):
            del self._profiles[profile]
            concerned += self._users_of(profile)
        for name in _until(self._deleted_classes, due):
            del self._classes[name]
            self._priorities = replace(self._priorities, by_name=dict(self._classes))
            concerned += self.policies
        for workload in _until(self._deleted_workloads, due):
            del self._workloads[workload]
            self.volumes.follow(workload, NO_MOUNTS)
            self._owners.forget(workload)
            concerned += self._users.get(workload, ())
        if concerned:
            self._resolve(concerned)

    def follow_owners(self) -> None:
        """Resolve the policies of workloads whose pods have changed: they may request more or less."""
        changed = self._owners.changed(self._users.keys())
        if changed:
            self._resolve([key for workload in changed for key in self._users[workload]])

    def _users_of(self, profile: str) -> list[str]:
        return [key for key, policy in self.policies.items() if policy.profile_name == profile]

    def _reorder(self, *, again: bool = False) -> None:
        priorities = replace(self._priorities, by_name=dict(self._classes))
        if priorities != self._priorities or again:
            self._priorities = priorities
            self._resolve(self.policies)

    def _unuse(self, policy: Policy) -> None:
        target = _target(policy)
        if target is not None:
            self._users[target].discard(policy.key)
            self._count_kind(policy, -1)
            if not self._users[target]:
                del self._users[target]  # a target's name is a tenant's word

    def _resolve(self, policy_keys: Iterable[str]) -> None:
        if not self._open:
            return
        self._due.update(dict.fromkeys(policy_keys))
        for _ in islice(self.catch_up(), _AT_ONCE):
            pass
        self._changed()

    def _resolve_one(self, policy: Policy) -> None:
        target = _target(policy)
        workload = self._workloads.get(target) if target is not None else None
        observed = self._owners.observed(target) if target is not None else {}
        wall = self._wall()
        obstacle = self._obstacle(target) if target is not None and workload is None else None
        now = obstacle or resolve(
            policy,
            self._profiles,
            self._priorities,
            workload,
            observed,
            now=wall,
            ceiling=self.ceiling(policy),
            volumes=self.volumes.known,
        )
        self._watch_end(policy, wall)
        self._postpone(policy, target)
        before = self.resolved.get(policy.key)
        if now == before:
            return
        self.resolved[policy.key] = now
        if isinstance(now, Demand):
            self._ledger.set_demand(now)
            if not isinstance(before, Demand) and (stood := self._stood(policy, now)):
                self._ledger.restore(now.key, stood)
            log.info("policy resolved policy=%s desired=%d priority=%d", now.key, now.desired, now.priority)
            return
        if isinstance(before, Demand):
            self._ledger.remove_demand(policy.key)
        log.warning(
            "policy has a problem policy=%s reason=%s message=%r", policy.key, now.reason, now.message
        )

    def _stood(self, policy: Policy, demand: Demand) -> list[tuple[str, int]]:
        """Where a new demand's holds were before a restart, as far as that matters."""
        placed = self._placed(demand.key)
        return placed if placed or demand.mode is not PlacementMode.PINNED else _holds(policy)

    @property
    def ordinary(self) -> int:
        """The priority of pods that name no PriorityClass."""
        return self._priorities.default

    def class_value(self, name: str) -> int | None:
        """The value of a PriorityClass; None: it is not there."""
        return (
            None if name in self._deleted_classes or name not in self._classes else self._classes[name].value
        )

    def _watch_end(self, policy: Policy, now: float) -> None:
        if policy.expires is None or policy.expired(now):
            self._expiring.pop(policy.key, None)
        else:
            self._expiring[policy.key] = policy.expires

    def _postpone(self, policy: Policy, target: WorkloadKey | None) -> None:
        """Note what will be the policy's problem if nothing is made again."""
        self.postponed.pop(policy.key, None)
        if not (self._deleted_profiles or self._deleted_classes or self._deleted_workloads):
            return
        there = target is not None and target not in self._deleted_workloads
        then = resolve(
            policy,
            {name: one for name, one in self._profiles.items() if name not in self._deleted_profiles},
            replace(
                self._priorities,
                by_name={n: one for n, one in self._classes.items() if n not in self._deleted_classes},
            ),
            self._workloads.get(target) if target is not None and there else None,
            now=self._wall(),
            ceiling=self.ceiling(policy),
        )
        if isinstance(then, Problem):
            self.postponed[policy.key] = then

    def demands(self) -> Mapping[str, Demand]:
        """The policies that are resolved."""
        return {key: one for key, one in self.resolved.items() if isinstance(one, Demand)}


_Key = TypeVar("_Key", str, WorkloadKey)


def _until(deleted: dict[_Key, float], due: float) -> list[_Key]:
    """Take out what was deleted by then; the oldest stand first."""
    gone = [key for key, _ in takewhile(lambda one: one[1] <= due, deleted.items())]
    for key in gone:
        del deleted[key]
    return gone


def _holds(policy: Policy) -> list[tuple[str, int]]:
    """Where its status says that slots are held: what a Pinned policy had before a restart."""
    return [(one["nodeName"], one["slots"]) for one in policy.status.get("holds") or ()]


def _target(policy: Policy) -> WorkloadKey | None:
    target = policy.scale_target
    return (policy.namespace, target.full_kind, target.name) if target is not None else None


def _scaled(one: Autoscaler) -> WorkloadKey:
    return one.namespace, one.target.full_kind, one.target.name


def _asks(policy: Policy) -> tuple[object, ...]:
    """A key that changes when the policy asks for something else; a write of its status changes nothing in
    it, but what is remembered there of slots that are used up, or outlive their pods.
    """
    return policy.uid, policy.generation, policy.remembered if policy.remembers else None
