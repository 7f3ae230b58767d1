"""The monitor and the tally of deficits at work: what is watched, when it is read, what is kept of it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from agent.config import AgentConfig
from agent.containers import Containers
from agent.deficit import budget_file
from agent.deficit.budget_file import Clocks
from agent.deficit.judge import Judged
from agent.deficit.tally import Tally
from agent.monitor.metrics import MonitorCollector
from agent.monitor.monitor import Monitor, Watched
from agent.monitor.usage import UsageMeter
from agent.network.sending import Way
from agent.planner import PlannedPod
from qos.cluster.node_report import UsageState
from qos.keys import BANDWIDTHS
from qos.network.wanted import Direction

log = logging.getLogger(__name__)

BUDGETS: Final = "budgets.json"
RESOURCES: Final = {one: BANDWIDTHS[one.value].rpartition("/")[2] for one in Direction}
"""What a floor of each direction is called in metrics: egress-bandwidth, ingress-bandwidth."""
SAVE_SECONDS: Final = 60.0


class Measuring:
    """Measures once a second, when tick() is called; the budgets are saved once a minute."""

    def __init__(
        self,
        mounts: Mapping[str, str],
        config: AgentConfig,
        registry: CollectorRegistry,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._clock, self._wall = clock, wall
        self._file = config.state / BUDGETS
        self._boot = _boot(config.proc)
        self._saved = clock()
        self._saving: asyncio.Future[None] | None = None
        self._watched: dict[str, Watched] = {}
        self._running: dict[str, str] = {}
        self._monitor = Monitor(mounts, config.proc)
        self._usage = UsageMeter(mounts, config.proc, clock, wall)
        self._tally = Tally(*budget_file.load(self._file, self._clocks()))
        MonitorCollector(self._monitor, self._tally, registry, clock)

    def watch(self, planned: Mapping[str, PlannedPod], containers: Containers) -> None:
        """Watch these pods from now on: those of which a container runs; each second those with a floor."""
        self._running = _running(planned, containers)
        self._watched = _watched(planned, containers)
        self._monitor.watch(self._watched)

    def tick(self) -> None:
        """Read, judge, and now and then save."""
        tick = self._monitor.tick(self._clock())
        self._tally.take(tick, self._watched)
        if self._clock() - self._saved > SAVE_SECONDS and (self._saving is None or self._saving.done()):
            self._saving = asyncio.ensure_future(self._save())

    async def measure_usage(self) -> None:
        """What the node and all its pods use; called each USAGE_SECONDS."""
        await self._usage.measure(self._running)

    @property
    def usage(self) -> UsageState | None:
        """As it was measured last; None before."""
        return self._usage.latest

    def take_network(self, at: float, judged: Mapping[Way, Judged]) -> None:
        """Who wanted his floor of the network in an interval that ended at `at`, and whether he had it."""
        by_resource = {(way.uid, RESOURCES[way.direction]): one for way, one in judged.items()}
        self._tally.take_network(at, by_resource, self._watched)

    async def close(self) -> None:
        """Save, after a save that is under way."""
        if self._saving is not None:
            await asyncio.wait([self._saving])
        await self._save()

    async def _save(self) -> None:
        """Write the budgets; what the disk refuses is logged, and tried again in a minute.

        In a thread: a disk that is busy takes seconds, and the runtime waits for this loop.
        """
        self._saved = self._clock()
        data = budget_file.encoded(self._tally.kept, self._tally.offset, self._clocks())
        try:
            await asyncio.to_thread(budget_file.write, self._file, data)
        except OSError as error:
            log.warning("budgets not saved file=%s error=%r", self._file, str(error))

    def pressure(self) -> Mapping[str, str]:
        """The node's, coarsely: cpu, memory, io -> None, Some, High."""
        return dict(self._monitor.levels)

    def deficit_seconds(self, policy: str) -> float:
        """The deficit seconds of all pods of the policy here."""
        return self._tally.deficit_seconds(policy)

    def _clocks(self) -> Clocks:
        return Clocks(self._clock(), self._boot, self._wall())


def _watched(planned: Mapping[str, PlannedPod], containers: Containers) -> dict[str, Watched]:
    """Pods with a floor of which a container runs, by uid; the pod's cgroup is its container's parent."""
    groups = {key.pod_uid: one.cgroup.rpartition("/")[0] for key, one in containers.all().items()}
    found = {}
    for uid, one in planned.items():
        decided = one.decided
        if uid in groups and decided.kept:
            policy = decided.policy.key if decided.policy else ""
            pod = decided.pod
            limited = any(container.cpu_limit for container in pod.containers)
            found[uid] = Watched(pod.namespace, pod.name, policy, groups[uid], decided.kept, limited)
    return found


def _running(planned: Mapping[str, PlannedPod], containers: Containers) -> dict[str, str]:
    """All pods of which a container runs, namespace/name -> the pod's cgroup; of VMs, too."""
    groups = {key.pod_uid: one.cgroup for key, one in containers.unseen.items()}
    groups |= {key.pod_uid: one.cgroup.rpartition("/")[0] for key, one in containers.all().items()}
    pods = {uid: planned[uid].decided.pod for uid in groups if uid in planned}
    return {f"{pod.namespace}/{pod.name}": groups[uid] for uid, pod in pods.items()}


def _boot(proc: str) -> str:
    try:
        return Path(proc, "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
