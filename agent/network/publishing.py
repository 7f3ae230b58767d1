"""Publishes what the node's link can promise to floors, as extended resources in node.status.

So the ledger, every scheduler and `kubectl describe node` count it as they count a GPU.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter

from adapters.api import NODES, APIError, ClusterAPI, NotFound, Unreachable
from adapters.kubernetes.node_bandwidth import NodeBandwidth, change_to, node_bandwidth
from adapters.kubernetes.reflector import Backoff, Reflector
from adapters.kubernetes.wire import DecodeError
from adapters.loops import Changes
from agent.network.link import Unknown
from agent.network.uplink import Uplink
from qos import keys
from qos.bandwidth import BITS
from qos.network.bands import DEFAULT, Configuration, promisable
from qos.network.wanted import Direction, Link

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 30.0
"""Until a link that got faster or slower is published so: nobody tells of it."""
FIRST_SECONDS: Final = 5.0
"""Over so long the first writes of agents that start together are spread."""
_CALM_SECONDS: Final = 600.0
"""After as long without a write the next pause is short again."""
_MOST_WAIT: Final = 60.0


_DIRECTIONS: Final = {
    keys.EGRESS_BANDWIDTH: Direction.EGRESS,
    keys.INGRESS_BANDWIDTH: Direction.INGRESS,
}


def resources(link: Link, configuration: Configuration = DEFAULT) -> dict[str, int]:
    """The extended resources of a link: whole bits a second that floors may have together.

    A direction of which nothing can be promised is left out.
    """
    amounts = {
        name: promisable([link], direction, configuration) * BITS for name, direction in _DIRECTIONS.items()
    }
    return {name: amount for name, amount in amounts.items() if amount}


class Publishing:
    """Keeps one Node's bandwidth as its link is; written only where it differs.

    A watch of that one Node, as kubelet has it: a Node that is made anew, or whose status somebody else has
    changed, says it again some seconds later. A write that others undo is repeated at growing intervals.
    What is not known for the moment stays as it was published, what is not known is taken away.

    api: None: there is no API server, the link is just looked at. labels: those of the Node that were known
    last; changed in place, then `changed` is called. floors: whether this node keeps floors of the network:
    if not, what an agent published before is taken away. observe: nothing is written.
    `withheld`: why floors cannot be kept at this link, whatever its speed; while it is not "" nothing is
    offered. Whoever shapes says so there, and calls look_again().
    Needs: list and watch nodes, patch nodes/status.
    """

    def __init__(
        self,
        uplink: Uplink,
        api: ClusterAPI | None,
        node: str,
        labels: dict[str, str],
        changed: Callable[[], None] = lambda: None,
        *,
        configuration: Callable[[], Configuration] = lambda: DEFAULT,
        floors: bool = True,
        observe: bool = False,
        registry: CollectorRegistry | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._uplink, self._api, self._node = uplink, api, node
        self._floors, self._observe = floors, observe
        self._labels, self._changed, self._configuration = labels, changed, configuration
        self._clock, self._sleep, self._jitter = clock, sleep, jitter
        self.present: NodeBandwidth | None = None
        self.withheld = ""
        self.failure = ""
        """Why the last write was not done; "": it was."""
        self._wanted: Mapping[str, int] | None = None
        self._looks = Changes(LOOK_SECONDS)
        self._due = asyncio.Event()
        self._backoff = Backoff(first=1.0, most=_MOST_WAIT)
        self._tried = float("-inf")
        self._writes = Counter(
            "j10ce_agent_bandwidth_writes",
            "Writes of the node's bandwidth into node.status by outcome: written, failed.",
            ["outcome"],
            registry=registry,
        )

    async def run(self) -> None:
        """Look and publish until cancelled. Nothing of what the API server does ends it."""
        if not self._floors:
            await self._take_back()
            await asyncio.Event().wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look())
            if self._api is not None:
                group.create_task(self._reflector(self._api).run())
                if not self._observe:
                    group.create_task(self._write(self._api))

    async def _take_back(self) -> None:
        while self._api is not None and not self._observe:
            try:
                await withdraw(self._api, self._node)
            except (APIError, Unreachable, DecodeError) as error:
                self._failed(error)
                await self._sleep(self._backoff.pause(self._jitter()))
            else:
                return

    def _reflector(self, api: ClusterAPI) -> Reflector:
        return Reflector(
            api,
            NODES,
            self._heard,
            self._gone,
            field_selector=f"metadata.name={self._node}",
            page_size=0,
            most_wait=_MOST_WAIT,
            clock=self._clock,
            sleep=self._sleep,
            jitter=self._jitter,
        )

    def _heard(self, raw: bytes) -> str | None:
        """The Node as it is now."""
        said = node_bandwidth(raw)
        if said.name != self._node:
            return None
        if said.labels != self._labels:
            self._labels.clear()
            self._labels.update(said.labels)
            self._changed()
            self._looks.note()
        elif self.present is None:
            self._looks.note()
        self.present = said
        self._due.set()
        return said.name

    def _gone(self, _: str) -> None:
        self.present = None

    async def _look(self) -> None:
        while True:
            self._looks.clear()
            heard = self.present is not None  # before that labels may be others, which count before options
            found = await asyncio.to_thread(self._uplink.see, dict(self._labels))  # it waits for a lock
            if heard and (wanted := self._offered(found)) is not None:
                self._wanted = wanted
                self._due.set()
            await self._looks.wait()

    def _offered(self, found: Link | Unknown) -> Mapping[str, int] | None:
        """None: what was published stays."""
        if self.withheld:
            return {}
        link = found.link if isinstance(found, Unknown) else found
        offered = resources(link, self._configuration()) if link is not None else {}
        if isinstance(found, Unknown) and not offered:
            return None if found.passing else {}
        return offered

    def look_again(self) -> None:
        """The link may have changed: look at it now."""
        self._looks.note()

    async def _write(self, api: ClusterAPI) -> None:
        await self._sleep(FIRST_SECONDS * self._jitter())
        while True:
            await self._due.wait()
            self._due.clear()
            wanted, present = self._wanted, self.present
            if wanted is None or present is None or present.says(wanted):
                continue
            now = self._clock()
            if now - self._tried > _CALM_SECONDS:
                self._backoff.reset()
            self._tried = now
            try:
                self.present = await publish(api, self._node, wanted)
            except NotFound:
                continue  # its end, and what comes after it, will be heard of
            except (APIError, Unreachable, DecodeError) as error:
                self._failed(error)
            else:
                self.failure = ""
                self._writes.labels("written").inc()
                log.info("bandwidth published node=%s resources=%r", self._node, dict(wanted))
            await self._sleep(self._backoff.pause(self._jitter()))

    def _failed(self, error: Exception) -> None:
        """Tried again, and the same words are logged once."""
        self._due.set()
        self._writes.labels("failed").inc()
        if str(error) != self.failure:
            self.failure = str(error)
            log.warning("bandwidth not published node=%s error=%r", self._node, self.failure)


async def publish(api: ClusterAPI, node: str, wanted: Mapping[str, int]) -> NodeBandwidth:
    """One write of a Node's status: just these resources of ours, {}: none; the Node as it is then.

    APIError, Unreachable, DecodeError.
    """
    return node_bandwidth(await api.patch(NODES, "", node, change_to(wanted), subresource="status"))


async def withdraw(api: ClusterAPI, node: str) -> None:
    """Take what an agent published out of a Node's status; nothing is written where nothing is there.

    APIError, Unreachable, DecodeError.
    """
    try:
        present = node_bandwidth(await api.get(NODES, "", node))
        if not present.says({}):
            await publish(api, node, {})
    except NotFound:
        return
