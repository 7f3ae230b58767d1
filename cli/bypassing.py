"""Which share of the CPU that a cluster's pods request bypasses the scheduler that asks the extender."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cli import installation
from cli.kubectl import Kubectl, Object
from qos import keys
from qos.cluster.requests import effective
from qos.quantity import QuantityError

NEVER: Final = frozenset({"kube-system", "kube-public", "kube-node-lease", installation.NAMESPACE})
"""Namespaces whose label counts for nothing: manifests/overlays/second-scheduler/schedule.yaml says why."""
_LARGEST: Final = 5
_PODS: Final = "/api/v1/pods"
_NOT_ENDED: Final = "status.phase!=Succeeded,status.phase!=Failed"


@dataclass(frozen=True, slots=True)
class Load:
    """Millicores that pods request: of all, and of those that bypass the scheduler, by the scheduler that
    they name. tied: of DaemonSets and static pods, whose node is settled. free: of the others, by namespace,
    those of NEVER aside. labelled: namespaces that have the label.
    """

    total: int
    others: Mapping[str, int]
    tied: int
    free: Mapping[str, int]
    labelled: frozenset[str] = frozenset()

    @property
    def bypassing(self) -> int:
        """Millicores that bypass."""
        return sum(self.others.values()) + self.tied

    @property
    def waiting(self) -> int:
        """Millicores of pods that were there before their namespace had the label."""
        return sum(amount for name, amount in self.free.items() if name in self.labelled)


def found(kubectl: Kubectl, scheduler: str) -> Load | None:
    """Ask the cluster; None where the user may not list all pods. Raises KubectlError."""
    if not kubectl.allowed("list", "pods"):
        return None
    selector = f"{keys.SCHEDULE_LABEL}=true"
    labelled = kubectl.objects("get", "namespaces", "--selector", selector)
    pods = kubectl.paged(_PODS, _NOT_ENDED)
    return load(pods, scheduler, frozenset(item["metadata"]["name"] for item in labelled))


def load(pods: Iterable[Object], scheduler: str, labelled: frozenset[str] = frozenset()) -> Load:
    """Sum up pods that have not ended. scheduler: the one that asks the extender."""
    total = tied = 0
    others: Counter[str] = Counter()
    free: Counter[str] = Counter()
    for pod in pods:
        cpu = _cpu(pod)
        total += cpu
        named = pod["spec"].get("schedulerName", "")
        if named == scheduler and not _is_static(pod):
            continue
        if _is_tied(pod):
            tied += cpu
            continue
        others[named] += cpu
        if (namespace := pod["metadata"]["namespace"]) not in NEVER:
            free[namespace] += cpu
    return Load(total, others, tied, free, labelled)


def _cpu(pod: Object) -> int:
    try:
        return effective(pod["spec"], pod.get("status")).get(keys.CPU, 0)
    except QuantityError:  # the extender counts it as nothing, too
        return 0


def _is_tied(pod: Object) -> bool:
    owners = pod["metadata"].get("ownerReferences", [])
    return _is_static(pod) or any(one["kind"] == "DaemonSet" and one.get("controller") for one in owners)


def _is_static(pod: Mapping[str, Any]) -> bool:
    return keys.MIRROR_ANNOTATION in pod["metadata"].get("annotations", {})


def said(found: Load, scheduler: str) -> str:
    """The finding in words, without what to do about it."""
    if not found.total:
        return "no pod requests CPU yet"
    parts = [f"{_cpus(amount)} by {name}" for name, amount in _largest(found.others)]
    parts += [f"{_cpus(found.tied)} of DaemonSets and static pods"] if found.tied else []
    text = (
        f"{_percent(found.bypassing, found.total)} of the CPU that pods request ({_cpus(found.bypassing)} of "
        f"{_cpus(found.total)}) bypasses {scheduler}"
    )
    return f"{text}: {', '.join(parts)}" if parts else text


def remedy(found: Load, *, can_name: bool) -> str:
    """What brings pods to the second scheduler; "" where nothing does but to make them anew.

    can_name: the API server can name a scheduler by a MutatingAdmissionPolicy.
    """
    label = f"{keys.SCHEDULE_LABEL}=true"
    parts = []
    if found.waiting:
        parts.append(
            f"{_cpus(found.waiting)} of them in namespaces with the label {label}: made anew, they come"
        )
    if there := _namespaces(found):
        parts.append(f"Most are in namespaces {there}")
        parts.append(
            f"kubectl label namespace NAME {label} brings its new pods"
            if can_name
            else f"Each has to name {installation.SCHEDULER} itself: the label {label} does nothing here, as "
            "the API server serves no MutatingAdmissionPolicy"
        )
    return ". ".join(parts)


def _namespaces(found: Load) -> str:
    """The namespaces, without the label, whose pods bypass most, with the amounts; "" for none."""
    rest = {name: amount for name, amount in found.free.items() if name not in found.labelled}
    return ", ".join(f"{name} {_cpus(amount)}" for name, amount in _largest(rest))


def _largest(amounts: Mapping[str, int]) -> list[tuple[str, int]]:
    there = ((name, amount) for name, amount in amounts.items() if amount)
    return heapq.nsmallest(_LARGEST, there, key=lambda one: (-one[1], one[0]))


def _percent(part: int, whole: int) -> str:
    return "less than 1 %" if 0 < part * 100 < whole else f"{part * 100 // whole} %"


def _cpus(millicores: int) -> str:
    return f"{millicores / 1000:.10g}" if millicores < 10_000 else f"{millicores // 1000}"
