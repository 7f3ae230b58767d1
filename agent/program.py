"""The agent: what it is made of, in what order its parts start, and how they stop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from adapters import garbage
from adapters.api import ClusterAPI
from adapters.loops import forever
from adapters.machine import ThisMachine
from agent import defaults, observed
from agent.config import NRI_LOCK, AgentConfig
from agent.containers import Containers
from agent.counted import Counted
from agent.enforcement.drift import DriftWatch
from agent.enforcement.enforcer import Enforcer
from agent.enforcement.lowering import Lowering
from agent.enforcement.metrics import DriftMetrics, LoweringMetrics
from agent.enforcement.originals import Originals
from agent.enforcement.writing import Writing
from agent.measuring import Measuring
from agent.monitor.usage import USAGE_SECONDS
from agent.network_rounds.pods import Parts
from agent.networking import Networking
from agent.nri.plugin import NriPlugin
from agent.observer import Observer
from agent.observer_metrics import ObserverMetrics
from agent.planner import Planner
from agent.probes import Node, observed_promises, promises
from agent.readiness import Readiness
from agent.reconciler import Reconciler
from agent.report.writer import ReportWriter
from agent.reporting import Identity, allocatable_lack, policy_states
from agent.runtime_events import RuntimeEvents
from agent.state import ContainerKey, Known, KnownPod
from agent.sync.hook_files import HookFiles
from agent.sync.kubernetes import KubernetesSource
from agent.sync.missed import Missed
from agent.sync.source import Kind, Source
from agent.sync.store import Store
from agent.telling import Telling
from agent.told import Told
from qos.cluster.node_report import NodeReport, PromiseState
from qos.plan.assumed import Machine
from qos.plan.node import V2
from qos.pods.containers import BEST_EFFORT

log = logging.getLogger(__name__)

TICK_SECONDS: Final = 1.0
REPORT_SECONDS: Final = 5.0
MISSED_SECONDS: Final = 1.0
OBSERVED_SECONDS: Final = 10.0
FACTS_SECONDS: Final = 10.0
"""Until a disk, a CPU or a controller that came or went is planned with: a look takes about a millisecond."""
GARBAGE_SECONDS: Final = 5.0
PROBE_SECONDS: Final = 900.0
"""A controller may be turned on or off while we run."""
NETWORK_LATE_SECONDS: Final = 60.0
"""Until it is reported that the network is not shaped yet: it is, soon after the first pass."""
LISTING_SECONDS: Final = 2.0
"""Seconds between the first report of the source and a pass, unless it has reported everything before."""
RESTART_SECONDS: Final = 1.0
"""Until a part goes on after a bug."""
SYNCHRONIZE_SECONDS: Final = 30.0
"""Seconds after which a runtime that has not reported its containers counts as one without NRI."""
TOLD_SECONDS: Final = 10.0
"""Until the runtime hears that a setting of a container is wanted no more."""
LATE: Final = 2.5
"""The number of intervals of the full check for which a policy's settings count as verified."""


