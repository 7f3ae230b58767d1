"""The agent's configuration: where things are on this node, and how often it looks."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.network import koordinator
from agent.network.told import NOTHING_TOLD, Told
from qos.network.bands import HOST_PERCENT
from qos.plan.node_share import NodeShares
from qos.pods.decision import NOTHING_CHOSEN, Choices

RUN: Final = Path("/run/j10ce")
"""The folder of the hook's files, of locks and of all that a boot empties."""
STATE: Final = Path("/var/lib/j10ce/agent")
AGENT_LOCK: Final = "agent.lock"
NRI_LOCK: Final = "nri.lock"
"""In the folder above: one agent a node, one NRI plugin."""
NRI_SOCKET: Final = Path("/var/run/nri/nri.sock")


_KEY: Final = re.compile(r"[a-z0-9-]+/[a-z0-9.-]+")


class ConfigError(Exception):
    """The agent cannot start as it was told to; the message names the option, the value and what to do."""


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """node: its name in the API server, "" standalone. standalone: a folder of YAML; None: an API server.

    kubeconfig: None: the service account of the pod it runs in. nri_socket: None: no NRI. address: host and
    port of probes, and of /metrics for the loopback. metrics_address: those of /metrics for who has a token;
    None: nowhere. check_seconds: between two full checks of all files. observe: write nothing that a pod
    could feel. proc, sys: where those are mounted. node_shares: the weight of the cgroup of all pods.
    network_floors: keep floors of the network; shape_ingress: of what pods receive, too. link: what is told
    of the node's network link; link_host_percent: what of it the host keeps. network_files: a folder of
    agent.network.configured.NAMES. koordinator_config: namespace/name of a ConfigMap as
    agent.network.koordinator has it, "": none is followed.
    """

    node: str = ""
    standalone: Path | None = None
    kubeconfig: Path | None = None
    run: Path = RUN
    state: Path = STATE
    nri_socket: Path | None = NRI_SOCKET
    address: tuple[str, int] = ("127.0.0.1", 10262)
    metrics_address: tuple[str, int] | None = None
    check_seconds: float = 60.0
    observe: bool = False
    proc: str = "/proc"
    sys: str = "/sys"
    choices: Choices = NOTHING_CHOSEN
    node_shares: NodeShares = NodeShares.KUBELET
    network_floors: bool = False
    link: Told = NOTHING_TOLD
    link_host_percent: int = HOST_PERCENT
    network_files: Path | None = None
    koordinator_config: str = koordinator.DEFAULT
    shape_ingress: bool = False


def checked(config: AgentConfig) -> AgentConfig:
    """The configuration. ConfigError for what cannot work, before anything is started."""
    if config.standalone is not None:
        if not config.standalone.is_dir():
            raise ConfigError(f"--standalone {config.standalone}: not a folder")
        if config.kubeconfig is not None:
            raise ConfigError("--standalone and --kubeconfig: one of them, a node has one source of pods")
        if config.metrics_address is not None:
            raise ConfigError(
                "--standalone and --metrics-address: one of them: only an API server says who may"
            )
    elif not config.node:
        raise ConfigError("--node: the node's name is needed; in a pod set NODE_NAME from spec.nodeName")
    if config.kubeconfig is not None and not config.kubeconfig.is_file():
        raise ConfigError(f"--kubeconfig {config.kubeconfig}: not a file")
    _check_network(config)
    if config.check_seconds < 1:
        raise ConfigError(f"--check-seconds {config.check_seconds:g}: at least 1")
    return config


def _check_network(config: AgentConfig) -> None:
    if config.shape_ingress and not config.network_floors:
        raise ConfigError("--shape-ingress: needs --network-floors")
    if config.network_files is not None and not config.network_files.is_dir():
        raise ConfigError(f"--network-files {config.network_files}: not a folder")
    if config.koordinator_config and not _KEY.fullmatch(config.koordinator_config):
        raise ConfigError(
            f"--koordinator-config {config.koordinator_config}: expected NAMESPACE/NAME, such as "
            f"{koordinator.DEFAULT}"
        )


def address(text: str, option: str = "--address") -> tuple[str, int]:
    """HOST:PORT, [HOST]:PORT or :PORT (every address: ""). ConfigError names the option."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"{option} {text}: expected HOST:PORT, such as 127.0.0.1:10262")
    if host not in ("", "localhost"):
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise ConfigError(f"{option} {text}: {host} is not an IP address") from None
    return host, int(port)
