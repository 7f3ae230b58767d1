"""CPU time: the floor as a weight, idle classes, bursts, and no quota for classes with CPUs of their own.

Source: the kernel's cgroup-v2 CPU and scheduler/sched-bwc, kernel/sched/core.c (ranges, what is refused).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple

from qos.keys import CPU
from qos.plan.controller import BOTH, INTEGER, QUOTA, SIGNED, UNIFIED, Case, File, Finding, Keeps, setting
from qos.plan.cpu_list import cpu_count
from qos.plan.hierarchy import CpuDemand, CpuFloor, keep_cpu, load_of
from qos.plan.node import V1, V2, Level
from qos.plan.pod_weights import Inside, PodWeights
from qos.plan.settings import Shortfall
from qos.plan.weights import LEGACY as LEGACY_SCALE
from qos.plan.weights import UNIFIED as UNIFIED_SCALE
from qos.plan.weights import Scale
from qos.pods.containers import Container, at_once
from qos.promises import PINNED, CpuQuota, CpuSet
from qos.quantity import render

NAME: Final = "cpu"
IDLE: Final = "cpu.idle"
_MICROSECONDS: Final = 2**44 - 1  # max_bw_runtime_us: more is refused
_LEAST: Final = 1000  # a shorter quota or period is refused

# fmt: off
FILES: Final = (
    File(IDLE, BOTH, NAME, INTEGER, 0, 1, 10, "5.15", "while it is 1 the kernel refuses weights",
         trial="1", fresh="0", nri=""),
    File("cpu.max", (V2,), UNIFIED, QUOTA, _LEAST, _MICROSECONDS, 20, "4.15",
         trial="50000 100000", fresh="", nri="cpu_quota",
         hints={"EINVAL": "the quota is less than cpu.max.burst"}),
    File("cpu.cfs_quota_us", (V1,), NAME, SIGNED, -1, _MICROSECONDS, 21, "3.2", "at least 1000, or -1",
         trial="50000", fresh="", nri="cpu_quota",
         hints={"EINVAL": "more than the parent's, less than a child's or than cpu.cfs_burst_us"}),
    File("cpu.max.burst", (V2,), UNIFIED, INTEGER, 0, _MICROSECONDS, 22, "5.14", "at most the quota",
         trial="10000", after=("cpu.max",), fresh="0", nri="",
         hints={"EINVAL": "more than the quota in cpu.max"}),
    File("cpu.cfs_burst_us", (V1,), NAME, INTEGER, 0, _MICROSECONDS, 23, "5.14", "at most the quota",
         trial="10000", after=("cpu.cfs_quota_us",), fresh="0", nri="",
         hints={"EINVAL": "more than cpu.cfs_quota_us"}),
    File("cpu.weight", (V2,), UNIFIED, INTEGER, 1, 10_000, 24, "4.15",
         trial="200", fresh="", nri="cpu_shares",
         hints={"EINVAL": "a cgroup with cpu.idle 1 takes no weight"}),
    File("cpu.shares", (V1,), NAME, INTEGER, 2, 262_144, 25, "2.6.24", "clamped silently outside its range",
         trial="2000", fresh="", nri="cpu_shares",
         hints={"EINVAL": "a cgroup with cpu.idle 1 takes no shares"}),
)
# fmt: on
_FLOOR: Final = Keeps("floor (cpu)", ("cpu.weight",), ("cpu.shares",), "the floor is not kept")
_IDLE: Final = Keeps("cpu_idle", (IDLE,), (IDLE,), "the lowest weight is set, which is not nothing")
_WEIGHT: Final = Keeps("cpu_weight", ("cpu.weight",), ("cpu.shares",), "all containers weigh the same")
_BURST: Final = Keeps(
    "cpu_burst_percent", ("cpu.max.burst",), ("cpu.cfs_burst_us",), "the quota throttles bursts as before"
)
NO_QUOTA: Final = Keeps(
    "cpu_quota", ("cpu.max",), ("cpu.cfs_quota_us",), "nothing throttles here: there are no quotas"
)
KEEPS: Final = (_FLOOR, _IDLE, _WEIGHT, _BURST, NO_QUOTA)


def settings(case: Case) -> Iterator[Finding]:
    """Weights and idle where the container meets others; quota and burst on the container and its pod."""
    idle = case.promises.cpu_idle and bool(case.first(_IDLE))
    yield from _idle(case)
    yield from _weights(case, idle)
    if lifted(case):
        yield from _no_quota(case)
    elif case.promises.cpu_burst_percent:
        yield from _burst(case)


class Contest(NamedTuple):
    """How a pod competes with what is beside it: its weight where no floor needs more (`base`, in the file's
    own scale), whether it is an idle one, and what must reach it, in millicores; 0: it has no floor.
    """

    base: int
    idle: bool = False
    need: int = 0


def contest(case: Case) -> Contest:
    """The contest of the case's pod, which has a cgroup of its own; it is the same for each of its
    containers.
    """
    idle = case.promises.cpu_idle and bool(case.first(_IDLE))
    scale = _scale(case)
    number, level = case.outermost()
    if idle:
        return Contest(level.weight, idle=True)
    was_idle = level.idle and bool(case.first(_IDLE))
    base = _fixed(case, scale, idle).get(number, scale.native(100) if was_idle else level.weight)
    if not (case.first(_FLOOR) and case.floor.get(CPU, 0)):
        return Contest(base, level.idle and not was_idle)
    need = _inside(case, scale, load_of(case.node.levels[-1].rivals, scale)).need
    quota = None if lifted(case) else level.cpu_quota
    return Contest(base, need=need if quota is None else min(need, quota))


def lifted(case: Case) -> bool:
    """True if no quota holds: the class has none, and CPUs of its own where it is one that gets them."""
    without = case.promises.cpu_quota is CpuQuota.NONE
    return without and (case.promises.cpus not in PINNED or bool(case.node.own_cpus))


def _idle(case: Case) -> Iterator[Finding]:
    """cpu.idle where the pod meets other pods: there it counts, and its containers keep their weights."""
    if case.promises.cpu_idle:
        number, level = case.outermost()
        if case.first(_IDLE):
            yield setting(NAME, number, level, IDLE, 1, "the class runs when nobody else wants the CPU")
        else:
            yield case.lacks(_IDLE)
        return
    for number, level in case.owned():
        if level.idle and case.first(_IDLE):
            yield setting(NAME, number, level, IDLE, 0, "the class is not an idle one")


def _weights(case: Case, idle: bool) -> Iterator[Finding]:
    scale = _scale(case)
    floor, pod_floor = case.part(CPU), case.floor.get(CPU, 0)
    fixed = _fixed(case, scale, idle)
    if not (pod_floor or fixed or any(level.idle for _, level in case.owned())):
        return
    missing = "" if case.first(_FLOOR) else f"this kernel has no {scale.file}"
    if idle:
        missing = "a pod of an idle class is promised no CPU"
    elif missing:
        yield case.lacks(_FLOOR if pod_floor else _WEIGHT)
    if missing:
        if floor:
            yield Shortfall(CPU, 0, case.node.levels[-1].path, floor, 0, missing)
        return
    kept = _kept(case, scale, fixed)
    for weighing in kept.weighings:
        yield setting(NAME, weighing.number, weighing.level, scale.file, weighing.weight, weighing.reason)
    if kept.shortfall:
        yield kept.shortfall


def _kept(case: Case, scale: Scale, fixed: dict[int, int]) -> CpuFloor:
    """The weights; inside a pod with a floor those of all its containers are settled first."""
    node = case.node
    own = cpu_count(node.own_cpus) * 1000 if case.promises.cpus in PINNED else 0
    shared = cpu_count(node.shared_cpus) * 1000 if case.promises.cpus is CpuSet.SHARED else 0
    demand = CpuDemand(
        case.part(CPU),
        alone=bool(own) and case.promises.cpus is CpuSet.EXCLUSIVE,
        weights=fixed,
        most=own or None,
        together=node.planned_together,
    )
    *above, last = (_without_quota(level) for level in node.levels) if lifted(case) else node.levels
    if case.in_a_pod and case.floor.get(CPU, 0):
        inside = _inside(case, scale, load_of(last.rivals, scale))
        name = case.container.name
        demand = replace(demand, settled=inside.weights[name], pod_need=inside.need)
        last = replace(last, rivals=(*inside.beside[name], *last.rivals))
    return keep_cpu((*above, last), scale, min(node.cpus, shared or node.cpus), demand)


def _scale(case: Case) -> Scale:
    return UNIFIED_SCALE if case.unified else LEGACY_SCALE


def _inside(case: Case, scale: Scale, others: int) -> PodWeights:
    """The weights of all containers of the pod; others: the load of what is there besides."""
    parts = tuple((name, part.get(CPU, 0)) for name, part in case.parts.items())
    return _settled(at_once(case.pod.containers), parts, scale, others)


@lru_cache(maxsize=4096)
def _settled(
    groups: tuple[tuple[Container, ...], ...], parts: tuple[tuple[str, int], ...], scale: Scale, others: int
) -> PodWeights:
    """Remembered: every container of a pod asks for it in every pass, and so do all pods of a workload."""
    return Inside(groups, dict(parts), scale, others).settled()


def _fixed(case: Case, scale: Scale, idle: bool) -> dict[int, int]:
    """The weight that the class fixes where the pod meets other pods, in the file's own scale."""
    if case.promises.cpu_idle:
        return {} if idle else {case.outermost()[0]: scale.low}
    if case.promises.cpu_weight is None:
        return {}
    return {case.outermost()[0]: scale.native(case.promises.cpu_weight)}


def _without_quota(level: Level) -> Level:
    return replace(level, cpu_quota=None) if level.owned else level


def _no_quota(case: Case) -> Iterator[Finding]:
    file = case.first(NO_QUOTA)
    limited = bool(case.pod.cpu_limit) or any(one.cpu_limit for one in case.pod.containers)
    for number, level in case.owned():
        if file and (limited or level.cpu_quota is not None):
            value = f"max {level.cpu_period}" if case.unified else -1
            yield setting(NAME, number, level, file, value, "the class is not throttled")


def _burst(case: Case) -> Iterator[Finding]:
    """The burst, on the container and on its pod: the quota of either would throttle the other."""
    file = case.first(_BURST)
    percent = min(case.promises.cpu_burst_percent, 100)  # the kernel refuses more than the quota
    quotas = [(number, level, level.cpu_quota) for number, level in case.owned() if level.cpu_quota]
    if quotas and not file:
        yield case.lacks(_BURST)
        return
    for number, level, quota in quotas:
        value = quota * level.cpu_period // 1000 * percent // 100
        reason = f"{percent} % of the quota {render(CPU, quota)} may be saved up"
        yield setting(NAME, number, level, file, value, reason)