class Agent:
    """One agent, assembled; `api`: the API server, None for a folder of YAML.

    `clock`: monotonic. `wall`: since the epoch, for what is written. Ending it undoes nothing.
    """

    def __init__(
        self,
        config: AgentConfig,
        api: ClusterAPI | None,
        identity: Identity,
        registry: CollectorRegistry,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.config = config
        self.registry = registry
        self._clock, self._wall, self._started = clock, wall, clock()
        self._identity = identity
        self.machine = machine = ThisMachine(config.proc, config.sys)
        self._unified = machine.cgroup == V2
        self.store = Store(config.state, registry=registry)
        self.known = self.store.load() or Known()
        self._known_at_start = bool(self.known.pods)
        self.containers = Containers(machine.has, machine.kubepods)
        self.originals = Originals(config.run, kept=not config.observe)
        self._drift_metrics = DriftMetrics(registry, clock)
        self.plugin: NriPlugin | None = None
        self._lowering: Lowering | None = None
        self._observer = self._observing() if config.observe else None
        self.enforcer: Enforcer | Observer
        self.drift: DriftWatch | Observer
        self.enforcer, self.drift = (self._observer, self._observer) if self._observer else self._enforcing()
        self.source = self._source(api)
        self.planner = Planner(machine, machine.size(frozenset()), clock, config.choices, config.node_shares)
        self.files = HookFiles(config.run, self._planned_all, registry=registry, clock=clock)
        self.reconciler = Reconciler(
            self.known,
            self.containers,
            self.planner,
            self.enforcer,
            self.originals,
            None if config.observe else self.files,
            self._complete,
            clock=clock,
            listed=self._listed,
        )
        told = Told(config.run, kept=not config.observe)
        self.enforcer.writing.notes.says_ours = told.is_ours
        self.telling = Telling(
            told,
            self.originals,
            self.reconciler.plan_of,
            machine.text,
            self.enforcer.writing.reclaims,
            unified=self._unified,
        )
        self.events = RuntimeEvents(
            self.known,
            self.containers,
            self.reconciler,
            self.originals,
            self.drift.expect,
            self.planner.read_pod,
            self.telling,
            unified=self._unified,
            observe=config.observe,
            network=self._network_started,
        )
        self.plugin = self._plugin()
        self.missed = Missed(config.run)
        self.measuring = Measuring(machine.mounts, config, registry, clock, wall)
        self.writer = (
            ReportWriter(api, config.node, registry=registry, clock=clock, wall=wall) if api else None
        )
        self.networking = Networking(
            config,
            api,
            self._parts(),
            machine.mounts,
            self._planned_any,
            self.store.changed,
            self.measuring.take_network,
            registry=registry,
            clock=clock,
        )
        self._readiness = Readiness(self.reconciler, self.drift, config.check_seconds, clock)
        self._promises: tuple[PromiseState, ...] = ()
        self._watched = 0
        self._defaults_for: Machine | None = None
        self._complete_since: int | None = None
        self._missed: frozenset[ContainerKey] = frozenset()
        self._lost: frozenset[ContainerKey] = frozenset()
        self._garbage = garbage.Keeper()
        self._errors = Counter(
            "j10ce_agent_loop_errors",
            "Errors of background loops, by loop; each has a log line.",
            ["loop"],
            registry=registry,
        )
        self._show_gauges()

    def _enforcing(self) -> tuple[Enforcer, DriftWatch]:
        config = self.config
        enforcer = Enforcer(self.machine.mounts, self.originals, config.run, config.proc, self._clock)
        self._lowering = enforcer.lowering
        LoweringMetrics(enforcer.lowering, self.registry)
        drift = DriftWatch(
            enforcer,
            self._drift_metrics,
            self._foreign,
            proc=config.proc,
            check_seconds=config.check_seconds,
            announced=self._listed,
        )
        return enforcer, drift

    def _observing(self) -> Observer:
        if len(self.originals):
            log.warning(
                "observing, and cgroups=%d still have settings of an agent that enforced: `j10ce node "
                "restore` takes them back", len(self.originals.paths()),
            )  # fmt: skip
        config = self.config
        writing = Writing(self.machine.mounts, self.originals, config.run, config.proc)
        observer = Observer(writing, config.check_seconds, self._clock)
        ObserverMetrics(observer, self.registry)
        return observer

    def _parts(self) -> Parts:
        """What shaping the network has to know of pods."""
        return Parts(
            self.known,
            self.containers,
            lambda: self.reconciler.planned,
            lambda pod: self.planner.decided(pod, self.known),
            lambda: self.events.sandboxes,
            lambda uid: self.planner.cgroup_of(uid) or self.events.cgroup_of(uid),
        )

    async def _network_started(self, pod: KnownPod) -> None:
        await self.networking.started(pod)

    def _planned_any(self) -> bool:
        """Whether there are plans of all pods that this agent, or the one before, has heard of."""
        return self.reconciler.passes > 0 and (self._known_at_start or self._complete())

    def _source(self, api: ClusterAPI | None) -> Source:
        if api is not None:
            return KubernetesSource(
                api,
                self.config.node,
                self.known,
                self._changed,
                self._runs,
                registry=self.registry,
                clock=self._clock,
            )
        assert self.config.standalone is not None
        from agent.sync.folder import FolderSource  # its YAML reader takes memory

        return FolderSource(self.config.standalone, self.known, self._changed)

    def _complete(self) -> bool:
        """Whether what is not known is not there. A folder knows no uids: the runtime must say so, too."""
        if not self.source.spoken.is_set() or self.plugin is None:
            return self.source.spoken.is_set()
        late = self._clock() - self._started > SYNCHRONIZE_SECONDS
        return self.events.synchronized or (late and self.config.standalone is None)

    def _planned_all(self) -> bool:
        """Whether a pass was made since; the one that is going on may have begun before."""
        if not self._complete():
            return False
        if self._complete_since is None:
            self._complete_since = self.reconciler.passes
            asyncio.get_running_loop().call_later(LISTING_SECONDS, self.reconciler.changed)
        return self.reconciler.passes > self._complete_since

    def _listed(self) -> bool:
        """Whether the runtime reports its containers, and has reported all of them."""
        return self.plugin is not None and self.plugin.connected

    def _runs(self, uid: str) -> bool:
        """Whether the runtime has a sandbox of this pod; it reports that while it is connected."""
        return self._listed() and self.events.runs(uid)

    def _plugin(self) -> NriPlugin | None:
        if self.config.nri_socket is None:
            return None
        return NriPlugin(
            self.config.nri_socket,
            self.events,
            lock=self.config.run / NRI_LOCK,
            registry=self.registry,
            clock=self._clock,
        )

    def _show_gauges(self) -> None:
        def gauge(name: str, text: str, value: Callable[[], float]) -> None:
            Gauge(f"j10ce_agent_{name}", text, registry=self.registry).set_function(value)

        gauge("ready", "1 when floors are kept.", lambda: not self.not_ready())
        gauge("pods", "Pods that are known.", lambda: len(self.known.pods))
        gauge("containers", "Containers that run and are known.", lambda: len(self.containers))
        gauge(
            "containers_missing",
            "Containers that run by their pods' statuses and whose cgroups are not found.",
            lambda: len(self.containers.missing),
        )
        Counted(
            "j10ce_agent_passes",
            "Passes over all pods since the start.",
            lambda: {"": self.reconciler.passes},
            registry=self.registry,
        )
        gauge("first_pass_seconds", "How long the first one took.", lambda: self.reconciler.first_seconds)
        gauge("pass_seconds", "How long the last pass over all pods took.", lambda: self.reconciler.seconds)

    async def run(self, stop: asyncio.Event) -> None:
        """Keep floors until `stop` is set; what is in the kernel then stays."""
        if self._known_at_start:
            self.reconciler.changed()  # from what was known, whether the API server answers or not
        asyncio.get_running_loop().call_later(SYNCHRONIZE_SECONDS + 1, self.reconciler.changed)
        tasks = [asyncio.create_task(work, name=name) for name, work in self._tasks()]
        try:
            await stop.wait()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.store.save(self.known)
            await self.measuring.close()

    def _tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        def loop(name: str, seconds: float, once: Callable[[], Awaitable[object]]) -> tuple[str, Any]:
            return name, forever(name, seconds, once, lambda failed: self._errors.labels(failed).inc())

        yield loop("source", RESTART_SECONDS, self.source.run)
        yield loop("spoken", RESTART_SECONDS, self._once_spoken)
        yield loop("store", RESTART_SECONDS, lambda: self.store.run(self.known))
        yield loop("garbage", GARBAGE_SECONDS, self._collect)
        yield loop("reconcile", 0.0, self.reconciler.run_once)
        yield loop("drift", RESTART_SECONDS, self.drift.run)
        if self._lowering is not None:
            yield loop("lower", RESTART_SECONDS, self._lowering.run)
        yield loop("measure", TICK_SECONDS, self._measure)
        if self._observer is None:
            yield loop("missed", MISSED_SECONDS, self._see_missed)
        else:
            yield loop("observed", OBSERVED_SECONDS, partial(self._write_observed, self._observer))
        yield loop("probe", PROBE_SECONDS, self._probe)
        yield loop("facts", FACTS_SECONDS, self._see_facts)
        for task in self.networking.tasks():
            yield loop(*task)
        if self.plugin is not None:
            yield loop("nri", RESTART_SECONDS, self.plugin.run)
            yield loop("told", TOLD_SECONDS, partial(self._take_back_told, self.plugin))
        if self.writer is not None:
            yield loop("usage", USAGE_SECONDS, self.measuring.measure_usage)
            yield loop("report", REPORT_SECONDS, self._offer)
            yield loop("report writer", RESTART_SECONDS, self.writer.run)

    def _changed(self, kind: Kind, key: str) -> None:
        """The source says something else of a pod or of a rule."""
        if kind == "pods":
            self.events.renew(key)
            self.reconciler.cgroup_changed(key)  # a resize of it is a resize beside all others, too
        self.store.changed()
        if self.source.spoken.is_set():
            self.reconciler.changed()
        else:  # more is on its way; but what is known counts, also where some of it never comes
            asyncio.get_running_loop().call_later(LISTING_SECONDS, self.reconciler.changed)

    def _foreign(self, path: str, _file: str, _writer: str) -> None:
        """Somebody else wrote one of our files: it is repaired, and plans may have to be others."""
        self.reconciler.cgroup_changed(path)
        self.reconciler.changed()

    async def _once_spoken(self) -> None:
        """What is in the cache gives way to what the source says; then there is nothing left to wait for."""
        await self.source.spoken.wait()
        self.store.spoken()
        self.reconciler.changed()
        await asyncio.Event().wait()

    async def _collect(self) -> None:
        self._garbage.keep()

    async def _see_missed(self) -> None:
        """The hook could not give a container its settings: a pass does."""
        for one in self.missed.read():
            log.warning("hook missed container=%s pod=%s why=%r", one.container_id, one.pod_uid, one.reason)
            self.missed.settled(one)
            self.reconciler.changed()

    async def _see_facts(self) -> None:
        """CPUs, disks and controllers come and go; the hook's defaults are made of them, too."""
        if self.planner.is_outdated():
            log.info("the machine has changed: CPUs, disks, memory or controllers")
            self.reconciler.changed()
        if not self.config.observe and self._defaults_for != self.planner.size:
            self._defaults_for = self.planner.size
            self.files.put_default(BEST_EFFORT, defaults.best_effort(self.planner.size, self.config.choices))

    async def _probe(self) -> None:
        node = Node(
            self.machine.mounts,
            unified=self._unified,
            devices=self.planner.size.devices,
            proc=self.config.proc,
        )
        self._promises = observed_promises(node, self._pods_top()) if self.config.observe else promises(node)
        for state in self._promises:
            if not state.enforced:
                log.info("not enforced here promise=%r why=%r", state.promise, state.message)

    async def _take_back_told(self, plugin: NriPlugin) -> None:
        """What a plan no longer wants is put back in the kernel by the pass, and here in the runtime."""
        if plugin.connected and self._observer is None and self._planned_all():
            await self.telling.take_back(self.containers.all().values(), plugin.update)

    async def _write_observed(self, observer: Observer) -> None:
        """For `j10ce node observed`."""
        seen = observed.observed_node(
            self.config.node,
            self._wall(),
            observer,
            self.reconciler.planned,
            self.measuring.deficit_seconds,
        )
        await asyncio.to_thread(observed.write, self.config.state, seen)

    def _pods_top(self) -> str:
        """A cgroup that has what pods' cgroups have."""
        return next(iter(self.machine.kubepods()), "")

    async def _measure(self) -> None:
        if self._watched != self.reconciler.changes:
            self._watched = self.reconciler.changes
            self.networking.changed()
            self.measuring.watch(self.reconciler.planned, self.containers)
        self.measuring.tick()

    async def _offer(self) -> None:
        """Nothing before the first pass, unless that does not come: what is written of this node holds on."""
        missing = self.containers.missing
        self._lost, self._missed = missing & self._missed, missing  # one that has just died is not lost
        self.networking.report.keep(self.known.pods)
        whole = self.reconciler.passes and (self.networking.report.known() or self._late())
        due = whole or self._readiness.lasting()
        if self.writer is not None and self._promises and due:
            self.writer.offer(self.report())

    def _late(self) -> bool:
        """Whether what takes that long is no matter of starting any more."""
        return self._clock() - self._started > NETWORK_LATE_SECONDS

    def report(self) -> NodeReport:
        """The node as it is now."""
        since = self._clock() - LATE * self.config.check_seconds
        states = policy_states(
            self.reconciler.planned.values(),
            self.containers.all(),
            self.enforcer.reports,
            since,
            self.measuring.deficit_seconds,
            self._lost,
            self.containers.unseen,
            self.networking.report.of_pod,
        )
        return NodeReport(
            agent_version=self._identity.version,
            kernel=self._identity.kernel,
            cgroup=self.machine.cgroup,
            runtime=(self.plugin.version if self.plugin else "") or "unknown",
            promises=(*self._promises, *self.networking.report.promises()),
            pressure=self.measuring.pressure(),
            repaired=self._drift_metrics.repaired_last_hour(),
            fights=len(self.drift.fights()) + self.networking.fights,
            policies=states,
            not_ready=self._readiness.lasting(),
            observing=self.config.observe,
            allocatable=allocatable_lack(self.planner.node_share()),
            network=self.networking.report.state(),
            usage=self.measuring.usage,
        )

    async def refresh(self) -> None:
        """Before /metrics is shown: what is not read as it happens."""
        await self.networking.refresh()

    def not_ready(self) -> str:
        """Why floors may not be kept now, "" when they are."""
        return self._readiness.problem()
