"""What nodes and pods use, and where pods run: the world of a round of rescheduling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from adapters.api import NODES, PODS, ClusterAPI
from adapters.kubernetes import decode
from adapters.kubernetes.reflector import Reflector
from adapters.kubernetes.running_pods import running_pod
from manager.usage import AT_ONCE, Usage
from qos.cluster.objects import Node, Resources
from qos.cluster.policy import Policy
from qos.cluster.running import Moved, NodeUsage, RunningPod
from qos.cluster.selectors import matches
from rescheduling.classifying import may_move
from rescheduling.records import Failure, Migration, World
from rescheduling.settings import Settings

NOBODY: Final[Mapping[str, Moved]] = {}


class LoadSource:
    """Watches nodes and pods, and looks at what they use when told to.

    skipped(resource): an object cannot be read. clock: monotonic, wall: since the epoch.
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
        wall: Callable[[], float],
    ) -> None:
        self._policies = policies
        self._settings = settings
        self._nodes: dict[str, Node] = {}
        self._pods: dict[str, RunningPod] = {}
        self._reports: dict[str, NodeUsage] = {}
        self.usage = Usage(api, expiry=settings.expiry, skipped=skipped, clock=clock, wall=wall)
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

    async def look(self) -> None:
        """Learn what nodes use."""
        self._reports = await self.usage.look([*self._nodes])

    async def world(
        self,
        moved: Mapping[str, Moved] = NOBODY,
        under_way: Sequence[Migration] = (),
        failures: Sequence[Failure] = (),
        begun: Sequence[float] = (),
    ) -> World:
        """The cluster now, with what each pod uses, where that matters. It does not change any more."""
        pods: dict[str, list[RunningPod]] = {}
        for done, running in enumerate([*self._pods.values()]):
            if done % AT_ONCE == 0:
                await asyncio.sleep(0)
            if running.pod.node_name and not running.pod.terminal:
                pods.setdefault(running.pod.node_name, []).append(self._as_known(running, moved))
        usage: dict[str, Resources] = {}
        if may_move(self._settings, self._nodes, self._reports):  # they are many
            usage = await self.usage.of_pods(pods)
        return World(dict(self._nodes), self._reports, pods, usage, under_way, failures, tuple(begun))

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
