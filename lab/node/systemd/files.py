"""The files of a systemd node, as the guest finds them below /: units, settings, keys. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.node import settings
from lab.node.settings import Access, Programs, Settings

BROUGHT = Path("/opt/lab")
"""Where the guest mounts the disk of programs (programs.py)."""
SOURCES = Path("/work")
"""Where the guest has this repository."""
SCRIPTS = Path("/opt/j10ce/bin")
KUBECONFIG = Path("/etc/kubernetes/admin.conf")
PKI = Path("/etc/kubernetes/pki")
AGENT_PORT = 10262
HAND_PORT = 10299
_PROGRAMS = Programs(BROUGHT / "node", BROUGHT / "kubelet", Path("/usr/sbin/runc"))
_PATH = f"PATH={BROUGHT}/node:{BROUGHT}/kubelet:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# As containerd's and kubeadm's packages have them; the times are those of an emulated processor.
_CONTAINERD = f"""\
[Unit]
Description=containerd container runtime
After=network.target dbus.service
[Service]
Environment={_PATH}
ExecStart={BROUGHT}/node/containerd
Type=notify
TimeoutStartSec=600
Delegate=yes
KillMode=process
Restart=always
RestartSec=5
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
OOMScoreAdjust=-999
"""
_KUBELET = f"""\
[Unit]
Description=kubelet: The Kubernetes Node Agent
After=containerd.service lab-relay.service
StartLimitIntervalSec=0
[Service]
Environment={_PATH}
ExecStart={{kubelet}}
Restart=always
RestartSec=10
CPUAccounting=true
MemoryAccounting=true
"""
_PYTHON = f"""\
[Unit]
Description=The lab's {{name}}
[Service]
Environment=PYTHONPATH={SOURCES}:{BROUGHT}/python {_PATH}
ExecStart=/usr/bin/python3 -B -m lab.node.{{module}}
"""
_SCRIPT = f"""\
#!/usr/bin/python3 -B
import sys
sys.path[:0] = ["{SOURCES}", "{BROUGHT}/python"]
from {{module}} import main
sys.exit(main())
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What can be chosen. address: the node's; machine: that of the machine outside, where `port` is relayed
    to the API server. network_floors: the agent's options beside that one, which a drop-in of its unit gives.
    The rest is as in lab.node.settings.
    """

    name: str
    address: str
    machine: str
    port: int
    kubelet: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    network_floors: tuple[str, ...] | None = None

    @property
    def server(self) -> str:
        """URL of the API server, as in the guest and outside: its certificate names this address."""
        return f"https://127.0.0.1:{self.port}"


def access(wanted: Wanted) -> Access:
    """Its administrator's certificate, where the guest has it."""
    return Access(wanted.server, PKI / "ca.crt", PKI / "admin.crt", PKI / "admin.key")


def files(wanted: Wanted) -> dict[str, str]:
    """Path in the guest -> content."""
    node = Settings(
        wanted.name,
        _PROGRAMS,
        access(wanted),
        kubelet={"oomScoreAdj": -999} | dict(wanted.kubelet),
        labels=wanted.labels,
        systemd=True,
    )
    units = Path("/etc/systemd/system")
    kubelet = " ".join(settings.kubelet_argv(node, wanted.address))
    relay = f"relay /run/lab-relay.ready 1 {wanted.port} {wanted.machine}"
    return settings.files(node) | {
        str(units / "containerd.service"): _CONTAINERD,
        str(units / "kubelet.service"): _KUBELET.format(kubelet=kubelet),
        str(units / "lab-relay.service"): _PYTHON.format(name="relay", module=relay),
        str(units / "lab-hand.service"): _PYTHON.format(
            name="hand", module=f"systemd.hand {wanted.address} {HAND_PORT}"
        ),
        str(SCRIPTS / "j10ce-agent"): _SCRIPT.format(module="agent.commands"),
        str(SCRIPTS / "j10ce"): _SCRIPT.format(module="cli.app"),
        str(KUBECONFIG): json.dumps(settings.administrator(access(wanted))),
        "/etc/j10ce/agent.env": f"J10CE_AGENT_OPTIONS={' '.join(agent_options(wanted))}\n",
    }


def agent_options(wanted: Wanted) -> tuple[str, ...]:
    """What the agent's unit is given (manifests/systemd)."""
    return (
        "--kubeconfig",
        str(KUBECONFIG),
        "--node",
        wanted.name,
        "--address",
        f"0.0.0.0:{AGENT_PORT}",
        "--check-seconds",
        "3",
        *(wanted.network_floors or ()),
    )
