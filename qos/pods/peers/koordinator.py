"""Koordinator's labels and annotations on pods, as its users have them.

Source: koordinator-sh/koordinator apis/extension and apis/slo/v1alpha1 (pod.go, nodeslo_types.go), and what
its koordlet does with them (qosmanager, runtimehooks).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from qos import keys
from qos.pods.containers import BEST_EFFORT, BURSTABLE, GUARANTEED
from qos.pods.peers.reading import Fields, Note, Reader, Said, integer, json_object, shown
from qos.promises import CpuQuota, CpuSet, Overrides, Unsupported

CLASS_OF_QOS: Final = {GUARANTEED: "LSR", BURSTABLE: "LS", BEST_EFFORT: "BE"}
"""The class of a pod that names none, by its QoS class in Kubernetes."""

UNLABELLED: Final[Mapping[str, Overrides]] = {"LSR": {"cpus": CpuSet.SHARED, "cpu_quota": CpuQuota.LIMIT}}
"""Koordinator gives CPUs only to pods whose label asks for it, and so takes no quota from the others."""

_ANOLIS: Final = "only the kernels of Anolis and Alibaba Cloud have it"
_LARGEST: Final = 2**63 - 1
_BURST_PERCENT: Final = 1000
"""Koordinator's cpuBurstPercent where none is given."""
_OOM: Final = (-1000, 1000)

_MEMORY_NOT_HERE: Final = {
    # Field: its range, the file it would need, and why not.
    "wmarkRatio": (0, 100, "memory.wmark_ratio", f"{_ANOLIS}; throttlingPercent is the nearest here"),
    "wmarkScalePermill": (1, 1000, "memory.wmark_scale_factor", _ANOLIS),
    "wmarkMinAdj": (-25, 50, "memory.wmark_min_adj", f"{_ANOLIS}; minLimitPercent is the nearest here"),
    "pageCacheLimitEnable": (0, 1, "memory.pagecache_limit.enable", _ANOLIS),
    "pageCacheLimitSync": (0, 1, "memory.pagecache_limit.sync", _ANOLIS),
    "pageCacheLimitSize": (0, _LARGEST, "memory.pagecache_limit.size", _ANOLIS),
    "priorityEnable": (0, 1, "memory.use_priority_oom", f"{_ANOLIS}; oom-score-adj is the nearest here"),
    "priority": (0, 12, "memory.priority", f"{_ANOLIS}; oom-score-adj is the nearest here"),
}
_NO_MEMORY_QOS: Final[Overrides] = {
    "memory_request_min_percent": 0,
    "memory_request_low_percent": 0,
    "memory_high_percent": 0,
    "memory_oom_group": None,
}


def _memory(note: Note) -> Said:
    """memoryQOS: percentages of the request. `policy: none` takes them back, never a floor's promise."""
    fields = Fields(note.text)
    policy = fields.choice("policy", ("default", "none", "auto"))
    overrides = _memory_overrides(fields)
    asked = [name for name, (low, high, *_) in _MEMORY_NOT_HERE.items() if fields.given(name, low, high)]
    if policy == "none":
        return Said(_NO_MEMORY_QOS, unknown=fields.rest())
    if policy == "auto" and not asked:
        asked = ["wmarkRatio", "wmarkScalePermill", "wmarkMinAdj"]  # what auto turns on there
    unsupported = tuple(Unsupported(f"memoryQOS.{name}", *_MEMORY_NOT_HERE[name][2:]) for name in asked)
    return Said(overrides, unsupported=unsupported, unknown=fields.rest())


def _memory_overrides(fields: Fields) -> Overrides:
    overrides: Overrides = {}
    if (percent := fields.integer("minLimitPercent", 0, 100)) is not None:
        overrides["memory_request_min_percent"] = percent
    if (percent := fields.integer("lowLimitPercent", 0, 100)) is not None:
        overrides["memory_request_low_percent"] = percent
    if (percent := fields.integer("throttlingPercent", 0, 100)) is not None:
        overrides["memory_high_percent"] = percent
    if (group := fields.integer("oomKillGroup", 0, 1)) is not None:
        overrides["memory_oom_group"] = group == 1
    return overrides


