"""Many pods without kubelet: cgroups as kubelet and runc make them, a sleeping process in each container.

For tests and benchmarks of the agent, for which only cgroups and what the API server says exist.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lab.runtimes import cgroups
from lab.runtimes.cgroups import Scratch
from lab.runtimes.programs import RuntimesError
from qos.plan import layout

KUBEPODS: Final = "/kubepods"
_SLEEPERS: Final = 'i=0; while [ $i -lt "$1" ]; do sleep 2147483647 & echo $!; i=$((i+1)); done; wait'


@dataclass(frozen=True, slots=True)
class CrowdPod:
    """A Burstable pod of the crowd. `containers`: name -> id. cpu in millicores, memory in MiB."""

    name: str
    uid: str
    containers: dict[str, str]
    cpu: int = 100
    memory: int = 64
    labels: dict[str, str] = field(default_factory=dict)

    def path(self, container: str = "") -> str:
        """The pod's cgroup, or a container's."""
        own = (self.containers[container],) if container else ()
        return "/".join((KUBEPODS, "burstable", f"pod{self.uid}", *own))

    def manifest(self, node: str, namespace: str = "default") -> dict[str, Any]:
        """The pod as the API server takes it, bound to a node."""
        requests = {"cpu": f"{self.cpu}m", "memory": f"{self.memory}Mi"}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.name, "namespace": namespace, "labels": self.labels},
            "spec": {
                "nodeName": node,
                "containers": [
                    {"name": name, "image": "none", "resources": {"requests": requests}}
                    for name in self.containers
                ],
            },
        }

    def status(self) -> dict[str, Any]:
        """The status as kubelet would report it."""
        return {
            "phase": "Running",
            "containerStatuses": [
                {
                    "name": name,
                    "containerID": f"containerd://{one}",
                    "image": "none",
                    "imageID": "",
                    "ready": True,
                    "restartCount": 0,
                    "state": {"running": {}},
                }
                for name, one in self.containers.items()
            ],
        }


class Crowd:
    """The pods that are there now. `mounts`: of the machine's cgroup hierarchies."""

    def __init__(self, top: Scratch) -> None:
        self._top = top
        self.mounts = top.mounts
        self._burstable = top.make("burstable")
        self.pods: list[CrowdPod] = []
        self._sleepers: list[subprocess.Popen[str]] = []

    def add(
        self,
        count: int,
        containers: int = 2,
        uids: list[str] | None = None,
        names: list[str] | None = None,
        empty: bool = False,
        **fields: Any,
    ) -> list[CrowdPod]:
        """Add this many running pods; uids: those that the API server gave them; names: crowd-N.

        empty: without processes, which takes a tenth of the time.
        """
        found = []
        pids = [] if empty else self._sleep(count * containers)
        for index in range(count):
            uid = uids[index] if uids else str(uuid.uuid4())
            ids = {f"c{number}": uuid.uuid4().hex * 2 for number in range(containers)}
            pod = CrowdPod(names[index] if names else f"crowd-{len(self.pods)}", uid, ids, **fields)
            made = self._burstable.make(f"pod{uid}")
            self._weigh(made, pod.cpu * containers)
            for one in ids.values():
                inside = made.make(one)
                self._weigh(inside, pod.cpu)
                for folder in () if empty else inside.folders():
                    (folder / "cgroup.procs").write_text(str(pids[-1]))
                del pids[-1:]
            self.pods.append(pod)
            found.append(pod)
        return found

    def stranger(self, millicores: int) -> None:
        """A cgroup beside the pods' that is no pod's, with processes and the weight of such a request: floors
        may grow from what it gets, and from no pod's request.
        """
        made = self._burstable.make("stranger")
        self._weigh(made, millicores)
        (pid,) = self._sleep(1)
        for folder in made.folders():
            (folder / "cgroup.procs").write_text(str(pid))

    def remove(self, pod: CrowdPod) -> None:
        """End a pod as kubelet would."""
        self.pods.remove(pod)
        Scratch(pod.path(), self.mounts).remove()

    def file(self, pod: CrowdPod, controller: str, name: str, container: str = "") -> Path:
        """A kernel file of a pod, or of a container of it."""
        mount = self.mounts.get(controller, self.mounts.get(""))
        return Path(f"{mount}{pod.path(container)}/{name}")

    def end(self) -> None:
        """Remove all of it."""
        self._top.remove()
        for one in self._sleepers:
            one.send_signal(signal.SIGKILL)
            one.wait()

    def _weigh(self, group: Scratch, millicores: int) -> None:
        shares = layout.shares(millicores)
        if cgroups.is_v2(group.mounts):
            (group.folder("") / "cpu.weight").write_text(str(layout.kubelet_weight(shares)))
        else:
            (group.folder("cpu") / "cpu.shares").write_text(str(shares))

    def _sleep(self, count: int) -> list[int]:
        started = subprocess.Popen(
            ["sh", "-c", _SLEEPERS, "sh", str(count)], stdout=subprocess.PIPE, text=True
        )
        self._sleepers.append(started)
        assert started.stdout is not None
        with started.stdout as pids:
            return [int(pids.readline()) for _ in range(count)]


@contextlib.contextmanager
def crowd(mounts: Mapping[str, Path] | None = None) -> Iterator[Crowd]:
    """A crowd below /kubepods of this machine, or of what is there instead of the mountpoints.

    RuntimesError where a kubelet has that already.
    """
    mounts = mounts or cgroups.hierarchies(Path("/proc/self/mountinfo").read_text())
    top = Scratch(KUBEPODS, mounts)
    if any(folder.exists() for folder in top.folders()):
        raise RuntimesError(f"{KUBEPODS} exists: a kubelet runs here, or something was left behind")
    top = Scratch("", mounts).make(KUBEPODS.strip("/"))
    here = Crowd(top)
    try:
        yield here
    finally:
        here.end()


def as_list(pods: list[CrowdPod], node: str) -> str:
    """All as one List, for `kubectl apply -f -`."""
    items = [pod.manifest(node) for pod in pods]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
