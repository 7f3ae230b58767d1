"""A real node that runs: programs in it, its files and cgroups as they look from outside, its daemons."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import processes
from lab.cluster import Cluster, LabError
from lab.node import inside, remains, settings
from lab.node.inside import Inside
from lab.node.settings import Programs
from lab.runtimes.cgroups import Scratch, hierarchies
from lab.runtimes.programs import Finished, run

SYSTEM = "system"
"""The cgroup of the node's daemons and of what run() and popen() start, beside /kubepods."""
_SECONDS = 300.0
DAEMONS = ("containerd", "kubelet")


@dataclass(frozen=True, slots=True)
class RealNode:
    """A node of a lab cluster with a kubelet and a containerd of its own.

    Inside, all is where it is on any node: /run/containerd/containerd.sock, /var/run/nri/nri.sock,
    /sys/fs/cgroup/... with /kubepods/... below, /var/lib/kubelet, /etc/kubernetes/manifests for static pods.
    The machine's other files are there too (this environment's Python, the cluster's kubeconfig, /tmp), and
    the API server has the same address as outside.
    """

    name: str
    folder: Path
    cluster: Cluster
    outer: int
    """Pid of unshare, whose end is the node's end."""
    first: int
    """Pid of its first process, as the machine sees it."""
    cgroup: Scratch
    """The node's root cgroup in every hierarchy: what is /kubepods inside is cgroup.folder(C, "kubepods")."""
    address: str
    programs: Programs

    @property
    def nri_socket(self) -> Path:
        """NRI's socket, as the node sees it."""
        return settings.NRI_SOCKET

    @property
    def kubeconfig(self) -> Path:
        """An administrator's, right inside as well as outside."""
        return self.cluster.kubeconfig

    def outside(self, path: Path | str) -> Path:
        """Where the machine finds a file of the node: outside("/run/j10ce") can be read and written."""
        return Path(f"/proc/{self.first}/root{path}")

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        stdin: str | None = None,
        environ: Mapping[str, str] | None = None,
        seconds: float = 60.0,
    ) -> Finished:
        """Run a program inside to its end; environ is added to ours. RuntimesError after `seconds`."""
        complete = inside.environment(self._folders, environ)
        return run(self._entering(argv), stdin=stdin, environ=complete, seconds=seconds)

    def popen(
        self, argv: Sequence[str | Path], *, environ: Mapping[str, str] | None = None, **options: Any
    ) -> Inside:
        """Start a program inside; options as subprocess.Popen's. Signals reach it; it ends with the node."""
        options = {"stdin": subprocess.DEVNULL} | options
        return Inside(self._entering(argv), env=inside.environment(self._folders, environ), **options)

    def command(self, argv: Sequence[str | Path]) -> list[str]:
        """The command line, for outside, that runs a program inside; its environment is the caller's."""
        return self._entering(["env", f"PATH={inside.environment(self._folders)['PATH']}", *argv])

    def argv(self, argv: Sequence[str | Path], *, mark: str) -> list[str]:
        """A command line for a daemon inside; the mark lets lab.processes know it as of this folder."""
        path = inside.environment(self._folders)["PATH"]
        words = ["env", f"PATH={path}", f"J10CE_LAB_NODE={self.folder}/{mark}.pid", *argv]
        return self._entering(words)

    def start(self, daemon: str) -> None:
        """Start relay, containerd or kubelet, wait until it serves; it goes on when this process ends.

        kubelet is not waited for: see wait_ready(). LabError.
        """
        record = json.loads((self.folder / remains.RECORD).read_text())
        pid_file = self.folder / f"{daemon}.pid"
        processes.spawn(record["daemons"][daemon], log=self._log(daemon), pid_file=pid_file)
        if daemon == "relay":
            self.wait((self.folder / "relay.ready").exists, daemon)
        elif daemon == "containerd":
            crictl: list[str | Path] = [self.programs.runtime / "crictl", "--timeout=10s", "version"]
            self.wait(lambda: self.run(crictl).code == 0, daemon)

    def wait(self, condition: Callable[[], bool], daemon: str) -> None:
        """Wait for what a daemon does; LabError with its log's end when it ended or takes too long."""
        deadline = time.monotonic() + _SECONDS
        while not condition():
            # Not by its arguments: they are empty for a moment while it becomes another program.
            ended = not processes.start_time(int((self.folder / f"{daemon}.pid").read_text()))
            if ended or time.monotonic() > deadline:
                how = "ended" if ended else f"did not get there within {_SECONDS:g} s"
                raise LabError(f"real node {self.name}: {daemon} {how}: {self.last_words(daemon)}")
            time.sleep(0.02)

    def wait_ready(self) -> None:
        """Wait until the API server says Ready, and the taints that a node begins with are gone. LabError."""
        self.wait(lambda: is_ready(self.cluster, self.name), "kubelet")

    def kill(self, daemon: str, sig: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to containerd or kubelet and wait until it is gone. Containers live on."""
        parent = processes.recorded(self.folder / f"{daemon}.pid", self.folder)
        if parent is not None:
            inside.end(parent, sig)

    def pid(self, daemon: str) -> int | None:
        """Pid of containerd or kubelet as the machine sees it; None: it does not run."""
        parent = processes.recorded(self.folder / f"{daemon}.pid", self.folder)
        return next(inside.children(parent), None) if parent else None

    def log(self, daemon: str) -> str:
        """What a daemon has said."""
        try:
            return self._log(daemon).read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def last_words(self, daemon: str) -> str:
        """The last lines of its log."""
        return " | ".join(self.log(daemon).splitlines()[-5:])[-2000:] or "no log"

    def save(self, daemons: Mapping[str, Sequence[str]]) -> None:
        """Write the record from which load() and start() work."""
        record = {
            "cgroup": self.cgroup.name,
            "outer": self.outer,
            "first": self.first,
            "address": self.address,
            "programs": [str(self.programs.runtime), str(self.programs.kubelet), str(self.programs.runc)],
            "daemons": {name: list(argv) for name, argv in daemons.items()},
        }
        (self.folder / remains.RECORD).write_text(json.dumps(record))

    @property
    def _folders(self) -> list[Path]:
        return [self.programs.runtime, self.programs.kubelet]

    def _entering(self, argv: Sequence[str | Path]) -> list[str]:
        system = Scratch(self.cgroup.path(SYSTEM), self.cgroup.mounts)
        return inside.entering(self.first, system, argv)

    def _log(self, daemon: str) -> Path:
        return self.folder / "logs" / f"{daemon}.log"


def nodes(cluster: Cluster) -> list[RealNode]:
    """The real nodes of a cluster that run, by name."""
    return [
        node for record in remains.records(cluster.folder) if (node := _load(cluster, record)) is not None
    ]


def is_ready(cluster: Cluster, name: str) -> bool:
    """Ready, and without the taints that a node begins with."""
    answer = cluster.kubectl("get", "node", name, "--ignore-not-found", "--output=json", check=False)
    if not answer.strip():
        return False
    found = json.loads(answer)
    conditions = found.get("status", {}).get("conditions", [])
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready and not found["spec"].get("taints")


def _load(cluster: Cluster, record: Path) -> RealNode | None:
    try:
        data = json.loads(record.read_text())
        programs = Programs(*map(Path, data["programs"]))
    except (OSError, ValueError, KeyError):  # being made or removed at this moment
        return None
    cgroup = Scratch(data["cgroup"], hierarchies(Path("/proc/self/mountinfo").read_text()))
    if processes.recorded(record.parent / "first.pid", record.parent) is None:
        return None
    return RealNode(
        record.parent.name,
        record.parent,
        cluster,
        data["outer"],
        data["first"],
        cgroup,
        data["address"],
        programs,
    )