def _cpu(note: Note) -> Said:
    """cpuQOS: group identity -1 and schedIdle 1 are cpu.idle here. Heeded in class LS only, as there."""
    fields = Fields(note.text)
    enabled = fields.boolean("enable") or False
    identity = fields.integer("groupIdentity", -1, 2)
    idle = fields.integer("schedIdle", 0, 1)
    expeller = fields.boolean("coreExpeller")
    if note.class_name != "LS":
        raise ValueError(f"has no effect in class {note.class_name}: Koordinator heeds it in class LS only")
    unsupported = []
    if enabled and identity is not None:
        nearest = "cpu.idle is set instead" if identity < 0 else "cpu.weight decides instead"
        unsupported.append(Unsupported("cpuQOS.groupIdentity", "cpu.bvt_warp_ns", f"{_ANOLIS}; {nearest}"))
    if enabled and expeller:
        unsupported.append(Unsupported("cpuQOS.coreExpeller", "", "core scheduling is not planned"))
    overrides: Overrides = {"cpu_idle": enabled and (identity == -1 or idle == 1)}
    return Said(overrides, unsupported=tuple(unsupported), unknown=fields.rest())


def _burst(note: Note) -> Said:
    """cpuBurst: cpu.max.burst; raising the quota itself while a container is throttled is a loop, no plan."""
    fields = Fields(note.text)
    policy = fields.choice("policy", ("none", "cpuBurstOnly", "cfsQuotaBurstOnly", "auto"))
    percent = fields.integer("cpuBurstPercent", 0, 10000)
    fields.integer("cfsQuotaBurstPercent", 0, _LARGEST)
    fields.integer("cfsQuotaBurstPeriodSeconds", -1, _LARGEST)
    fields.integer("sharePoolThresholdPercent", 0, 100)
    if not policy:
        raise ValueError("names no policy, and Koordinator's is none: add one, such as auto")
    if policy == "none":
        return Said({"cpu_burst_percent": 0}, unknown=fields.rest())
    if note.no_burst:
        raise ValueError(note.no_burst)
    unsupported = []
    overrides: Overrides = {"cpu_burst_percent": 0}
    if policy in ("cpuBurstOnly", "auto"):
        percent = _BURST_PERCENT if percent is None else percent
        overrides["cpu_burst_percent"] = min(percent, 100)
        if percent > 100:
            why = f"a mainline kernel allows a burst of the quota at most: 100 % instead of {percent} %"
            unsupported.append(Unsupported("cpuBurst.cpuBurstPercent", "cpu.max.burst", why))
    if policy in ("cfsQuotaBurstOnly", "auto"):
        why = "raising the quota while a container is throttled is a control loop, which a plan is not"
        unsupported.append(Unsupported(f"cpuBurst.policy: {policy}", "cpu.max", why))
    return Said(overrides, unsupported=tuple(unsupported), unknown=fields.rest())


def _disk(note: Note) -> Said:
    """blkioQOS: limits of single disks and volumes; a promise here is for all disks of a container."""
    fields = Fields(note.text)
    unsupported = []
    for block in map(Fields, fields.objects("blocks")):
        kind = block.choice("type", ("device", "volumegroup", "podvolume"))
        name = block.text("name")
        if not name or not kind:
            raise ValueError(f"blocks: {name or 'a block'} has no {'type' if name else 'name'}")
        why = (
            f"is for {kind} {name} alone; limits here are for every disk of a container (a profile's ioLimit)"
        )
        unsupported.append(Unsupported(f"blkioQOS.blocks: {name}", "io.max", why))
    return Said({}, unsupported=tuple(unsupported), unknown=fields.rest())


def _oom(note: Note) -> Said:
    """oom-score-adj: for all containers; empty text is as if it were absent."""
    return Said({"oom_score_adj": integer("oom_score_adj", note.text, *_OOM)} if note.text else {})


def _oom_spec(note: Note) -> Said:
    """oom-score-adj-spec: by container."""
    containers: dict[str, int] = {}
    for name, value in (json_object(note.text) if note.text else {}).items():
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not _OOM[0] <= value <= _OOM[1]:
            raise ValueError(f"{name}: {shown(value)} is no integer from {_OOM[0]} to {_OOM[1]}")
        containers[name] = value
    return Said({}, oom_score_adj=containers)


ANNOTATIONS: Final[Mapping[str, Reader]] = {
    keys.KOORDINATOR_MEMORY_ANNOTATION: _memory,
    keys.KOORDINATOR_CPU_ANNOTATION: _cpu,
    keys.KOORDINATOR_BURST_ANNOTATION: _burst,
    keys.KOORDINATOR_DISK_ANNOTATION: _disk,
    keys.KOORDINATOR_OOM_ANNOTATION: _oom,
    keys.KOORDINATOR_OOM_SPEC_ANNOTATION: _oom_spec,
}
"""The reader of each annotation."""
