"""Katalyst's annotations on pods, as its users have them.

Source: kubewharf/katalyst-api pkg/consts/qos.go, kubewharf/katalyst-core pkg/config/generic/qos.go and
pkg/util/qos.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from qos import keys
from qos.pods.containers import GUARANTEED
from qos.pods.peers.reading import Note, Reader, Said, integer, text_object
from qos.promises import Overrides, Unsupported

CLASSES: Final = {
    "dedicated_cores": "LSE",
    "shared_cores": "LS",
    "reclaimed_cores": "BE",
    "system_cores": "SYSTEM",
}
"""Katalyst's QoS levels. Cores that are dedicated there are used by no other pod, which is LSE here."""

_OOM_RANGES: Final = {
    "BE": (-100, -1),
    "LS": (0, 99),
    "LSR": (100, 199),
    "LSE": (100, 199),
    "SYSTEM": (200, 299),
}
_OOM_IGNORED: Final = -300
_OOM_NEVER: Final = 300
_OF_GUARANTEED: Final = -997
"""What the kubelet gives Guaranteed pods."""
_BURST_POLICIES: Final = ("default", "none", "closed", "static", "dynamic")

_NUMA: Final = "NUMA nodes are no part of a plan: the kubelet's topology manager binds them"
_CARD: Final = "choosing a network card is no part of a plan; a pod's band and limits are said otherwise"
_NOT_HERE: Final = {
    "numa_binding": ("cpuset.mems", _NUMA),
    "numa_exclusive": ("cpuset.mems", _NUMA),
    "numa_share": ("cpuset.mems", _NUMA),
    "numa_affinity": ("cpuset.mems", _NUMA),
    "rss_overuse_threshold": ("", "evicting pods over their request is no part of a plan"),
    "suppression_tolerance_rate": ("", "evicting suppressed pods is no part of a plan"),
    "namespace_type": ("", _CARD),
    "topology_affinity_restricted": ("", _CARD),
    "cpuset_pool": ("cpuset.cpus", "there is one share pool on a node"),
    "cpu_burst_threshold": ("cpu.max.burst", "bursting by load is a control loop, which a plan is not"),
}
"""Enhancements that are known and not done: the file they would need, and why."""


def _memory(note: Note) -> Said:
    fields = text_object(note.text)
    overrides: Overrides = {}
    unsupported: list[Unsupported] = []
    priority = fields.pop("oom_priority", None)
    if priority is not None:
        adjustment = _oom_score_adj(priority, note)
        if adjustment is not None:
            overrides["oom_score_adj"] = adjustment
            why = f"a mainline kernel kills by size and oom_score_adj: {adjustment} stands for {priority}"
            unsupported.append(Unsupported("memory_enhancement.oom_priority", "oom_score_adj", why))
    return _with_the_rest(overrides, unsupported, "memory_enhancement", fields)


def _oom_score_adj(text: str, note: Note) -> int | None:
    """Katalyst's -100 (killed first) to 299, laid over 1000 to -995; never weaker than without it.

    None: -300, the pod takes no part in it.
    """
    low, high = _OOM_RANGES.get(note.class_name, (-100, 299))
    priority = integer("oom_priority", text, _OOM_IGNORED, _OOM_NEVER)
    if priority == _OOM_IGNORED:
        return None
    if priority == _OOM_NEVER:
        return -1000
    if not low <= priority <= high:
        raise ValueError(
            f"oom_priority: {priority} is outside {low} to {high}, as class {note.class_name} has it"
        )
    adjustment = 1000 - 5 * (priority + 100)
    own = _OF_GUARANTEED if note.qos == GUARANTEED else note.so_far.oom_score_adj
    return adjustment if own is None else min(adjustment, own)


def _cpu(note: Note) -> Said:
    fields = text_object(note.text)
    overrides: Overrides = {}
    unsupported: list[Unsupported] = []
    policy = fields.pop("cpu_burst_policy", "default")
    percent = _percent(fields.pop("cpu_burst_percent", "100"))
    if policy not in _BURST_POLICIES:
        raise ValueError(f"cpu_burst_policy: {policy} is none of {', '.join(_BURST_POLICIES)}")
    if policy == "static" and note.no_burst:
        raise ValueError(f"cpu_burst_policy: static {note.no_burst}")
    if policy in ("static", "closed"):
        overrides["cpu_burst_percent"] = percent if policy == "static" else 0
    if policy == "dynamic":
        why = "bursting by load is a control loop, which a plan is not"
        unsupported.append(Unsupported("cpu_enhancement.cpu_burst_policy", "cpu.max.burst", why))
    return _with_the_rest(overrides, unsupported, "cpu_enhancement", fields)


def _percent(text: str) -> int:
    """0 to 100, rounded down; Katalyst takes a fraction, and more than 100 as 100."""
    try:
        percent = float(text)
    except ValueError:
        raise ValueError(f"cpu_burst_percent: {text!r} is no number") from None
    if not percent >= 0:
        raise ValueError(f"cpu_burst_percent: {text} is less than 0")
    return int(min(percent, 100.0))


def _network(note: Note) -> Said:
    return _with_the_rest(Overrides(), [], "network_enhancement", text_object(note.text))


def _with_the_rest(
    overrides: Overrides, unsupported: list[Unsupported], where: str, fields: Mapping[str, str]
) -> Said:
    named = [Unsupported(f"{where}.{name}", *_NOT_HERE[name]) for name in fields if name in _NOT_HERE]
    unknown = tuple(name for name in fields if name not in _NOT_HERE)
    return Said(overrides, unsupported=(*unsupported, *named), unknown=unknown)


ANNOTATIONS: Final[Mapping[str, Reader]] = {
    keys.KATALYST_MEMORY_ANNOTATION: _memory,
    keys.KATALYST_CPU_ANNOTATION: _cpu,
    keys.KATALYST_NETWORK_ANNOTATION: _network,
}
"""The reader of each annotation."""
