"""Memory: protection (memory.min, memory.low), throttling (memory.high), and how a container dies.

Source: the kernel's cgroup-v2 Memory, cgroup-v1/memory (soft limits); KEP-2570 (memory QoS) for memory.high.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from qos.keys import MEMORY
from qos.plan.controller import (
    INTEGER,
    INTEGER_OR_MAX,
    KILLS,
    SIGNED,
    THROTTLES,
    UNIFIED,
    Case,
    File,
    Finding,
    Keeps,
    setting,
)
from qos.plan.node import V1, V2, Level
from qos.plan.protection import LOW, MIN, MemoryDemand, MemoryFloor, keep_memory, whole_pages
from qos.plan.settings import Shortfall
from qos.pods.containers import at_once
from qos.promises import Promises
from qos.quantity import render

NAME: Final = "memory"
HIGH: Final = "memory.high"
GROUP_KILL: Final = "memory.oom.group"
SOFT_LIMIT: Final = "memory.soft_limit_in_bytes"
MOST: Final = 2**63 - 4096  # PAGE_COUNTER_MAX pages
_BUSY: Final = "the cgroup uses more, and it cannot be reclaimed now"
_MIB: Final = str(2**20)
_REPAIR: Final = "kubelet's and the runtime's; here for the order in which drift is repaired"
_CURRENT: Final = "memory.current"
_USAGE: Final = "memory.usage_in_bytes"
_SWAP_TOO: Final = "memory.memsw.usage_in_bytes"

# fmt: off
FILES: Final = (
    File("memory.memsw.limit_in_bytes", (V1,), NAME, SIGNED, -1, MOST, 60, "2.6.34", _REPAIR,
         in_use=_SWAP_TOO, trial=_MIB, after=("memory.limit_in_bytes",), fresh="", nri="",
         hints={"EINVAL": "less than memory.limit_in_bytes", "EBUSY": _BUSY}),
    File("memory.limit_in_bytes", (V1,), NAME, SIGNED, -1, MOST, 61, "2.6.25", _REPAIR,
         in_use=_USAGE, trial=_MIB, fresh="", nri="",
         hints={"EINVAL": "more than memory.memsw.limit_in_bytes", "EBUSY": _BUSY}),
    File("memory.max", (V2,), UNIFIED, INTEGER_OR_MAX, 0, MOST, 62, "4.5", _REPAIR,
         in_use=_CURRENT, unreclaimed=KILLS, trial=_MIB, fresh="", nri=""),
    File(HIGH, (V2,), UNIFIED, INTEGER_OR_MAX, 0, MOST, 63, "4.5",
         in_use=_CURRENT, unreclaimed=THROTTLES, trial=_MIB, fresh="max", nri="unified"),
    File(SOFT_LIMIT, (V1,), NAME, SIGNED, -1, MOST, 64, "2.6.34", "not on PREEMPT_RT kernels",
         trial=_MIB, fresh="-1", nri=""),
    File(MIN, (V2,), UNIFIED, INTEGER_OR_MAX, 0, MOST, 65, "4.18",
         trial=_MIB, fresh="0", nri="unified"),
    File(LOW, (V2,), UNIFIED, INTEGER_OR_MAX, 0, MOST, 66, "4.5",
         trial=_MIB, fresh="0", nri="unified"),
    File(GROUP_KILL, (V2,), UNIFIED, INTEGER, 0, 1, 67, "4.19",
         trial="1", fresh="", nri="unified"),
)
# fmt: on
_GIVES_WAY: Final = "pods of idle classes give their memory first, by their soft limit"
_MIN: Final = Keeps("memory_min_percent", (MIN,), (), _GIVES_WAY)
_LOW: Final = Keeps("memory_low_percent", (LOW,), (), _GIVES_WAY)
_HIGH: Final = Keeps("memory_high_percent", (HIGH,), (SOFT_LIMIT,), "nothing throttles it before its limit")
_GROUP_KILL: Final = Keeps(
    "memory_oom_group", (GROUP_KILL,), (), "the kernel kills one process at a time, by oom_score_adj"
)
KEEPS: Final = (_MIN, _LOW, _HIGH, _GROUP_KILL)


def settings(case: Case) -> Iterator[Finding]:
    """Protection along all ancestors; throttling, soft limit and group kill of the container."""
    least, low = _demand(case, MIN), _demand(case, LOW)
    for keeps, demand in ((_MIN, least), (_LOW, low)):
        yield from _protection(case, keeps, demand)
    yield from _shortfall(case, low if low.amount > least.amount else least)
    yield from _throttling(case, max(least.amount, low.amount))
    if case.promises.memory_oom_group is not None:
        yield from _group_kill(case, case.promises.memory_oom_group)


def claims(case: Case) -> tuple[int | None, int | None]:
    """memory.min and memory.low as planned for the case's pod, in bytes; None: not planned.

    The pod has a cgroup of its own, and the last of the case's levels is in it.
    """
    return _claim(case, _MIN), _claim(case, _LOW)


def _claim(case: Case, keeps: Keeps) -> int | None:
    file = case.first(keeps)
    demand = _demand(case, file) if file else None
    if demand is None or not demand.pod_amount:
        return None
    node = case.node
    return keep_memory(node.levels[-2:], node.memory, node.page, demand).protected[0].amount


def _demand(case: Case, file: str) -> MemoryDemand:
    """What the class protects of floors and requests, of the container and of all that run in its pod."""
    of_floor, of_request = _percentages(case.promises, file)
    amounts = {
        one.name: max(
            _percent(of_floor, case.parts[one.name].get(MEMORY, 0)), _percent(of_request, one.memory_request)
        )
        for one in case.pod.containers
    }
    groups = [
        {one.name: whole_pages(amounts[one.name], case.node.page) for one in group}
        for group in at_once(case.pod.containers)
    ]
    name = case.container.name
    most = max(sum(group.values()) for group in groups)
    with_it = max(sum(group.values()) - group[name] for group in groups if name in group)
    return MemoryDemand(file, amounts[name], most, of_floor, with_it)


def _percentages(promises: Promises, file: str) -> tuple[int, int]:
    """Percentages: of the floor, and of the request. memory.low is never below memory.min."""
    least = (promises.memory_min_percent, promises.memory_request_min_percent)
    if file == MIN:
        return least
    low = (promises.memory_low_percent, promises.memory_request_low_percent)
    return (max(least[0], low[0]), max(least[1], low[1]))


def _percent(percent: int, amount: int) -> int:
    return -(-amount * percent // 100)


def _shortfall(case: Case, demand: MemoryDemand) -> Iterator[Finding]:
    """The shortfall of what reaches the container; all of it where the kernel protects no memory."""
    if not demand.amount:
        return
    if case.first(_MIN) or case.first(_LOW):
        shortfall = _kept(case, demand).shortfall
        if shortfall:
            yield shortfall
        return
    level = case.node.levels[-1]
    why = f"this node has neither {MIN} nor {LOW}"
    yield Shortfall(MEMORY, 0, level.path, demand.amount, 0, why)


def _kept(case: Case, demand: MemoryDemand) -> MemoryFloor:
    return keep_memory(case.node.levels, case.node.memory, case.node.page, demand)


def _protection(case: Case, keeps: Keeps, demand: MemoryDemand) -> Iterator[Finding]:
    if not demand.pod_amount:
        return
    file = case.first(keeps)
    if not file:
        yield case.lacks(keeps)
        return
    for number, level, amount, others in _kept(case, demand).protected:
        reason = _reason(number, level, amount, others)
        yield setting(NAME, number, level, file, min(amount, MOST), reason)


def _reason(number: int, level: Level, amount: int, others: int) -> str:
    if number == 0:
        return f"{render(MEMORY, amount)} are protected for the container"
    siblings = f", {render(MEMORY, others)} of them for other pods" if others else ""
    below = "in the pod" if level.owned else "below"
    return f"{render(MEMORY, amount)} are protected {below}{siblings}"


def _throttling(case: Case, protected: int) -> Iterator[Finding]:
    """memory.high; on v1 the soft limit, above which a container gives way first when the node is short.

    On v1 that is also what is left to do for the floors of others: a container of an idle class gets its
    request as soft limit. A container with a floor gets none: the kernel reclaims first from groups above
    their soft limit, and a group without one is never among them.
    """
    percent = case.promises.memory_high_percent
    high = _high(case, percent, protected) if percent else None
    level = case.node.levels[-1]
    if high is not None and not case.first(_HIGH):
        yield case.lacks(_HIGH)
    elif high is not None:
        what = "throttled" if case.unified else "reclaimed first"
        yield setting(NAME, 0, level, case.first(_HIGH), high, f"{what} above {render(MEMORY, high)}")
    elif _gives_way(case) and not protected and SOFT_LIMIT in case.node.files:
        request = case.container.memory_request // case.node.page * case.node.page
        reason = "an idle class gives way in memory, too: above its request it is reclaimed first"
        yield setting(NAME, 0, level, SOFT_LIMIT, request, reason)


def _gives_way(case: Case) -> bool:
    return case.promises.cpu_idle and not case.promises.memory_high_percent and not case.unified


def _high(case: Case, percent: int, protected: int) -> int | None:
    """request + (limit or node memory - request) * percent / 100, whole pages; None: not below the limit."""
    request = case.container.memory_request
    limit = case.container.memory_limit or case.node.memory
    page = case.node.page
    high = max(
        (request + max(limit - request, 0) * percent // 100) // page * page, whole_pages(protected, page)
    )
    return high if 0 < high < limit else None


def _group_kill(case: Case, together: bool) -> Iterator[Finding]:
    if case.first(_GROUP_KILL):
        reason = "all its processes are killed together" if together else "one process is killed at a time"
        yield setting(NAME, 0, case.node.levels[-1], GROUP_KILL, int(together), reason)
    elif together:
        yield case.lacks(_GROUP_KILL)
