"""What the pods of workloads really request.

Their templates do not say what admission adds: sidecars, LimitRange, the overhead of a RuntimeClass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from qos import keys
from qos.cluster.objects import Pod, Resources

WorkloadKey: TypeAlias = tuple[str, str, str]
"""namespace, kind (ScaleTarget.full_kind), name."""
JOB: Final = "Job"
_Amounts: TypeAlias = tuple[tuple[str, int], ...]


class _Entry(NamedTuple):
    workload: WorkloadKey
    template: str
    requests: Resources
    amounts: _Amounts


@dataclass(slots=True)
class _Template:
    """The live pods of one template, counted by what they request; `newest`: the latest creation so far."""

    newest: float = 0.0
    pods: Counter[_Amounts] = field(default_factory=Counter)
    last: Resources = field(default_factory=dict)


class Owners:
    """Live pods by workload and template, counted per change.

    What the newest template's pods requested last is remembered while there is none of them: a workload that
    crashed as a whole needs the same slots. `forget` ends that. Of Jobs nothing is remembered: most are
    watched by nobody, so nobody would say that they are gone.
    """

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._workloads: dict[WorkloadKey, dict[str, _Template]] = {}
        self._changed: set[WorkloadKey] = set()
        self._forgotten: set[WorkloadKey] = set()

    def set_pod(self, pod: Pod) -> None:
        """Take a pod as it is now."""
        if pod.terminal or pod.deleting:
            self.remove_pod(pod.uid)
            return
        origin = _origin(pod)
        before = self._entries.get(pod.uid)
        if before is not None:
            if origin == before[:2] and pod.requests == before.requests:
                return
            self.remove_pod(pod.uid)
        if origin is not None:
            self._add(pod, _Entry(*origin, pod.requests, tuple(sorted(pod.requests.items()))))

    def _add(self, pod: Pod, entry: _Entry) -> None:
        self._entries[pod.uid] = entry
        self._forgotten.discard(entry.workload)
        templates = self._workloads.setdefault(entry.workload, {})
        template = templates.get(entry.template)
        if template is None:
            template = templates[entry.template] = _Template()
        template.newest = max(template.newest, pod.created)
        template.pods[entry.amounts] += 1
        self._changed.add(entry.workload)

    def remove_pod(self, uid: str) -> None:
        """The pod is gone, or soon."""
        entry = self._entries.pop(uid, None)
        if entry is None:
            return
        template = self._workloads[entry.workload][entry.template]
        template.pods[entry.amounts] -= 1
        if not template.pods[entry.amounts]:
            del template.pods[entry.amounts]
        self._changed.add(entry.workload)
        if not template.pods:
            self._tidy(entry.workload)

    def forget(self, workload: WorkloadKey) -> None:
        """The workload is gone: nothing is remembered once its pods are."""
        self._forgotten.add(workload)
        self._tidy(workload)

    def _tidy(self, workload: WorkloadKey) -> None:
        templates = self._workloads.get(workload, {})
        newest = _newest(templates)
        keep = None if workload in self._forgotten or workload[1] == JOB else newest
        for name in [name for name, one in templates.items() if not one.pods and name != keep]:
            del templates[name]
        if not templates:
            self._workloads.pop(workload, None)
            self._forgotten.discard(workload)

    def changed(self, among: AbstractSet[WorkloadKey]) -> set[WorkloadKey]:
        """The workloads among these whose pods changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed & among

    def observed(self, workload: WorkloadKey) -> Resources:
        """Of each resource the most that more than half of the newest template's pods request.

        One odd pod (resized in place, or with an injection of its own) does not make every slot larger.
        """
        templates = self._workloads.get(workload)
        if not templates:
            return {}
        template = templates[_newest(templates)]
        if template.pods:
            template.last = _of_most(template.pods)
        return template.last


def _newest(templates: dict[str, _Template]) -> str:
    return max(templates, key=lambda name: (templates[name].newest, name), default="")


def _of_most(pods: Counter[_Amounts]) -> Resources:
    by_name: dict[str, list[tuple[int, int]]] = {}
    for amounts, count in pods.items():
        for name, amount in amounts:
            by_name.setdefault(name, []).append((amount, count))
    half = pods.total() // 2
    observed = {}
    for name, found in by_name.items():
        asking = 0
        for amount, count in sorted(found, reverse=True):
            asking += count
            if asking > half:
                observed[name] = amount
                break
    return observed


def _origin(pod: Pod) -> tuple[WorkloadKey, str] | None:
    """The pod's workload and template, by its controller and the labels that controllers write."""
    controller = pod.controller
    if controller is None:
        return None
    if controller.kind == "StatefulSet":
        return (pod.namespace, "StatefulSet", controller.name), pod.labels.get(keys.REVISION_LABEL, "")
    if controller.kind == JOB:
        return (pod.namespace, JOB, controller.name), ""
    if controller.kind != "ReplicaSet":
        return None
    template = pod.labels.get(keys.TEMPLATE_LABEL, "")
    name = controller.name.removesuffix(f"-{template}")
    if template and name != controller.name:
        return (pod.namespace, "Deployment", name), template
    return (pod.namespace, "ReplicaSet", controller.name), ""
