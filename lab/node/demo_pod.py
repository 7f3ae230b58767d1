"""A pod on a real node, seen from outside: its kernel files, what is planned for it, what it receives."""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from kernel import cache
from lab.cluster import Cluster, LabError
from lab.node.node import RealNode
from lab.runtimes.cgroups import is_v2

_SECONDS = 60.0
_STEP = 0.002


@dataclass(frozen=True, slots=True)
class Delivered:
    """Millicores that a pod received, of those that its node received, of those that the machine has."""

    pod: int
    node: int
    machine: int

    def is_enough(self, floor: int) -> bool:
        """Whether it is the floor, or the floor's part of what this machine had left for the node."""
        return self.pod >= floor * min(1.0, self.node / self.machine)

    def __str__(self) -> str:
        shared = self.node < 0.95 * self.machine
        return f"{self.pod}m" + (f" of {self.node}m that the node had" if shared else "")


@dataclass(frozen=True, slots=True)
class PodThere:
    """A running pod of one container. `above`: cgroups from /kubepods to the pod, ids included."""

    node: RealNode
    uid: str
    container_id: str
    above: tuple[str, ...]

    @property
    def weight_file(self) -> str:
        """The kernel's name for a cgroup's share of CPU."""
        return weight_file(self.node)

    def file(self, level: int, name: str) -> Path:
        """A kernel file of the container (level 0) or its pod (level 1)."""
        path = (*self.above, self.container_id) if level == 0 else self.above
        return self.node.cgroup.folder(name.partition(".")[0], *path) / name

    def value(self, level: int, name: str) -> str:
        """What the kernel holds there."""
        return self.file(level, name).read_text().strip()

    def planned(self, container: str) -> dict[tuple[int, str], str]:
        """What the agent plans, by the file that it keeps for the hook: (level, file) -> value."""
        folder = str(self.node.outside("/run/j10ce/pods"))
        try:
            _, entries = cache.read(folder, self.uid, container, time.clock_gettime(time.CLOCK_BOOTTIME))
        except cache.CacheMiss:
            return {}
        return {(level, file): value for level, _, file, value in entries}

    def memory_bytes(self) -> int:
        """Memory that is charged to the pod now."""
        v2 = is_v2(self.node.cgroup.mounts)
        return int(self.value(1, "memory.current" if v2 else "memory.usage_in_bytes"))

    def delivered(self, seconds: float) -> Delivered:
        """What it receives, measured over that time."""
        folder = "cpu" if is_v2(self.node.cgroup.mounts) else "cpuacct"
        places = [self.node.cgroup.folder(folder, *self.above), self.node.cgroup.folder(folder)]
        begun, before = time.monotonic(), [_cpu_seconds(one) for one in places]
        time.sleep(seconds)
        took = time.monotonic() - begun
        got = [(_cpu_seconds(one) - had) / took for one, had in zip(places, before, strict=True)]
        return Delivered(round(got[0] * 1000), round(got[1] * 1000), 1000 * (os.cpu_count() or 1))


def _cpu_seconds(folder: Path) -> float:
    """CPU time that a cgroup has had."""
    file = folder / "cpuacct.usage"
    if file.exists():
        return int(file.read_text()) / 1e9
    return int((folder / "cpu.stat").read_text().split()[1]) / 1e6


def weight_file(node: RealNode) -> str:
    """The kernel's name for a cgroup's share of CPU on that node."""
    return "cpu.weight" if is_v2(node.cgroup.mounts) else "cpu.shares"


def find(cluster: Cluster, node: RealNode, name: str) -> PodThere:
    """A pod that runs on the node, by its name."""
    found = json.loads(cluster.kubectl("get", "pod", name, "--output=json"))
    uid = found["metadata"]["uid"]
    (status,) = found["status"]["containerStatuses"]
    quality = found["status"]["qosClass"].lower()
    above = ("kubepods", f"pod{uid}") if quality == "guaranteed" else ("kubepods", quality, f"pod{uid}")
    return PodThere(node, uid, status["containerID"].rpartition("/")[2], above)


def spread(pod: PodThere) -> None:
    """Give each CPU as many of the pod's processes as the others.

    On one CPU the kernel keeps shares exactly; over several it has to move processes for that, and on a busy
    machine it does so seconds late. What is measured is the floor, not that.
    """
    cpus = sorted(os.sched_getaffinity(0))
    files = sorted(pod.file(1, pod.weight_file).parent.rglob("cgroup.procs"))
    pids = [int(pid) for file in files for pid in file.read_text().split()]
    for place, pid in enumerate(pids):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(pid, {cpus[place % len(cpus)]})


def repaired_after(pod: PodThere, level: int, value: str) -> float:
    """Write half the weight by hand; milliseconds until the value is back. LabError when it does not come."""
    file, wrong = pod.file(level, pod.weight_file), str(int(value) // 2)
    begun = time.monotonic()
    file.write_text(wrong)
    while file.read_text().strip() != value:
        if time.monotonic() > begun + _SECONDS:
            raise LabError(f"{file} stays {wrong}: nobody puts {value} back within {_SECONDS:g} s")
        time.sleep(_STEP)
    return (time.monotonic() - begun) * 1000
