"""What nodes and pods use: of each node its NodeQoS while that is fresh, else metrics.k8s.io."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from adapters.api import NODE_METRICS, NODE_QOS, POD_METRICS, APIError, ClusterAPI, Resource, Unreachable
from adapters.kubernetes import decode
from adapters.kubernetes.reflector import Reflector
from adapters.kubernetes.usage import Used, node_usage, pod_usage, reported_pods, reported_usage
from qos.cluster.objects import Resources
from qos.cluster.running import NodeUsage, RunningPod

log = logging.getLogger(__name__)

AT_ONCE: Final = 500
"""Objects that are read before others may run: some ten milliseconds."""
REPORTED: Final = "NodeQoS"
METRICS: Final = "metrics.k8s.io"
UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class _Seen:
    """`at`: when it was first seen, seconds since the epoch; `counts`: whether that says how old it is."""

    used: Used
    at: float
    counts: bool


class Reports:
    """Nodes' reports of one source, by when each was seen to change: clocks of nodes may be wrong.

    The first look at a node says nothing of how old its report is, so it counts from the second that differs.
    So it is again when nothing was seen of a node for `expiry` seconds: we may not have looked meanwhile.
    """

    def __init__(self, expiry: float) -> None:
        self._expiry = expiry
        self._seen: dict[str, _Seen] = {}

    def see(self, used: Used, now: float) -> None:
        """A node's report as it is at `now`, seconds since the epoch."""
        before = self._seen.get(used.key)
        if before is None or before.used.stamp != used.stamp:
            counts = before is not None and now - before.at <= self._expiry
            self._seen[used.key] = _Seen(used, now, counts)

    def keep(self, nodes: Collection[str]) -> None:
        """Those of all others are gone."""
        self._seen = {name: one for name, one in self._seen.items() if name in nodes}

    def drop(self, node: str) -> None:
        """The report of a node is gone."""
        self._seen.pop(node, None)

    def fresh(self, now: float) -> dict[str, _Seen]:
        """Those that say what is so now, by node."""
        return {name: one for name, one in self._seen.items() if one.counts and now - one.at <= self._expiry}

    def forget(self) -> None:
        """Nobody looks any more."""
        self._seen = {}


class Usage:
    """Watches NodeQoS, and asks metrics.k8s.io for the nodes of which none is fresh.

    skipped(kind): an object cannot be read. `expiry`: seconds; an older report says nothing. clock:
    monotonic, wall: since the epoch. `problem`: why nothing is known, "" if something is.
    """

    def __init__(
        self,
        api: ClusterAPI,
        *,
        expiry: float,
        skipped: Callable[[str], None],
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._api = api
        self._skipped = skipped
        self._wall = wall
        self._reported, self._asked = Reports(expiry), Reports(expiry)
        self._fresh: dict[str, _Seen] = {}
        self._failures: dict[Resource, str] = {}
        self.problem = "nobody was asked yet"
        self.sources: Mapping[str, int] = {}
        """How many nodes were known from where at the last look."""
        self.watch = Reflector(api, NODE_QOS, self._set, self._reported.drop, most_wait=60.0, clock=clock)

    async def look(self, nodes: Collection[str]) -> dict[str, NodeUsage]:
        """What these nodes use now, as far as it is known. Asks only where a NodeQoS is missing."""
        reported = self._fresh = self._reported.fresh(self._wall())
        failure = ""
        if any(name not in reported for name in nodes):
            failure = await self._ask()
        asked = self._asked.fresh(self._wall())
        found = {name: (REPORTED, reported[name]) for name in nodes if name in reported}
        found |= {name: (METRICS, asked[name]) for name in nodes if name in asked and name not in found}
        counts = Counter(source for source, _ in found.values())
        unknown = len(nodes) - len(found)
        self.sources = {REPORTED: counts[REPORTED], METRICS: counts[METRICS], UNKNOWN: unknown}
        self.problem = f"no node has a fresh NodeQoS, and {failure}" if failure and not found else ""
        return {name: NodeUsage(seen.at, seen.used.usage) for name, (_, seen) in found.items()}

    async def of_pods(self, pods: Mapping[str, Iterable[RunningPod]]) -> dict[str, Resources]:
        """By namespace/name what each of these pods, by node, uses, from where the last look knew their node.

        A node says it of pods that are bound to it, and of no others.
        """
        reported = self._fresh
        told: dict[str, Resources] = {}
        if any(node not in reported for node in pods):
            told = {one.key: one.usage for one in await self._list(POD_METRICS, pod_usage) or ()}
        found: dict[str, Resources] = {}
        for done, (node, there) in enumerate(pods.items()):
            if done % (AT_ONCE // 10) == 0:  # a node has some dozens of pods
                await asyncio.sleep(0)
            source = self._pods_of(reported[node].used) if node in reported else told
            keys = (running.pod.key for running in there)
            found |= {key: source[key] for key in keys if key in source}
        return found

    def forget(self) -> None:
        """Another one leads: metrics.k8s.io is not asked any more. NodeQoS is watched all the same."""
        self._asked.forget()
        self._fresh, self.sources = {}, {}

    def _pods_of(self, used: Used) -> Mapping[str, Resources]:
        try:
            return reported_pods(used.key, used.pods)
        except decode.DecodeError as error:
            self._unreadable(NODE_QOS, error)
            return {}

    async def _ask(self) -> str:
        """What metrics.k8s.io says of nodes; why it does not, "" where it does."""
        found = await self._list(NODE_METRICS, node_usage)
        for one in found or ():
            self._asked.see(one, self._wall())
        if found is not None:
            self._asked.keep({one.key for one in found})
        return self._failures.get(NODE_METRICS, "")

    async def _list(self, kind: Resource, read: Callable[[bytes], Used]) -> list[Used] | None:
        """All of a kind; None where it cannot be had, and then `_failures` says why."""
        found = []
        try:
            page = await self._api.list_page(kind, limit=0)
        except (APIError, Unreachable) as error:
            failure = f"metrics.k8s.io does not say what {kind.plural} use: {error}"
            if failure != self._failures.get(kind):  # where it is not served it is so each minute
                log.warning("usage not known of=%s error=%s", kind.plural, error)
            self._failures[kind] = failure
            return None
        self._failures.pop(kind, None)
        for done, raw in enumerate(page.items):
            if done % AT_ONCE == 0:
                await asyncio.sleep(0)
            try:
                found.append(read(raw))
            except decode.DecodeError as error:
                self._unreadable(kind, error)
        return found

    def _unreadable(self, kind: Resource, error: decode.DecodeError) -> None:
        self._skipped(kind.kind)
        log.warning("usage not readable error=%s", error)

    def _set(self, raw: bytes) -> str:
        used = reported_usage(raw)
        if used.stamp:
            self._reported.see(used, self._wall())
        else:
            self._reported.drop(used.key)
        return used.key
