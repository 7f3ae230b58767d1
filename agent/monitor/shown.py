"""The table of metrics: name, labels, and what of a sample each series shows. Pure; no prometheus_client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from agent.monitor import node
from agent.monitor.samples import NodeSample, PodSample, Pressure

Value = tuple[tuple[str, ...], float]
"""The labels' values, and the series' value."""

_Sample = TypeVar("_Sample")

POD_LABELS: Final = ("namespace", "pod")
LEVELS: Final = (node.NONE, node.SOME, node.HIGH)


@dataclass(frozen=True, slots=True)
class Shown(Generic[_Sample]):
    """A metric: `name` without the prefix j10ce_agent_ and the ending _total; `read`: its series."""

    name: str
    text: str
    labels: tuple[str, ...]
    read: Callable[[_Sample], Iterable[Value]]
    counter: bool = True


def _one(value: float | None) -> Iterable[Value]:
    return () if value is None else (((), value),)


def _by_label(**values: float | None) -> Iterable[Value]:
    return [((name,), value) for name, value in values.items() if value is not None]


def _disks(sample: PodSample) -> Iterable[Value]:
    detail = sample.detail
    return _by_label(read=detail.read, written=detail.written) if detail else ()


PODS: Final[tuple[Shown[PodSample], ...]] = (
    Shown("pod_cpu_seconds", "CPU time that the pod has used.", (), lambda pod: _one(pod.cpu)),
    Shown(
        "pod_cpu_throttled_seconds",
        "Time that CPU limits throttled the pod, over CPUs: its own or, if more, its containers'.",
        (),
        lambda pod: _one(pod.throttled),
    ),
    Shown(
        "pod_memory_bytes",
        "Memory that the pod holds, page cache included.",
        (),
        lambda pod: _one(pod.memory),
        counter=False,
    ),
    Shown(
        "pod_memory_anonymous_bytes",
        "Of the memory that the pod holds, what is anonymous.",
        (),
        lambda pod: _one(pod.detail.anonymous if pod.detail else None),
        counter=False,
    ),
    Shown(
        "pod_memory_file_bytes",
        "Of the memory that the pod holds, its page cache.",
        (),
        lambda pod: _one(pod.detail.file if pod.detail else None),
        counter=False,
    ),
    Shown(
        "pod_pressure_seconds",
        "Time that a thread of the pod waited for the resource (PSI some); where the kernel tells it.",
        ("resource",),
        lambda pod: _by_label(cpu=pod.cpu_stalled, memory=pod.memory_stalled, io=pod.io_stalled),
    ),
    Shown(
        "pod_refaulted_pages",
        "Pages of the pod that had been taken and were needed again.",
        (),
        lambda pod: _one(pod.detail.refaults if pod.detail else None),
    ),
    Shown(
        "pod_scanned_pages",
        "Pages of the pod that reclaim looked at; cgroup v2.",
        (),
        lambda pod: _one(pod.detail.scanned if pod.detail else None),
    ),
    Shown("pod_disk_bytes", "Bytes read from and written to disks, by direction.", ("direction",), _disks),
    Shown(
        "pod_oom_kills",
        "Processes of the pod that the kernel killed for memory; cgroup v2.",
        (),
        lambda pod: _one(pod.detail.oom_kills if pod.detail else None),
    ),
)
"""Metrics of each pod with a floor; namespace and pod come before the labels."""


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """The node's sample, and its pressure's level by resource."""

    sample: NodeSample
    levels: Mapping[str, str]


def _pressure(node: NodeSeen, read: Callable[[Pressure], float]) -> Iterable[Value]:
    return [((resource,), read(one)) for resource, one in node.sample.pressure.items()]


def _levels(node: NodeSeen) -> Iterable[Value]:
    return [((resource, one), one == now) for resource, now in node.levels.items() for one in LEVELS]


NODE: Final[tuple[Shown[NodeSeen], ...]] = (
    Shown(
        "node_cpu_seconds",
        "CPU time of the node's CPUs, by mode: busy, idle, stolen by the hypervisor.",
        ("mode",),
        lambda node: _by_label(busy=node.sample.busy, idle=node.sample.idle, stolen=node.sample.stolen),
    ),
    Shown(
        "node_memory_total_bytes",
        "The node's memory.",
        (),
        lambda node: _one(node.sample.memory_total),
        counter=False,
    ),
    Shown(
        "node_memory_available_bytes",
        "What could be had of the node's memory without swapping (MemAvailable).",
        (),
        lambda node: _one(node.sample.memory_available),
        counter=False,
    ),
    Shown(
        "node_disk_bytes",
        "Bytes read from and written to the node's disks, by direction.",
        ("direction",),
        lambda node: _by_label(read=node.sample.read, written=node.sample.written),
    ),
    Shown(
        "node_pressure_some_ratio",
        "Part of the last ten seconds in which something waited for the resource (PSI some, avg10).",
        ("resource",),
        lambda node: _pressure(node, lambda one: one.some),
        counter=False,
    ),
    Shown(
        "node_pressure_full_ratio",
        "Part of the last ten seconds in which everything waited for the resource (PSI full, avg10).",
        ("resource",),
        lambda node: _pressure(node, lambda one: one.full),
        counter=False,
    ),
    Shown(
        "node_pressure_some_seconds",
        "Time in which something waited for the resource (PSI some), since boot.",
        ("resource",),
        lambda node: _pressure(node, lambda one: one.some_total),
    ),
    Shown(
        "node_pressure_full_seconds",
        "Time in which everything waited for the resource (PSI full), since boot.",
        ("resource",),
        lambda node: _pressure(node, lambda one: one.full_total),
    ),
    Shown(
        "node_pressure_level",
        "1 for the node's pressure as NodeQoS tells it, None, Some or High; 0 for the other levels.",
        ("resource", "level"),
        _levels,
        counter=False,
    ),
)
"""Metrics of the node; the kernel's PSI where it has it."""
