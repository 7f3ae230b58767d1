"""Which CPUs a container runs on: cpuset.cpus.

Only the container's own list is set: a parent's has to contain it (v1 refuses, v2 intersects), and the pod's,
as kubelet leaves it, is all CPUs. Source: the kernel's cgroup-v1/cpusets, cgroup-v2 Cpuset.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from qos.plan.controller import BOTH, CPUS, Case, File, Finding, Keeps, setting
from qos.plan.cpu_list import cpu_count
from qos.promises import PINNED, CpuSet, Unsupported

NAME: Final = "cpuset"
LIST: Final = "cpuset.cpus"
_MOST: Final = 8191  # CONFIG_NR_CPUS is at most 8192
# fmt: off
FILES: Final = (
    File("cpuset.mems", BOTH, NAME, CPUS, 0, 1023, 50, "2.6.24", "memory nodes, not planned", "5.0",
         trial="0", fresh="", nri="mems"),
    File(LIST, BOTH, NAME, CPUS, 0, _MOST, 51, "2.6.24",
         unified_since="5.0", trial="0", fresh="", nri="cpus",
         hints={"EACCES": "not all of them are the parent's",
                "EINVAL": "not all of them are there, or the parent's",
                "EBUSY": "a cgroup below needs them",
                "ENOSPC": "a cgroup with processes needs a CPU"}),
)
# fmt: on
KEEPS: Final = (Keeps("cpus", (LIST,), (LIST,), "the container runs on every CPU"),)


def settings(case: Case) -> Iterator[Finding]:
    """The CPUs given to the container, or those of the share pool where they are known."""
    cpus = case.promises.cpus
    if cpus is CpuSet.SYSTEM:
        why = "the node does not say which CPUs are the system's; it runs where kubelet and runtime put it"
        yield Unsupported("cpus", LIST, why)
        return
    wanted, reason = case.node.shared_cpus, "the CPUs of the share pool"
    if cpus in PINNED:
        if case.node.own_cpus:
            wanted, reason = case.node.own_cpus, f"{cpus.value.lower()} CPUs given to this container"
        else:
            instead = "it runs in the share pool until then, and keeps its quota"
            yield Unsupported("cpus", LIST, f"no CPUs have been given to this container; {instead}")
    if not wanted or (wanted == case.node.shared_cpus and cpu_count(wanted) * 1000 >= case.node.cpus):
        return  # nothing is known, or the pool is the whole node
    if not case.first(KEEPS[0]):
        yield case.lacks(KEEPS[0])
        return
    yield setting(NAME, 0, case.node.levels[-1], LIST, wanted, reason)
