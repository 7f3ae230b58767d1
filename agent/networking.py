"""An agent's work on its node's network: what it is told of it, publishes, shapes, counts and reports."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry

from adapters.api import ClusterAPI
from agent.config import AgentConfig
from agent.deficit.judge import Judged
from agent.network.configured import LOOK_SECONDS, Configured
from agent.network.koordinator import SloControllerConfig
from agent.network.metering import Metering
from agent.network.metrics import NetworkCollector
from agent.network.publishing import Publishing
from agent.network.sending import Way
from agent.network.uplink import Uplink
from agent.network_report import OBSERVES, OFF, NetworkReport
from agent.network_rounds.left import LeftNetwork
from agent.network_rounds.pods import Parts
from agent.node_network import NodeNetwork
from agent.state import KnownPod
from qos.network.bands import Amount, Bands, Configuration

FILE_SECONDS: Final = 5.0
"""Between two writes of what `j10ce network status` shows."""
NETWORK_SECONDS: Final = 30.0
"""Until the kernel is asked again where it let nobody shape its network."""
LEFT_SECONDS: Final = 300.0
"""Until what an agent that shaped the network could not be relieved of is tried again."""
RESTART_SECONDS: Final = 1.0
"""Until a part goes on after a bug."""


class Task(NamedTuple):
    """What is to be done again and again. seconds: until the next time."""

    name: str
    seconds: float
    once: Callable[[], Awaitable[object]]


class Networking:
    """mounts: cgroup hierarchies. known_all: as NodeNetwork has it. save: what is known has changed.
    judged: is told who wanted his floor, as Metering has it.
    """

    def __init__(
        self,
        config: AgentConfig,
        api: ClusterAPI | None,
        parts: Parts,
        mounts: Mapping[str, str],
        known_all: Callable[[], bool],
        save: Callable[[], None],
        judged: Callable[[float, Mapping[Way, Judged]], None],
        *,
        registry: CollectorRegistry,
        clock: Callable[[], float],
    ) -> None:
        self._config, self._known, self._judged, self._clock = config, parts.known, judged, clock
        self._uplink = Uplink(config.link)
        host = Bands(host=Amount(percent=config.link_host_percent))
        self._configured = Configured(Configuration(host, host), config.network_files)
        self._publishing = Publishing(
            self._uplink,
            api,
            config.node,
            parts.known.node_labels,
            save,
            configuration=lambda: self._configured.configuration,
            floors=config.network_floors,
            observe=config.observe,
            registry=registry,
            clock=clock,
        )
        self._slo_config = self._followed(api, save)
        self._network: NodeNetwork | None = None
        self._collector: NetworkCollector | None = None
        if config.network_floors and not config.observe:
            self._network = network = NodeNetwork(
                parts, lambda: self._uplink.link, known_all, config.run, mounts,
                proc=config.proc, registry=registry, configured=self._configured,
                received=self._received if config.shape_ingress else None,
            )  # fmt: skip
            self._collector = NetworkCollector(lambda: network.last, self._names, registry)
        why = OBSERVES if config.observe else OFF
        self.report = NetworkReport(self._network, self._uplink, clock, why)

    def tasks(self) -> Iterator[Task]:
        """All that goes on until the agent ends."""
        if self._slo_config is not None:
            yield Task("slo-controller-config", RESTART_SECONDS, self._slo_config.run)
        if self._config.network_floors and (self._slo_config is not None or self._config.network_files):
            yield Task("network files", LOOK_SECONDS, self._see_files)
        yield Task("link", RESTART_SECONDS, self._publishing.run)
        if self._network is not None:
            network = self._network
            metering = Metering(lambda: network.last, self._judged, clock=self._clock)
            yield Task("network", NETWORK_SECONDS, network.run)
            yield Task("network file", FILE_SECONDS, self._write)
            yield Task("network floors", RESTART_SECONDS, metering.run)
        elif not self._config.observe:
            yield Task("left network", LEFT_SECONDS, LeftNetwork(self._config.run).take_away)

    @property
    def fights(self) -> int:
        """Interfaces at which somebody undoes what is made, again and again."""
        return self._network.fights if self._network is not None else 0

    def changed(self) -> None:
        """Pods, or what they are promised, are others than before."""
        if self._network is not None:
            self._network.changed()

    async def started(self, pod: KnownPod) -> None:
        """As NodeNetwork has it."""
        if self._network is not None:
            await self._network.started(pod)

    async def refresh(self) -> None:
        """Before /metrics is shown: the kernel's counters."""
        if self._collector is not None:
            await self._collector.refresh()

    def _followed(self, api: ClusterAPI | None, save: Callable[[], None]) -> SloControllerConfig | None:
        key = self._config.koordinator_config
        if api is None or not key or not self._config.network_floors:
            return None
        return SloControllerConfig(api, key, self._known.network_config, save, clock=self._clock)

    def _received(self, ifb: int) -> None:
        self._uplink.ifb = ifb
        self._publishing.look_again()

    async def _see_files(self) -> None:
        told = dict(self._known.network_config) if self._slo_config is not None else {}
        if await asyncio.to_thread(self._configured.look, dict(self._known.node_labels), told):
            self._publishing.look_again()
            self.changed()

    async def _write(self) -> None:
        """For `j10ce network status`."""
        await self.report.write(self._config.run, self._names())

    def _names(self) -> dict[str, tuple[str, str]]:
        """Namespace and name, by uid."""
        return {uid: (one.pod.namespace, one.pod.name) for uid, one in self._known.pods.items()}
