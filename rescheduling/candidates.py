"""Which pods of a hot node may be moved, and in which order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from qos import keys
from qos.cluster.objects import Pod, Resources
from qos.cluster.running import NEVER, Moved, RunningPod
from qos.cluster.selectors import matches
from rescheduling.classifying import Gauge
from rescheduling.records import Failure
from rescheduling.settings import DAY, LEAST_PERCENT, Settings


def obstacle(running: RunningPod, settings: Settings) -> str:
    """Why this pod is never moved, whatever the load; "" if it may be."""
    pod = running.pod
    return (
        _of_its_kind(pod)
        or _of_its_place(running, settings)
        or _of_the_settings(pod, settings)
        or ("its eviction cost forbids it" if running.eviction_cost >= NEVER else "")
    )


def _of_its_kind(pod: Pod) -> str:
    if pod.mirror or (pod.controller and pod.controller.kind == "Node"):
        return "it is a static pod"
    if pod.controller is None:
        return "nothing would make it anew"
    if pod.controller.kind == "DaemonSet":
        return "it is of a DaemonSet"
    return "it is critical" if pod.priority >= keys.SYSTEM_CRITICAL_PRIORITY else ""


def _of_its_place(running: RunningPod, settings: Settings) -> str:
    if running.floor:
        return "it has a floor"
    if running.local and not settings.local:
        return "it has local storage"
    if running.claims and not settings.claims:
        return "it mounts claims"
    return running.tied


def _of_the_settings(pod: Pod, settings: Settings) -> str:
    if pod.namespace in settings.spared or (settings.namespaces and pod.namespace not in settings.namespaces):
        return "its namespace is left alone"
    if settings.selectors and not any(matches(one, pod.labels) for one in settings.selectors):
        return "no selector of pods matches it"
    return ""


def expected(pods: Iterable[RunningPod]) -> Resources | None:
    """What a node was expected to use after the last migrations to it, as its pods know; None: none came.

    Those of one round are decided one after the other, and arrive in any order: the most counts.
    """
    moved = [one.moved for one in pods if one.moved and one.moved.node]
    last = max((one.decided for one in moved), default=0.0)
    most: dict[str, int] = {}
    for one in moved:
        for name, amount in one.node.items() if one.decided == last else ():
            most[name] = max(most.get(name, 0), amount)
    return most if moved else None


def unrested(
    moved: Moved | None,
    then: Resources | None,
    gauge: Gauge,
    over: Iterable[str],
    settings: Settings,
    now: float,
) -> str:
    """Why a pod that was moved before is not moved again yet, "" if it may be. then: as expected() has it.

    Only if of something that is scarce now its node uses more, by `change`, than it was expected to after the
    last migration to it; and after the cooldown, which doubles with each time.
    """
    if moved is None or then is None:
        return ""
    if now - moved.at < settings.cooldown * 2 ** (moved.times - 1):
        return "it was moved not long ago"
    for name in over:
        grown = gauge.used.get(name, 0) - then.get(name, 0)
        if grown * 100 >= settings.change * gauge.node.allocatable.get(name, 0):
            return ""
    return "it was moved, and the load has not changed since"


def times_of(running: RunningPod, now: float) -> int:
    """The how manieth time in a row it would be; after a day it begins anew."""
    moved = running.moved
    return moved.times + 1 if moved is not None and now - moved.at < DAY else 1


def failed_lately(workload: str, failures: Sequence[Failure], settings: Settings, now: float) -> bool:
    """Whether a migration of this workload failed, and it has to wait; twice as long after each."""
    own = [one.at for one in failures if one.workload == workload and now - one.at < DAY]
    return bool(own) and now - max(own) < settings.cooldown * 2 ** (len(own) - 1)


def helps(usage: Resources, gauge: Gauge, over: Iterable[str]) -> bool:
    """Whether the pod uses enough of what is scarce to be worth it."""
    return any(
        usage.get(name, 0) * 100 >= LEAST_PERCENT * gauge.node.allocatable.get(name, 0) for name in over
    )


def ordered(
    pods: Iterable[RunningPod],
    usage: Mapping[str, Resources],
    gauge: Gauge,
    excess: Mapping[str, float],
) -> list[RunningPod]:
    """The pods in the order in which they leave; excess: by resource, percentage points above high.

    By Koordinator's band, priority, Kubernetes' QoS class, class, deletion cost, eviction cost; then what
    alone brings the node below high, the least of it first, then what brings it furthest; then the youngest.
    """

    def key(running: RunningPod) -> tuple[object, ...]:
        pod = running.pod
        used = usage[pod.key]
        parts = {name: 100.0 * used.get(name, 0) / gauge.node.allocatable[name] for name in excess}
        enough = all(parts[name] >= excess[name] for name in excess)
        size = sum(parts.values())
        return (
            running.band,
            pod.priority,
            running.quality,
            running.rank,
            running.deletion_cost,
            running.eviction_cost,
            not enough,
            size if enough else -size,
            -pod.created,
            pod.key,
        )

    return sorted(pods, key=key)
