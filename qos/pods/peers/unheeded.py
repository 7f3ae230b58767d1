"""What pods carry for other projects and nothing here heeds: labels, annotations, resources; and why not.

Source: koordinator-sh/koordinator apis/extension, kubewharf/katalyst-api pkg/consts, gocrane/crane.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from qos import keys
from qos.pods.containers import NodePod
from qos.pods.peers import bandwidth, katalyst, koordinator
from qos.promises import Unsupported

_LABELS: Final = frozenset({keys.KOORDINATOR_CLASS_LABEL, keys.KATALYST_LEVEL})
_ANNOTATIONS: Final = frozenset(
    {*koordinator.ANNOTATIONS, *katalyst.ANNOTATIONS, *bandwidth.ANNOTATIONS, keys.KATALYST_LEVEL}
)

_CPUS: Final = "CPUs of its own are not given yet"
_CORES: Final = "core scheduling is not planned"
_EVICTION: Final = "nothing here evicts by it"
_PRIORITY: Final = "the pod's PriorityClass decides, and nothing else"
_SCHEDULER: Final = "it is for that project's scheduler, and neither holds nor plans heed it"
_OFFERED: Final = "schedulers count it; no kernel file follows from it, and kubelet sees no request in it"

KNOWN: Final = {
    keys.KOORDINATOR_CORE_SCHED_GROUP_LABEL: _CORES,
    keys.KOORDINATOR_CORE_SCHED_POLICY_LABEL: _CORES,
    keys.KOORDINATOR_PRIORITY_CLASS_LABEL: _PRIORITY,
    keys.KOORDINATOR_PRIORITY_LABEL: _PRIORITY,
    keys.KOORDINATOR_EVICTION_PREFIX: _EVICTION,
    keys.KOORDINATOR_RESOURCE_SPEC_ANNOTATION: _CPUS,
    keys.KOORDINATOR_EXTENDED_RESOURCES_ANNOTATION: "requests in batch resources are not read yet",
    keys.KOORDINATOR_QUOTA_PREFIX: "on the node nothing follows from a quota (docs/quota.md)",
    keys.KOORDINATOR_GANG_PREFIX: "on the node nothing follows from a gang (docs/gangs.md)",
    keys.KOORDINATOR_SCHEDULING_PREFIX: _SCHEDULER,
    keys.BATCH_CPU: _OFFERED,
    keys.BATCH_MEMORY: _OFFERED,
    keys.MID_CPU: _OFFERED,
    keys.MID_MEMORY: _OFFERED,
    keys.KATALYST_RESOURCE_PREFIX: _OFFERED,
    keys.CRANE_CPU_MANAGER_ANNOTATION: _CPUS,
    keys.CRANE_RESOURCE_PREFIX: _OFFERED,
}
"""Keys, and what keys begin with (the longest counts) -> why nothing follows."""

PROJECTS: Final = {
    keys.KOORDINATOR_DOMAIN: "nothing here reads this key of Koordinator's",
    keys.KATALYST_DOMAIN: "nothing here reads this key of Katalyst's",
    keys.CRANE_DOMAIN: "nothing here reads this key of Crane's",
}
"""Domains, with all domains below them -> what is said of their other keys."""


def unheeded(pod: NodePod) -> Iterator[Unsupported]:
    """Each key of a known project on the pod that has no effect here, by kind and name."""
    yield from _named("label", set(pod.labels) - _LABELS)
    yield from _named("annotation", set(pod.annotations) - _ANNOTATIONS)
    yield from _named("resource", pod.resources)


def _named(kind: str, names: Iterable[str]) -> Iterator[Unsupported]:
    for name in sorted(names):
        if why := _why(name):
            yield Unsupported(f"{kind} {name}", "", why)


def _why(name: str) -> str:
    """Why nothing follows from this key; "" for keys of projects that are not known here."""
    if name in KNOWN:
        return KNOWN[name]
    begins = [prefix for prefix in KNOWN if prefix[-1] in "/-" and name.startswith(prefix)]
    if begins:
        return KNOWN[max(begins, key=len)]
    domain = name.rpartition("/")[0]
    return next((why for one, why in PROJECTS.items() if f".{domain}".endswith(f".{one}")), "")
