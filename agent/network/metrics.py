"""What /metrics says of the node's network: of pods with something of their own, and of what is shared."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from agent.network import counting
from agent.network.bpf.pins import MOUNTED_AT
from agent.network.counting import NO_COUNTS, Counts
from agent.network.netlink import Netlink
from agent.network.records import Counters
from agent.network.shaper import Round
from qos.network.minors import BANDS, HOST, ROOT, SHARED
from qos.network.wanted import Direction

Family = CounterMetricFamily | GaugeMetricFamily
Named = tuple[tuple[str, ...], Counters]
"""The labels' values, and what they are the labels of."""

_CLASSES: Final = {
    ROOT: "link",
    HOST: "host",
    **{minor: band.name for band, minor in BANDS.items()},
    **{minor: f"{band.name}-shared" for band, minor in SHARED.items()},
}

log = logging.getLogger(__name__)


class _Counted(NamedTuple):
    """A metric: its name without what all begin with, what is counted, and the value's field."""

    name: str
    text: str
    field: str
    counter: bool = True


_SHOWN: Final = (
    _Counted("bytes", "Bytes of frames that went through {0}.", "bytes"),
    _Counted("packets", "Frames that went through {0}.", "packets"),
    _Counted("dropped_packets", "Packets that were dropped in {0}.", "drops"),
    _Counted("overlimits", "Times that its own limit held packets up in {0}.", "overlimits"),
    _Counted("backlog_bytes", "Bytes that wait in {0}.", "backlog", counter=False),
)


class NetworkCollector(Collector):
    """Shows what refresh() has read: when Prometheus asks, and in a thread. 250 pods: some 5 ms of CPU.

    last: the Shaper's last round. names: namespace and name of pods, by uid. bpf_root: of the BPF file
    system.
    """

    def __init__(
        self,
        last: Callable[[], Round | None],
        names: Callable[[], Mapping[str, tuple[str, str]]],
        registry: CollectorRegistry,
        bpf_root: str = MOUNTED_AT,
    ) -> None:
        self._last, self._names, self._bpf_root = last, names, bpf_root
        self._counts = NO_COUNTS
        self._reading: asyncio.Future[Counts] | None = None
        registry.register(self)

    async def refresh(self) -> None:
        """Ask the kernel; who comes while that is under way gets the same answer."""
        if self._last() is None:
            return
        if self._reading is None or self._reading.done():
            self._reading = asyncio.ensure_future(asyncio.to_thread(_read, self._bpf_root))
        self._counts = await asyncio.shield(self._reading)

    def collect(self) -> Iterator[Family]:
        """One family a metric, whether it has series or not."""
        last, counts = self._last(), self._counts
        pods = dict(of_pods(last, counts, self._names())) if last is not None else {}
        classes = dict(of_classes(last, counts)) if last is not None else {}
        of_pod, of_class = ("namespace", "pod", "direction"), ("direction", "class")
        yield from _families("pod_network", "the pod's own class, bucket or policer", of_pod, pods.items())
        yield from _families("network_class", "the class", of_class, classes.items())


def of_pods(last: Round, counts: Counts, names: Mapping[str, tuple[str, str]]) -> Iterator[Named]:
    """By namespace, name and direction; a pod that went and came back by the same name is the newer one."""
    for uid, pod in last.pods.items():
        if uid not in names:
            continue
        granted = last.wanted.standing.get(uid)
        bucket = counts.buckets.get(pod.interface) if pod.ingress.limit is not None else None
        for direction, interface in _interfaces(last).items():
            found = _own(granted.minor, interface, direction, counts) if granted else None
            if direction is Direction.INGRESS:
                found = bucket or found  # what goes through the IFB goes through the bucket
            if found is not None:
                yield (*names[uid], direction.value), found


def _own(minor: int, interface: int, direction: Direction, counts: Counts) -> Counters | None:
    return counts.classes.get(interface, {}).get(minor) or counts.policers.get((minor, direction))


def of_classes(last: Round, counts: Counts) -> Iterator[Named]:
    """Of those that are no pod's, by direction and class."""
    for direction, interface in _interfaces(last).items():
        for minor, found in counts.classes.get(interface, {}).items():
            if minor in _CLASSES:
                yield (direction.value, _CLASSES[minor]), found


def _interfaces(last: Round) -> dict[Direction, int]:
    link = last.link
    return {Direction.EGRESS: link.index if link else 0, Direction.INGRESS: link.ifb if link else 0}


def _families(prefix: str, where: str, labels: tuple[str, ...], series: Iterable[Named]) -> Iterator[Family]:
    for one in _SHOWN:
        make = CounterMetricFamily if one.counter else GaugeMetricFamily
        family = make(f"j10ce_agent_{prefix}_{one.name}", one.text.format(where), labels=labels)
        for values, counters in series:
            family.add_metric(values, getattr(counters, one.field))
        yield family


def _read(bpf_root: str) -> Counts:
    try:
        with Netlink() as netlink:
            return counting.read(netlink, bpf_root)
    except OSError as error:
        log.warning("the network's counters cannot be read why=%r", str(error))
        return NO_COUNTS
