"""The cluster at one moment, as changes lead to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lab.changes import Change, Namespace, PriorityClass
from lab.occupancy import Occupancy
from lab.promises import Promise, Sources, counted
from lab.reserved import Reserved
from lab.tenures import Tenures
from qos.cluster.budget import ReservationBudget
from qos.cluster.objects import DaemonSet, Node, Pod
from qos.cluster.policy import Autoscaler, Policy, Profile, Workload
from qos.cluster.reservation import Reservation
from qos.cluster.volumes import StorageClass, Volume, VolumeClaim


class Situation:
    """Occupied capacity, and what is promised."""

    def __init__(self, changes: Iterable[Change] = ()) -> None:
        self.occupancy = Occupancy()
        self._sources = Sources({}, {}, {}, {})
        self.reserved = Reserved()
        self._pods: dict[str, Pod] = {}
        self._promises: list[Promise] = []
        self._now = float("-inf")
        self._tenures = Tenures()
        for change in sorted(changes, key=lambda c: c.revision):
            self.apply(change)

    def promises(self) -> list[Promise]:
        """All promises, the one that comes first when capacity is short first."""
        return self._promises

    def elapse(self, now: float) -> bool:
        """Time has passed, `now` in seconds since the epoch; True when a policy or a slot has ended."""
        before, self._now = self._now, max(self._now, now)
        ends = [policy.expires for policy in self._sources.policies.values() if policy.expires is not None]
        ends += [one.expires for one in self.reserved.known.values() if one.expires is not None]
        if not any(before < end <= self._now for end in (*ends, *self._tenures.moments())):
            return False
        self._renew()
        return True

    def apply(self, change: Change) -> None:
        """Take one change."""
        self.elapse(change.at)
        occupancy, gone = self.occupancy, change.deleted
        match change.object:
            case Pod() as pod:
                _put(self._pods, pod.uid, pod, gone)
                occupancy.remove_pod(pod.uid) if gone else occupancy.set_pod(self._counted(pod))
                if self.reserved.see(pod, gone=gone):
                    self._renew()
                self._follow_owners()
            case Node() as node:
                occupancy.remove_node(node.name) if gone else occupancy.set_node(node)
            case DaemonSet() as daemon_set:
                _put(occupancy.daemon_sets, daemon_set.uid, daemon_set, gone)
            case VolumeClaim() | Volume() | StorageClass() as volume:
                self._apply_volume(volume, gone)
            case other:
                self._apply_source(other, gone)

    def _apply_volume(self, thing: VolumeClaim | Volume | StorageClass, gone: bool) -> None:
        match thing:
            case VolumeClaim():
                _put(self._sources.claims, thing.key, thing, gone)
            case Volume():
                _put(self._sources.volumes, thing.name, thing, gone)
            case StorageClass():
                _put(self._sources.storage, thing.name, thing, gone)
        self._renew()

    def _apply_source(
        self,
        thing: Policy
        | Profile
        | Workload
        | Autoscaler
        | PriorityClass
        | ReservationBudget
        | Namespace
        | Reservation,
        gone: bool,
    ) -> None:
        sources = self._sources
        match thing:
            case Policy():
                _put(sources.policies, thing.key, thing, gone)
                if gone:
                    self._tenures.forget(thing.key)
            case Profile():
                _put(sources.profiles, thing.name, thing, gone)
            case Workload():
                _put(sources.workloads, (thing.namespace, thing.kind, thing.name), thing, gone)
            case Autoscaler():
                _put(sources.autoscalers, thing.key, thing, gone)
            case PriorityClass():
                _put(sources.classes, thing.name, thing, gone)
            case ReservationBudget():
                _put(sources.budgets, thing.name, thing, gone)
            case Namespace():
                _put(sources.namespaces, thing.name, thing, gone)
            case Reservation():
                _put(self.reserved.known, thing.name, thing, gone)
        self._renew()
        self._follow_owners()

    def _follow_owners(self) -> None:
        """Who has slots that are used up, or outlive their pods, decides how many there are."""
        lasting = [policy for policy in self._sources.policies.values() if policy.remembers]
        if not lasting:
            return
        owners: dict[str, set[str]] = {policy.key: set() for policy in lasting}
        for uid, pod in self._pods.items():
            if pod.node_name and not pod.terminal:
                owner = next((promise.key for promise in self._promises if promise.owned(pod)), "")
                owners.get(owner, set()).add(uid)
        for policy in lasting:
            self._tenures.see(policy, owners[policy.key], self._now)
        self._renew()

    def _renew(self) -> None:
        policies = self._sources.promises(self._now, self._tenures)
        others = self.reserved.promises(self._now, self._sources.classes)
        ordered = sorted([*policies, *others], key=lambda one: (-one.priority, one.created, one.key))
        before, self._promises = self._promises, ordered
        if any(promise.owed for promise in (*before, *self._promises)) and before != self._promises:
            for pod in self._pods.values():
                self.occupancy.set_pod(self._counted(pod))

    def _counted(self, pod: Pod) -> Pod:
        return counted(pod, self._promises) if any(one.owed for one in self._promises) else pod


def _put(store: dict[Any, Any], key: object, thing: object, gone: bool) -> None:
    if gone:
        store.pop(key, None)
    else:
        store[key] = thing
