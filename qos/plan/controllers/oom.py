"""The order of being killed when memory runs out: oom_score_adj of the container's processes. Planned for the
first one, whose children inherit it; the agent gives it to those that are there already.

Source: proc(5); lowering it below what the process was started with needs CAP_SYS_RESOURCE.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from qos.plan.controller import BOTH, INTEGER, OF_PROCESS, Case, File, Finding, Keeps, process_setting
from qos.pods.containers import BEST_EFFORT, GUARANTEED

NAME: Final = "oom"
ADJUSTMENT: Final = "oom_score_adj"
# fmt: off
FILES: Final = (
    File(ADJUSTMENT, BOTH, OF_PROCESS, INTEGER, -1000, 1000, 90, "2.6.36", "in /proc/PID, not in a cgroup",
         trial="", fresh="", nri="",
         hints={"EACCES": "to lower it needs CAP_SYS_RESOURCE"}),
)
# fmt: on
KEEPS: Final = (Keeps(ADJUSTMENT, (ADJUSTMENT,), (ADJUSTMENT,), "the kernel chooses by memory use alone"),)


def kubelets(qos: str, memory_request: int, memory: int) -> int:
    """What kubelet gives the container; bytes. Source: k8s.io/kubernetes pkg/kubelet/qos/policy.go."""
    if qos == GUARANTEED:
        return -997
    if qos == BEST_EFFORT:
        return 1000
    return min(max(1000 - 1000 * memory_request // max(memory, 1), 3), 999)


def settings(case: Case) -> Iterator[Finding]:
    """oom_score_adj, where the class has one; else the kubelet's stays."""
    value = case.promises.oom_score_adj
    if value is not None:
        yield process_setting(
            NAME, ADJUSTMENT, value, f"the class is killed at {value} (-1000 never, 1000 first)"
        )
