"""What the API server shows, taken into the ledger, the catalog and the view: one handler a resource.

A bad object is logged, reported to its owner by an event, and skipped; its last good state stays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from adapters.api import (
    AUTOSCALERS,
    BUDGETS,
    DAEMON_SETS,
    DEPLOYMENTS,
    NAMESPACES,
    NODE_QOS,
    NODES,
    POD_GROUPS,
    PODS,
    POLICIES,
    PRIORITY_CLASSES,
    PROFILES,
    QUOTAS,
    REPLICA_SETS,
    RESERVATIONS,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    VOLUME_CLAIMS,
    VOLUMES,
    Resource,
)
from adapters.kubernetes import decode, node_qos, volumes
from adapters.kubernetes.events import EventWriter, Regarding
from adapters.kubernetes.gangs import pod_group
from adapters.kubernetes.protobuf.pods import as_json
from adapters.kubernetes.quotas import quota
from adapters.kubernetes.reserving import reservation
from adapters.kubernetes.templates import autoscaler
from extender.catalog import Catalog
from extender.gang_book import GangBook
from extender.guarding import Guards
from extender.metrics import Metrics
from extender.node_reports import NodeReports
from extender.owners import Owners
from extender.reservations import Reservations
from extender.standing import Standing
from extender.view import View, marks_of
from ledger.ledger import Ledger
from qos.cluster.objects import Pod
from qos.cluster.reservation import key_of

log = logging.getLogger(__name__)

WORKLOADS: Final = (DEPLOYMENTS, STATEFUL_SETS, REPLICA_SETS)
IN_PROTOBUF: Final = {PODS: as_json}
"""What is watched in protobuf: pods change more often than all else together."""


@dataclass(frozen=True, slots=True)
class Handler:
    """What becomes of one resource's objects: `set` returns the key it keeps, `remove` takes it; `listed` is
    told of each complete list, and when it began.
    """

    resource: Resource
    set: Callable[[bytes], str | None]
    remove: Callable[[str], None]
    listed: Callable[[float], None] = lambda _began: None


class Ingest:
    """The handlers of all resources, of Reservations, ElasticQuotas and PodGroups only where they are wanted.
    `standing`: where placeholders keep holds.

    `changed` is called after each change that a status may show.
    """

    def __init__(
        self,
        ledger: Ledger,
        catalog: Catalog,
        view: View,
        guarding: Guards,
        events: EventWriter,
        metrics: Metrics,
        *,
        reports: NodeReports,
        owners: Owners,
        reservations: Reservations | None = None,
        quotas: bool = False,
        gangs: GangBook,
        grouped: bool = False,
        standing: Standing | None = None,
        changed: Callable[[], None],
        gone: Callable[[str], None],
    ) -> None:
        self._ledger = ledger
        self._catalog = catalog
        self._view = view
        self._guarding = guarding
        self._events = events
        self._metrics = metrics
        self._reports = reports
        self._owners = owners
        self._reservations = reservations
        self._quotas = quotas
        self._gangs, self._grouped = gangs, grouped
        self._standing = standing
        self._changed = changed
        self._gone = gone

    def handlers(self) -> list[Handler]:
        """One a resource, each guarded against objects that cannot be read."""
        plain = [
            Handler(NODES, self._set_node, self._remove_node),
            Handler(PODS, self._set_pod, self._remove_pod),
            Handler(DAEMON_SETS, self._set_daemon_set, self._remove_daemon_set),
            Handler(PRIORITY_CLASSES, self._set_priority_class, self._remove_priority_class),
            Handler(PROFILES, self._set_profile, self._catalog.remove_profile),
            Handler(POLICIES, self._set_policy, self._remove_policy),
            Handler(BUDGETS, self._set_budget, self._remove_budget),
            Handler(NAMESPACES, self._set_namespace, self._remove_namespace),
            Handler(NODE_QOS, self._set_report, self._reports.remove),
            Handler(AUTOSCALERS, self._set_autoscaler, self._catalog.remove_autoscaler),
            *self._volumes(),
            *(self._workloads(resource) for resource in WORKLOADS),
        ]
        if self._reservations is not None:
            plain.append(self._reserving(self._reservations))
        if self._quotas:
            plain.append(Handler(QUOTAS, self._set_quota, self._remove_quota))
        if self._grouped:
            plain.append(Handler(POD_GROUPS, self._set_pod_group, self._gangs.remove_group))
        guarded = [replace(one, set=self._guard(one), remove=self._guard_removal(one)) for one in plain]
        return [self._told_of_lists(one) if one.resource is PODS else one for one in guarded]

    def _told_of_lists(self, pods: Handler) -> Handler:
        return replace(pods, listed=partial(self._remove_unlisted, pods.remove))

    def _guard(self, handler: Handler) -> Callable[[bytes], str | None]:
        resource = handler.resource

        def take(raw: bytes) -> str | None:
            try:
                return handler.set(raw)
            except decode.DecodeError as error:
                self._skip(resource, raw, str(error))
                raise  # the reflector logs it and keeps the last good state
            except Exception as error:  # a bug must cost one object, not the watch
                log.exception("object not taken resource=%s", resource.plural)
                self._skip(resource, raw, f"{type(error).__name__}: {error}")
                raise decode.DecodeError(resource.kind, "(see above)", "object", "", str(error)) from error

        return take

    def _guard_removal(self, handler: Handler) -> Callable[[str], None]:
        def drop(key: str) -> None:
            try:
                handler.remove(key)
            except Exception:  # likewise
                log.exception("object not removed resource=%s key=%s", handler.resource.plural, key)
                self._metrics.skipped(handler.resource.plural)

        return drop

    def _skip(self, resource: Resource, raw: bytes, why: str) -> None:
        self._metrics.skipped(resource.plural)
        self._tell(resource, raw, why)

    def _tell(self, resource: Resource, raw: bytes, why: str) -> None:
        try:
            meta = decode.metadata(raw)
        except decode.DecodeError:
            return
        version = f"{resource.group}/{resource.version}" if resource.group else resource.version
        about = Regarding(version, resource.kind, meta.namespace, meta.name, meta.uid)
        self._events.say(about, "Warning", "Unreadable", f"ignored until it changes: {why}")

    def read_pod(self, raw: bytes) -> Pod:
        """A pod as the API server has it; DecodeError."""
        return decode.pod(raw)

    def _set_pod(self, raw: bytes) -> str:
        pod = self.read_pod(raw)
        if self._standing is not None and self._standing.take(pod, raw):
            return pod.uid  # a placeholder is the hold itself: as a claim it would count twice
        self._guarding.see(pod)
        self._view.set_pod(pod)
        self._gangs.take(pod, raw)
        if self._ledger.set_pod(pod):  # most events of a running pod tell nothing that is used here
            self._owners.set_pod(pod)
            self._changed()
        return pod.uid

    def _remove_pod(self, uid: str) -> None:
        if self._standing is not None and self._standing.remove(uid):
            return
        self._ledger.remove_pod(uid)
        self._view.remove_pod(uid)
        self._gangs.remove(uid)
        self._owners.remove_pod(uid)
        self._guarding.forget(uid)
        self._changed()

    def _remove_unlisted(self, remove: Callable[[str], None], began: float) -> None:
        for pod in self._ledger.unlisted(began):
            log.info("pod is gone before any watch showed it pod=%s", pod.key)
            remove(pod.uid)

    def _set_node(self, raw: bytes) -> str:
        node = decode.node(raw)
        same = self._view.nodes.get(node.name) == node
        self._view.set_node(node, marks_of(raw))
        if not same:
            self._ledger.set_node(node)
            self._changed()
        return node.name

    def _remove_node(self, name: str) -> None:
        self._ledger.remove_node(name)
        self._view.remove_node(name)
        self._reports.node_gone(name)
        self._changed()

    def _set_report(self, raw: bytes) -> str:
        news = node_qos.news(raw)
        self._reports.set(news)
        return news.node

    def _set_daemon_set(self, raw: bytes) -> str:
        daemon_set = decode.daemon_set(raw)
        self._ledger.set_daemon_set(daemon_set)
        self._changed()
        return daemon_set.uid

    def _remove_daemon_set(self, uid: str) -> None:
        self._ledger.remove_daemon_set(uid)
        self._changed()

    def _set_priority_class(self, raw: bytes) -> str:
        name, value, is_default = decode.priority_class(raw)
        self._catalog.set_priority_class(name, value, is_default)
        if self._reservations is not None:
            self._reservations.set_priority_class(name, value, is_default)
        return name

    def _remove_priority_class(self, name: str) -> None:
        self._catalog.remove_priority_class(name)
        if self._reservations is not None:
            self._reservations.remove_priority_class(name)

    def _reserving(self, reservations: Reservations) -> Handler:
        def take(raw: bytes) -> str:
            one = reservation(raw)
            reservations.set(one)
            return one.name

        def drop(name: str) -> None:
            reservations.remove(name)
            self._gone(key_of(name))

        return Handler(RESERVATIONS, take, drop)

    def _set_profile(self, raw: bytes) -> str:
        profile = decode.profile(raw)
        self._catalog.set_profile(profile)
        return profile.name

    def _set_autoscaler(self, raw: bytes) -> str:
        one = autoscaler(raw)
        self._catalog.set_autoscaler(one)
        return one.key

    def _set_policy(self, raw: bytes) -> str:
        policy = decode.policy(raw)
        self._catalog.set_policy(policy)
        return policy.key

    def _remove_policy(self, key: str) -> None:
        self._catalog.remove_policy(key)
        self._gone(key)

    def _set_budget(self, raw: bytes) -> str:
        budget = decode.budget(raw)
        self._catalog.set_budget(budget)
        return budget.key

    def _remove_budget(self, name: str) -> None:
        self._catalog.remove_budget(name)
        self._gone(name)

    def _set_namespace(self, raw: bytes) -> str:
        name, labels = decode.namespace(raw)
        self._ledger.set_namespace(name, labels)
        self._changed()
        return name

    def _remove_namespace(self, name: str) -> None:
        self._ledger.remove_namespace(name)
        self._changed()

    def _set_quota(self, raw: bytes) -> str:
        one = quota(raw)
        self._ledger.set_quota(one)
        self._changed()
        return one.key

    def _remove_quota(self, key: str) -> None:
        self._ledger.remove_quota(key)
        self._changed()

    def _set_pod_group(self, raw: bytes) -> str:
        one = pod_group(raw)
        self._gangs.set_group(one)
        return one.key

    def _volumes(self) -> Iterable[Handler]:
        known, follow = self._catalog.volumes, self._catalog.follow_volumes

        def take_claim(raw: bytes) -> str:
            claim = volumes.volume_claim(raw)
            follow(known.set_claim(claim))
            return claim.key

        def take_volume(raw: bytes) -> str:
            volume = volumes.volume(raw)
            follow(known.set_volume(volume))
            return volume.name

        def take_class(raw: bytes) -> str:
            one = volumes.storage_class(raw)
            follow(known.set_class(one))
            return one.name

        yield Handler(VOLUME_CLAIMS, take_claim, lambda key: follow(known.remove_claim(key)))
        yield Handler(VOLUMES, take_volume, lambda name: follow(known.remove_volume(name)))
        yield Handler(STORAGE_CLASSES, take_class, lambda name: follow(known.remove_class(name)))

    def _workloads(self, resource: Resource) -> Handler:
        def take(raw: bytes) -> str:
            workload = decode.workload(resource, raw)
            self._catalog.set_workload(workload)
            return f"{workload.namespace}/{workload.name}"

        def drop(key: str) -> None:
            namespace, _, name = key.partition("/")
            self._catalog.remove_workload(namespace, resource.kind, name)

        return Handler(resource, take, drop)
