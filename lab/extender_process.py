"""The extender as a process beside a lab cluster: started, asked if it is ready, killed, restarted."""

from __future__ import annotations

import signal
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import components, scheduler_config
from lab.cluster import Cluster, LabError, reserve_ports
from lab.ports import LOOPBACK

COMPONENT = "j10ce-extender"
PATIENT: Mapping[str, Any] = {"bindDeadlineSeconds": scheduler_config.PATIENT_SECONDS - 5}
"""Its configuration beside a kube-scheduler as patient as the lab's (lab/scheduler_config.py)."""


@dataclass(frozen=True, slots=True)
class ExtenderProcess:
    """One j10ce-extender of a cluster. Its pid file lies in the cluster's folder: down() ends it too."""

    folder: Path
    verbs_port: int
    port: int
    name: str = COMPONENT

    @property
    def verbs_url(self) -> str:
        """Where kube-scheduler asks it."""
        return f"http://{LOOPBACK}:{self.verbs_port}"

    @property
    def url(self) -> str:
        """Where /healthz, /readyz, /metrics and /holds are."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def log(self) -> Path:
        """Its standard output and error, over all its lives."""
        return components.find(self.folder, self.name).log

    @property
    def pid(self) -> int | None:
        """Pid, or None when it does not run."""
        return components.pid(self.folder, self.name)

    def kill(self, sig: signal.Signals = signal.SIGKILL, *, seconds: float = 30) -> None:
        """Send a signal and wait until it is gone."""
        components.kill(self.folder, self.name, sig, seconds=seconds)

    def restart(self) -> None:
        """Start it again with the same arguments; does nothing while it runs."""
        components.start(self.folder, self.name)

    def wait_ready(self, seconds: float = 60) -> None:
        """Wait until /readyz answers 200. LabError with the log's end when it does not, or when it ended."""
        deadline = time.monotonic() + seconds
        while not _is_ready(self.url):
            if self.pid is None:
                raise LabError(f"{self.name} ended before it was ready: {self.last_words()}")
            if time.monotonic() > deadline:
                raise LabError(f"{self.name} is not ready after {seconds:g} s: {self.last_words()}")
            time.sleep(0.02)

    def last_words(self) -> str:
        """The last lines of the log."""
        try:
            return " | ".join(self.log.read_text(errors="replace").splitlines()[-5:])[-2000:]
        except FileNotFoundError:
            return "no log"


def extender_argv(
    program: Path, kubeconfig: Path, verbs_port: int, port: int, mode: str, extra: Sequence[str]
) -> list[str]:
    """Command line of the extender for a lab cluster."""
    return [
        str(program),
        *("--kubeconfig", str(kubeconfig), "--mode", mode.capitalize()),
        *("--verbs-address", f"{LOOPBACK}:{verbs_port}", "--address", f"{LOOPBACK}:{port}"),
        *extra,
    ]


def start(
    cluster: Cluster,
    *,
    mode: str = "Guard",
    config: Mapping[str, Any] | None = None,
    extra: Sequence[str] = (),
    name: str = COMPONENT,
    kubeconfig: Path | None = None,
) -> ExtenderProcess:
    """Start an extender for a cluster; do not wait. A second one needs a name, and gets ports of its own.

    config: more fields of its configuration file. extra: more arguments. kubeconfig: the cluster's own unless
    given.
    """
    program = Path(sysconfig.get_path("scripts")) / "j10ce-extender"
    if not program.is_file():
        raise LabError(f"{program} is not there: install j10ce-qos into this environment (make venv)")
    if name == COMPONENT:
        verbs_port, port = cluster.ports["extender-verbs"], cluster.ports["extender"]
    else:
        verbs_port, port = reserve_ports(cluster.folder, 2)
    extender = ExtenderProcess(cluster.folder, verbs_port, port, name)
    file = cluster.folder / f"{name}.yaml"
    scheduler_config.write({**PATIENT, **(config or {})}, file)
    arguments = [f"--config={file}", *extra]
    argv = extender_argv(
        program, kubeconfig or cluster.kubeconfig, extender.verbs_port, extender.port, mode, arguments
    )
    components.add(cluster.folder, name, argv)
    components.start(cluster.folder, name)
    return extender


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=2) as answer:  # noqa: S310 - our own http URL
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
