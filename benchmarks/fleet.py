"""An API server of a large cluster: pods are made as they are listed, so memory is the extender's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final

import orjson

from adapters.api import (
    DEPLOYMENTS,
    NODES,
    PODS,
    POLICIES,
    PRIORITY_CLASSES,
    Page,
    Resource,
    WatchEvent,
)
from adapters.kubernetes.protobuf.pods import as_json
from adapters.memory import MemoryAPI
from benchmarks import clusters, pod_messages
from benchmarks.clusters import Size
from benchmarks.loop_time import LoopTime

FOLLOWS: Final = 10
"""Every tenth policy follows a Deployment, the first one does; the others count."""


TOO_LARGE: Final = 5
"""With each tenth policy from the sixth on comes one whose slots fit on no node."""


class Fleet(MemoryAPI):
    """MemoryAPI with size.pods running pods beside those that are put; its own time is left out.

    Half of all slots are filled. A pod that is put under the name of a running one is a change of it.
    """

    def __init__(self, size: Size, times: LoopTime) -> None:
        super().__init__()
        self.size = size
        self._times = times
        self._pages: dict[str, Iterator[bytes]] = {}
        for number in range(size.nodes):
            self.put(NODES, clusters.node_json(number))
        floors = {"metadata": {"name": "floors"}, "value": 1_000, "globalDefault": False}
        self.put(PRIORITY_CLASSES, floors)
        for policy in range(size.policies):
            follows = policy % FOLLOWS == 0
            if follows:
                self.put(DEPLOYMENTS, clusters.deployment_json(policy, size.slots_of(policy)))
            slots = None if follows else size.slots_of(policy)
            self.put(POLICIES, clusters.policy_json(policy, slots))
            if policy % FOLLOWS == TOO_LARGE:
                self.put(POLICIES, clusters.policy_json(size.policies + policy, 2, cores=clusters.CORES + 1))
        self.expire()

    def running(self) -> Iterator[bytes]:
        """All running pods, as JSON."""
        owners = list(clusters.owners(self.size))
        filler = _template(clusters.new_pod("%(name)s", 0.5, "%(node)s"))
        for number in range(self.size.pods - len(owners)):
            node = clusters.node_name(number % self.size.nodes).encode()
            yield filler % {b"name": b"filler-%d" % number, b"node": node}
        for index, (policy, number) in enumerate(owners):
            yield orjson.dumps(self.owner(index, policy, number))

    def owner(self, index: int, policy: int, number: int) -> dict[str, Any]:
        """The index-th owner: a pod that fills a slot of this policy."""
        node = clusters.node_name(index * clusters.HOLDING // 2 % self.size.nodes)
        return clusters.new_pod(f"owner-{policy}-{number}", clusters.SLOT_CORES, node, owner_of=policy)

    async def list_page(self, resource: Resource, **options: Any) -> Page:
        """Pods are those of `running`; all else as MemoryAPI lists it."""
        with self._times.outside():
            page = await super().list_page(resource, **options | {"continue_token": ""})
            if resource is not PODS:
                return await super().list_page(resource, **options)
            token = options.get("continue_token") or f"pods-{len(self.calls)}"
            pods = self._pages.setdefault(token, self.running())
            items = [raw for raw, _ in zip(pods, range(options.get("limit", 500)), strict=False)]
            return Page(items, page.resource_version, token if items else "", None)

    async def get(self, resource: Resource, namespace: str, name: str, *, subresource: str = "") -> bytes:
        """As MemoryAPI does."""
        with self._times.outside():
            return await super().get(resource, namespace, name, subresource=subresource)

    async def create(self, resource: Resource, namespace: str, body: Mapping[str, Any]) -> bytes:
        """As MemoryAPI does."""
        with self._times.outside():
            return await super().create(resource, namespace, body)

    async def replace(self, resource: Resource, namespace: str, name: str, body: Mapping[str, Any]) -> bytes:
        """As MemoryAPI does."""
        with self._times.outside():
            return await super().replace(resource, namespace, name, body)

    async def patch(
        self, resource: Resource, namespace: str, name: str, body: Mapping[str, Any], *, subresource: str = ""
    ) -> bytes:
        """As MemoryAPI does."""
        with self._times.outside():
            return await super().patch(resource, namespace, name, body, subresource=subresource)

    async def delete(self, resource: Resource, namespace: str, name: str, **options: Any) -> None:
        """As MemoryAPI does."""
        with self._times.outside():
            await super().delete(resource, namespace, name, **options)

    async def bind(
        self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]
    ) -> None:
        """As MemoryAPI does."""
        with self._times.outside():
            await super().bind(namespace, name, uid, node, annotations)

    def _publish(self, resource: Resource, event: WatchEvent, before: bytes | None) -> None:
        """Changes of pods are messages, as the API server sends them."""
        if resource is PODS:
            event = WatchEvent(event.type, pod_messages.pod(orjson.loads(event.object)))
        super()._publish(resource, event, before)


class WatchedFleet(Fleet):
    """A Fleet without a wire: JSON is made of the changes of pods as our client does it."""

    async def watch(self, resource: Resource, **options: Any) -> AsyncIterator[WatchEvent]:
        """As MemoryAPI does."""
        async for event in super().watch(resource, **options):
            message = resource is PODS and event.type != "BOOKMARK"
            yield WatchEvent(event.type, as_json(event.object)) if message else event


def _template(body: dict[str, Any]) -> bytes:
    """JSON with %(name)b and %(node)b in it."""
    return orjson.dumps(body).replace(b")s", b")b")
