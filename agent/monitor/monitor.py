"""The monitor: one pass a tick over the open meters of all pods with a floor, and of the node."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from agent.monitor import layout, node
from agent.monitor.delays import MOST_AT_ONCE, PRICE_OF_A_POD, QUIET, SETTLE_SECONDS, Counts, Delays
from agent.monitor.node import NodeMeters
from agent.monitor.pod import PodMeters
from agent.monitor.samples import NodeSample, PodSample
from kernel.refused import Gone, Refused
from qos import keys

log = logging.getLogger(__name__)

SELDOM_SECONDS: Final = 10.0
MOST_OPENED: Final = 50
"""Pods whose meters are opened in one tick: some 15 ms; all others wait for the next."""
RETRY_SECONDS: Final = 5.0
"""Seconds until a cgroup that could not be opened is tried again; one that is merely not there is tried each
tick.
"""


@dataclass(frozen=True, slots=True)
class Watched:
    """A pod whose floor is measured. `policy_key`: namespace/name, "" none; `cgroup`: its path from the root.

    `floor`: cpu in millicores, memory in bytes; a pod without either is not read. `limited`: whether a
    container of it has a CPU limit of its own, which can throttle it.
    """

    namespace: str
    name: str
    policy_key: str
    cgroup: str
    floor: Mapping[str, int]
    limited: bool = True

    @property
    def measured(self) -> bool:
        """Whether there is anything to measure it against."""
        return any(self.floor.get(resource, 0) > 0 for resource in (keys.CPU, keys.MEMORY))


@dataclass(frozen=True, slots=True)
class Tick:
    """What one pass saw, at monotonic time `at`: pods by uid that have a cgroup, and the node."""

    at: float
    pods: Mapping[str, PodSample]
    node: NodeSample


@dataclass(slots=True)
class _Pod:
    watched: Watched
    closer_at: float = 0.0
    retry_at: float = float("-inf")
    told: bool = False
    opened: PodMeters | None = None
    delays: Delays = field(default_factory=lambda: Delays(SETTLE_SECONDS, 0.0))


class Monitor:
    """Reads what pods use and wait for.

    mounts: v1 controller, or "" for v2, -> mountpoint. proc: where that file system is. settle_seconds: how
    far apart samples are at which the CPU can be judged where the kernel has no PSI for cgroups.
    `latest`: the last tick, None before the first; `levels`: the node's pressure, None, Some or High by
    resource; `watched`: the pods by uid; `failures`: how often a pod's meters could not be opened or read,
    though its cgroup is there. ValueError where no hierarchy counts CPU time.
    """

    def __init__(
        self, mounts: Mapping[str, str], proc: str = "/proc", *, settle_seconds: float = SETTLE_SECONDS
    ) -> None:
        self._layout = layout.of(mounts)
        self._proc = proc
        self._settle_seconds = settle_seconds
        self._node = NodeMeters(proc)
        self._pods: dict[str, _Pod] = {}
        self._made = 0
        self._threads_left = self._opened = 0
        self._turn = ""
        self.latest: Tick | None = None
        self.levels: dict[str, str] = {}
        self.failures = 0

    @property
    def watched(self) -> dict[str, Watched]:
        """Pods with a floor, by uid."""
        return {uid: pod.watched for uid, pod in self._pods.items()}

    def watch(self, pods: Mapping[str, Watched]) -> None:
        """Watch the pods with a floor among these, by uid, from now on; what is open of others is closed."""
        for uid in [uid for uid in self._pods if uid not in pods or not pods[uid].measured]:
            self._close(self._pods.pop(uid))
        for uid, watched in pods.items():
            if not watched.measured:
                continue
            pod = self._pods.get(uid)
            if pod is None or pod.watched.cgroup != watched.cgroup:
                if pod is not None:
                    self._close(pod)
                self._pods[uid] = _Pod(watched)
            else:
                pod.watched = watched

    def tick(self, now: float) -> Tick:
        """Read everything once, at monotonic time `now`."""
        sampled = self._node.sample(now)
        quiet = self._quiet(sampled)
        self.levels = {
            resource: node.level(resource, one.some, self.levels.get(resource, node.NONE))
            for resource, one in sampled.pressure.items()
        }
        self._threads_left, self._opened = MOST_AT_ONCE, 0
        found: dict[str, PodSample] = {}
        for uid, pod in self._in_turn():
            sample = self._sample(uid, pod, now, quiet=quiet)
            if sample is not None:
                found[uid] = sample
        self.latest = Tick(now, found, sampled)
        return self.latest

    def close(self) -> None:
        """Close all that is open; nothing is watched any more."""
        for pod in self._pods.values():
            self._close(pod)
        self._pods.clear()
        self._node.close()

    def _in_turn(self) -> list[tuple[str, _Pod]]:
        """All pods; first the one whose threads could not be asked any more in the last tick."""
        pods = list(self._pods.items())
        first = next((at for at, (uid, _) in enumerate(pods) if uid == self._turn), 0) if self._turn else 0
        self._turn = ""
        return pods[first:] + pods[:first]

    def _quiet(self, sampled: NodeSample) -> bool:
        """Whether nothing on this node has waited for a CPU lately."""
        cpu = sampled.pressure.get("cpu")
        return cpu is not None and cpu.some < QUIET

    def _sample(self, uid: str, pod: _Pod, now: float, *, quiet: bool) -> PodSample | None:
        if pod.opened is None and (now < pod.retry_at or self._opened >= MOST_OPENED):
            return None
        try:
            return self._read(uid, pod, now, quiet=quiet)
        except Gone:
            self._close(pod)
        except (Refused, ValueError) as error:  # ValueError: a text that is not as the kernel's documents say
            self._close(pod)
            self.failures += 1
            pod.retry_at = now + RETRY_SECONDS
            if not pod.told:
                pod.told = True
                log.warning(
                    "pod not measured pod=%s/%s why=%s", pod.watched.namespace, pod.watched.name, error
                )
        return None

    def _read(self, uid: str, pod: _Pod, now: float, *, quiet: bool) -> PodSample:
        if pod.opened is None:
            self._made += 1
            pod.opened = PodMeters(self._layout, pod.watched.cgroup, self._made)
            self._opened += 1
            pod.closer_at = now + SELDOM_SECONDS * (self._made % 10) / 10
            pod.opened.look_closer(now, limited=pod.watched.limited)
            pod.delays = Delays(self._settle_seconds, now + self._settle_seconds * (self._made % 10) / 10)
        elif now >= pod.closer_at:
            pod.closer_at += SELDOM_SECONDS * (1 + (now - pod.closer_at) // SELDOM_SECONDS)
            pod.opened.look_closer(now, limited=pod.watched.limited)
        due = pod.delays.due(now)
        sample = pod.opened.sample(now, settling=due)
        cpus = pod.watched.floor.get(keys.CPU, 0) / 1000
        if not due or sample.cpu_stalled is not None or not cpus:
            return sample
        return self._settle(uid, pod, sample, cpus, quiet=quiet)

    def _settle(self, uid: str, pod: _Pod, sample: PodSample, cpus: float, *, quiet: bool) -> PodSample:
        """The sample with how long the pod waited, where only its threads show it; as far as this tick's
        limit allows.
        """

        def read() -> Counts | None:
            if self._threads_left <= 0 or pod.opened is None:
                self._turn = self._turn or uid
                return None
            found = pod.opened.delays(self._proc)
            self._threads_left -= len(found) + PRICE_OF_A_POD
            return found

        return pod.delays.settle(sample, cpus, read, quiet=quiet)

    @staticmethod
    def _close(pod: _Pod) -> None:
        if pod.opened is not None:
            pod.opened.close()
            pod.opened = None
