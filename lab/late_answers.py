"""An API server that one component finds slow: it talks to a relay, which delivers the answers late.

Why a relay and no webhook on bindings: a webhook puts off the effect, for all, while here the effect comes in
time and word of it late, which is what an account has to stand (trap T06); watches are late as well, and it
takes no certificates.
"""

from __future__ import annotations

import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from lab import components
from lab.cluster import Cluster, LabError, reserve_ports
from lab.ports import LOOPBACK

COMPONENT = "late-answers"
_START_SECONDS = 30.0
_LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class LateAnswers:
    """The relay of one component. `kubeconfig`: with which that talks to it; `file`: what the relay reads."""

    kubeconfig: Path
    file: Path

    def delay(self, seconds: float) -> None:
        """What the API server sends from now on arrives this many seconds late; 0: at once."""
        passing = self.file.with_suffix(".new")
        passing.write_text(str(seconds))
        passing.replace(self.file)


def start(cluster: Cluster, name: str = COMPONENT) -> LateAnswers:
    """Start a relay that delays nothing yet, and wait until it listens. LabError."""
    (port,) = reserve_ports(cluster.folder, 1)
    relayed = cluster.folder / f"{name}.kubeconfig"
    relayed.touch(mode=0o600)
    relayed.write_text(cluster.kubeconfig.read_text().replace(cluster.server, f"https://{LOOPBACK}:{port}"))
    late = LateAnswers(relayed, cluster.folder / f"{name}.seconds")
    late.delay(0.0)
    ports = [str(port), str(cluster.ports["kube-apiserver"])]
    argv = [sys.executable, "-P", "-m", "lab.late_relay", *ports, str(late.file)]
    components.add(cluster.folder, name, argv)
    components.start(cluster.folder, name)
    _wait_for(cluster, name, port)
    return late


def _wait_for(cluster: Cluster, name: str, port: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        try:
            socket.create_connection((LOOPBACK, port), timeout=1).close()
        except OSError:
            if components.pid(cluster.folder, name) is None:
                break
            time.sleep(_LOOK_SECONDS)
        else:
            return
    raise LabError(f"{name} does not listen on {LOOPBACK}:{port}: see {cluster.log(name)}")
