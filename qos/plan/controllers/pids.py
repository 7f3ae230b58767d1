"""How many processes a container may have: pids.max. Source: the kernel's cgroup-v1/pids, cgroup-v2 PID."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from qos.plan.controller import BOTH, INTEGER_OR_MAX, Case, File, Finding, Keeps, setting

NAME: Final = "pids"
LIMIT: Final = "pids.max"
MOST: Final = 4_194_304  # PID_MAX_LIMIT of 64-bit kernels
# fmt: off
FILES: Final = (
    File(LIMIT, BOTH, NAME, INTEGER_OR_MAX, 0, MOST, 80, "4.3",
         unified_since="4.5", trial="1000", fresh="", nri=""),
)
# fmt: on
KEEPS: Final = (Keeps("pids_max", (LIMIT,), (LIMIT,), "only the kubelet's limit and kernel.pid_max hold"),)


def settings(case: Case) -> Iterator[Finding]:
    """pids.max of the container, where the class limits it."""
    wanted = case.promises.pids_max
    if wanted is None:
        return
    if not case.first(KEEPS[0]):
        yield case.lacks(KEEPS[0])
        return
    value = "max" if wanted > MOST else wanted
    yield setting(NAME, 0, case.node.levels[-1], LIMIT, value, f"the class allows {wanted} processes")
