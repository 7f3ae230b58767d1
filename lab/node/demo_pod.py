"""A pod on a real node, by its kernel files: what is planned for it, what it receives.

Also a program, for a node whose files are out of our reach: `python3 -m lab.node.demo_pod PATH UID ID METHOD
ARGUMENTS...` prints what the method answers, as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from kernel import cache
from lab.runtimes.cgroups import Scratch, hierarchies, is_v2
from lab.runtimes.programs import RuntimesError

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


class PodThere(Protocol):
    """A running pod of one container. Levels: 0 is the container, 1 its pod."""

    def value(self, level: int, name: str) -> str:
        """What the kernel holds in a file."""

    def planned(self, container: str) -> Mapping[tuple[int, str], str]:
        """What the agent plans, by the file that it keeps for the hook: (level, file) -> value."""

    def memory_bytes(self) -> int:
        """Memory that is charged to the pod now."""

    def delivered(self, seconds: float) -> Delivered:
        """What it receives, measured over that time."""

    def spread(self) -> None:
        """Give each CPU as many of the pod's processes as the others.

        On one CPU the kernel keeps shares exactly; over several it has to move processes for that, and on a
        busy machine it does so seconds late. What is measured is the floor, not that.
        """

    def repaired_after(self, level: int, name: str, value: str) -> float:
        """Write half of a number by hand; milliseconds until the value is back. It may not come back."""


@dataclass(frozen=True, slots=True)
class PodHere:
    """A pod whose node's files are in reach. path: the container's cgroup, from the node's root.

    root: the node's root cgroup; plans: the folder that the agent keeps for the hook.
    """

    root: Scratch
    plans: Path
    path: str
    uid: str
    container_id: str

    def file(self, level: int, name: str) -> Path:
        """A kernel file of the container (level 0) or its pod (level 1)."""
        path = self.path.strip("/") if level == 0 else self.path.strip("/").rpartition("/")[0]
        return self.root.folder(name.partition(".")[0], path) / name

    def value(self, level: int, name: str) -> str:
        """See PodThere."""
        return self.file(level, name).read_text().strip()

    def planned(self, container: str) -> dict[tuple[int, str], str]:
        """See PodThere."""
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        try:
            _, entries = cache.read(str(self.plans), self.uid, container, now)
        except cache.CacheMiss:
            return {}
        return {(level, file): value for level, _, file, value in entries}

    def memory_bytes(self) -> int:
        """See PodThere."""
        return int(self.value(1, "memory.current" if is_v2(self.root.mounts) else "memory.usage_in_bytes"))

    def delivered(self, seconds: float) -> Delivered:
        """See PodThere."""
        controller = "cpu" if is_v2(self.root.mounts) else "cpuacct"
        pod = self.file(1, f"{controller}.stat").parent
        places = [pod, self.root.folder(controller)]
        begun, before = time.monotonic(), [_cpu_seconds(one) for one in places]
        time.sleep(seconds)
        took = time.monotonic() - begun
        got = [(_cpu_seconds(one) - had) / took for one, had in zip(places, before, strict=True)]
        return Delivered(round(got[0] * 1000), round(got[1] * 1000), 1000 * (os.cpu_count() or 1))

    def spread(self) -> None:
        """See PodThere."""
        cpus = sorted(os.sched_getaffinity(0))
        files = sorted(self.file(1, "cpu.stat").parent.rglob("cgroup.procs"))
        pids = [int(pid) for file in files for pid in file.read_text().split()]
        for place, pid in enumerate(pids):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(pid, {cpus[place % len(cpus)]})

    def repaired_after(self, level: int, name: str, value: str) -> float:
        """See PodThere; RuntimesError."""
        file, wrong = self.file(level, name), str(int(value) // 2)
        begun = time.monotonic()
        file.write_text(wrong)
        while file.read_text().strip() != value:
            if time.monotonic() > begun + _SECONDS:
                raise RuntimesError(f"{file} stays {wrong}: nobody puts {value} back within {_SECONDS:g} s")
            time.sleep(_STEP)
        return (time.monotonic() - begun) * 1000


def _cpu_seconds(folder: Path) -> float:
    """CPU time that a cgroup has had."""
    file = folder / "cpuacct.usage"
    if file.exists():
        return int(file.read_text()) / 1e9
    return int((folder / "cpu.stat").read_text().split()[1]) / 1e6


def main() -> None:
    """Call the method of a pod of this machine."""
    path, uid, container_id, method, *arguments = sys.argv[1:]
    root = Scratch("", hierarchies(Path("/proc/self/mountinfo").read_text()))
    pod = PodHere(root, Path("/run/j10ce/pods"), path, uid, container_id)
    answer: Any = getattr(pod, method)(*map(json.loads, arguments))
    if isinstance(answer, Delivered):
        answer = asdict(answer)
    if isinstance(answer, dict) and method == "planned":
        answer = [[level, file, value] for (level, file), value in answer.items()]
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
