"""What nodes and pods use, and where pods run: the world of a round of rescheduling."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from adapters.api import NODE_METRICS, NODES, POD_METRICS, PODS, APIError, ClusterAPI, Resource, Unreachable
from adapters.kubernetes import decode
from adapters.kubernetes.reflector import Reflector
from adapters.kubernetes.running_pods import running_pod
from adapters.kubernetes.usage import Used, node_usage, pod_usage
from qos.cluster.objects import Node, Resources
from qos.cluster.policy import Policy
from qos.cluster.running import Moved, NodeUsage, RunningPod
from qos.cluster.selectors import matches
from rescheduling.classifying import may_move
from rescheduling.records import Failure, Migration, World
from rescheduling.settings import Settings

log = logging.getLogger(__name__)

AT_ONCE: Final = 500
"""Objects that are read before others may run: some ten milliseconds."""


NOBODY: Final[Mapping[str, Moved]] = {}


class Reports:
    """Nodes' reports, by when each was seen to change: clocks of nodes may be wrong.

    The first look at a node says nothing of how old its report is, so it counts from the second that differs.
    """

    def __init__(self) -> None:
        self._stamps: dict[str, str] = {}
        self.known: dict[str, NodeUsage] = {}

    def take(self, seen: Iterable[Used], now: float) -> None:
        """What a list of all nodes' reports says at `now`, seconds since the epoch."""
        stamps = {}
        for one in seen:
            stamps[one.key] = one.stamp
            if self._stamps.get(one.key, one.stamp) != one.stamp:
                self.known[one.key] = NodeUsage(now, one.usage)
        self._stamps = stamps
        self.known = {name: report for name, report in self.known.items() if name in stamps}

    def forget(self) -> None:
        """Another one leads."""
        self._stamps, self.known = {}, {}


class LoadSource:
    """Watches nodes and pods, and asks metrics.k8s.io when told to.

    skipped(resource): an object cannot be read. `problem`: why usage is not known, "" if it is.
    """

    def __init__(
        self,
        api: ClusterAPI,
        policies: Mapping[str, Policy],
        settings: Settings,
        *,
        skipped: Callable[[str], None],
        stale_after: float,
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._policies = policies
        self._settings = settings
        self._skipped = skipped
        self._nodes: dict[str, Node] = {}
        self._pods: dict[str, RunningPod] = {}
        self.reports = Reports()
        self.problem = "nobody was asked yet"
        self.watches = {
            NODES.plural: Reflector(
                api, NODES, self._set_node, self._remove_node, stale_after=stale_after, clock=clock
            ),
            PODS.plural: Reflector(
                api, PODS, self._set_pod, self._remove_pod, stale_after=stale_after, clock=clock
            ),
        }

    def pod(self, uid: str) -> RunningPod | None:
        """A pod by its UID, as it was last seen."""
        return self._pods.get(uid)

    def by_key(self, moved: Mapping[str, Moved]) -> dict[str, RunningPod]:
        """All pods by namespace/name."""
        return {one.pod.key: self._as_known(one, moved) for one in self._pods.values()}

    async def look(self, now: float) -> None:
        """Ask what nodes use; `now` in seconds since the epoch."""
        found = await self._list(NODE_METRICS, node_usage)
        if found is not None:
            self.reports.take(found, now)

    async def world(
        self,
        moved: Mapping[str, Moved] = NOBODY,
        under_way: Sequence[Migration] = (),
        failures: Sequence[Failure] = (),
        begun: Sequence[float] = (),
    ) -> World:
        """The cluster now, with what each pod uses, where that matters. It does not change any more."""
        used: list[Used] = []
        if may_move(self._settings, self._nodes, self.reports.known):  # they are many
            used = await self._list(POD_METRICS, pod_usage) or []
        usage: dict[str, Resources] = {one.key: one.usage for one in used}
        pods: dict[str, list[RunningPod]] = {}
        for done, running in enumerate([*self._pods.values()]):
            if done % AT_ONCE == 0:
                await asyncio.sleep(0)
            if running.pod.node_name and not running.pod.terminal:
                pods.setdefault(running.pod.node_name, []).append(self._as_known(running, moved))
        return World(
            dict(self._nodes), dict(self.reports.known), pods, usage, under_way, failures, tuple(begun)
        )

    async def _list(self, kind: Resource, read: Callable[[bytes], Used]) -> list[Used] | None:
        """All of a kind; None where it cannot be had, and then `problem` says why."""
        found = []
        try:
            page = await self._api.list_page(kind, limit=0)
        except (APIError, Unreachable) as error:
            self.problem = f"metrics.k8s.io does not say what {kind.plural} use: {error}"
            log.warning("usage not known of=%s error=%s", kind.plural, error)
            return None
        for done, raw in enumerate(page.items):
            if done % AT_ONCE == 0:
                await asyncio.sleep(0)
            try:
                found.append(read(raw))
            except decode.DecodeError as error:
                self._skipped(kind.kind)
                log.warning("usage not readable error=%s", error)
        self.problem = ""
        return found

    def _as_known(self, running: RunningPod, moved: Mapping[str, Moved]) -> RunningPod:
        """A pod that a policy selects has a floor, whether its slot is counted yet or not.

        The Reservation that a pod names which was moved was for that alone.
        """
        pod = running.pod
        if pod.uid in moved:
            running = replace(running, moved=moved[pod.uid])
        elif pod.reserved_by and not running.tied:
            running = replace(running, tied="it uses a Reservation")
        if running.floor:
            return running
        for policy in self._policies.values():
            if policy.namespace == pod.namespace and matches(policy.selector, pod.labels):
                return replace(running, floor=True)
        return running

    def _set_node(self, raw: bytes) -> str:
        node = decode.node(raw)
        self._nodes[node.name] = node
        return node.name

    def _remove_node(self, name: str) -> None:
        self._nodes.pop(name, None)

    def _set_pod(self, raw: bytes) -> str:
        running = running_pod(raw)
        self._pods[running.pod.uid] = running
        return running.pod.uid

    def _remove_pod(self, uid: str) -> None:
        self._pods.pop(uid, None)
