"""The pods of which something is expected, with what their packets are known by."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

from agent.containers import Containers
from agent.network import identity
from agent.network.configured import Configured
from agent.network.identity import Found
from agent.network.netlink import Netlink
from agent.network.traffic import pod_traffic
from agent.nri.records import NriPod
from agent.planner import PlannedPod
from agent.state import Known, KnownPod
from qos.network.wanted import PodTraffic
from qos.pods.decision import Decided
from qos.pods.traffic import Traffic, traffic


class Parts(NamedTuple):
    """What the agent knows of its pods. planned: by uid; sandboxes: as the runtime tells them, by uid.

    decided: what a pod may expect that is not planned yet. cgroup_of: a pod's cgroup, "" unknown.
    """

    known: Known
    containers: Containers
    planned: Callable[[], Mapping[str, PlannedPod]]
    decided: Callable[[KnownPod], Decided]
    sandboxes: Callable[[], Mapping[str, NriPod]]
    cgroup_of: Callable[[str], str]


class NetworkPods:
    """mounts: cgroup hierarchies, as kernel.facts has them. proc: where that is mounted."""

    def __init__(
        self, parts: Parts, configured: Configured, mounts: Mapping[str, str], proc: str = "/proc"
    ) -> None:
        self._parts, self._configured, self._mounts, self._proc = parts, configured, mounts, proc
        self._started: dict[str, KnownPod] = {}
        """By uid, those that run and are not planned yet."""
        self._found = Found({}, {})
        """What was found the last time, of whom there was something."""

    def started(self, pod: KnownPod) -> Decided:
        """It has its network, and is not planned yet: what it may expect."""
        self._started = {**self._still_starting(), pod.pod.uid: pod}
        return self._parts.decided(pod)

    def _still_starting(self) -> dict[str, KnownPod]:
        planned, sandboxes = self._parts.planned(), self._parts.sandboxes()
        return {uid: one for uid, one in self._started.items() if uid in sandboxes and uid not in planned}

    def expected(self, decided: Decided) -> Traffic:
        """Of a pod of which this is decided."""
        return traffic(decided, self._configured.of_pod(decided.pod.uid))

    async def all(self, netlink: Netlink, *, by_cgroup: bool) -> tuple[PodTraffic, ...]:
        """All of them, looked up anew. by_cgroup: whether those with the host's network can be told so."""
        return await self._look(netlink, known=Found({}, {}), by_cgroup=by_cgroup)

    async def with_started(self, netlink: Netlink, *, by_cgroup: bool) -> tuple[PodTraffic, ...]:
        """The same, but only who was not found the last time is looked up: a start waits for this."""
        return await self._look(netlink, known=self._found, by_cgroup=by_cgroup)

    async def _look(self, netlink: Netlink, known: Found, *, by_cgroup: bool) -> tuple[PodTraffic, ...]:
        parts = self._parts
        planned, sandboxes = parts.planned(), dict(parts.sandboxes())
        self._started = self._still_starting()
        pods = {**self._started, **parts.known.pods}
        running = list(parts.containers.all().values())
        unknown = _unknown(pods, sandboxes, known)
        cgroups = {uid: parts.cgroup_of(uid) for uid in unknown}
        expected = {uid: self.expected(parts.decided(pods[uid])) for uid in self._started}
        expected |= {uid: self.expected(one.decided) for uid, one in planned.items()}
        found = await asyncio.to_thread(
            identity.find,
            netlink, unknown, sandboxes, running, lambda uid: cgroups[uid], self._mounts, self._proc,
        )  # fmt: skip
        ends = {uid: one for uid, one in {**known.ends, **found.ends}.items() if uid in pods}
        ids = {uid: one for uid, one in {**known.cgroup_ids, **found.cgroup_ids}.items() if uid in pods}
        self._found = Found({uid: end for uid, end in ends.items() if end.index}, ids)
        return pod_traffic(pods, expected, sandboxes, ends, ids if by_cgroup else {})


def _unknown(
    pods: Mapping[str, KnownPod], sandboxes: Mapping[str, NriPod], known: Found
) -> dict[str, KnownPod]:
    """Who is not found yet, and who has an address of theirs: it may be another's by now."""

    def addresses(uid: str) -> set[str]:
        return {*pods[uid].addresses, *(sandboxes[uid].addresses if uid in sandboxes else ())}

    new = pods.keys() - known.ends.keys() - known.cgroup_ids.keys()
    theirs = {address for uid in new for address in addresses(uid)}
    return {uid: one for uid, one in pods.items() if uid in new or not theirs.isdisjoint(addresses(uid))}
