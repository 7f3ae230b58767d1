"""Looks at this node for the doctor; changes nothing but cgroups of its own, which are gone afterwards."""

from __future__ import annotations

import errno
import os
import socket
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Final

from adapters.machine import ThisMachine
from agent import network_inspection
from agent.config import AgentConfig
from agent.doctor import Facts
from agent.enforcement.fanotify import Fanotify
from agent.enforcement.originals import Originals
from agent.planner import OriginalValues
from agent.probes import Node, promises
from kernel.refused import Refused
from qos.cluster.node_report import PromiseState
from qos.plan import assumed
from qos.plan.node import V2, Level
from qos.plan.node_share import NodeShare, node_share, scale_of

_SECONDS: Final = 5.0
_KUBEPODS: Final = ("/kubepods.slice", "/kubepods")


def look(config: AgentConfig) -> Facts:
    """The facts. Raises nothing: what cannot be found out is one of them."""
    machine = _machine(config)
    agent, problem = _agent(config.address)
    kubepods = next((path for path in _KUBEPODS if machine and machine.has(path)), "")
    originals = Originals(config.run, kept=False)
    return Facts(
        kernel=os.uname().release,
        root=os.geteuid() == 0,
        cgroup=machine.cgroup if machine else "",
        promises=_promises(machine, config) if machine else (),
        kubepods=kubepods,
        nri_socket=str(config.nri_socket or ""),
        nri=_nri(config.nri_socket),
        watch=_watch(machine),
        psi=Path(config.proc, "pressure").is_dir(),
        agent=agent,
        agent_problem=problem,
        network=network_inspection.look(config.run, config.link) if os.geteuid() == 0 else None,
        share=share_of(machine, kubepods, originals) if machine and kubepods else None,
    )


def share_of(machine: ThisMachine, kubepods: str, originals: OriginalValues) -> NodeShare | None:
    """What all pods of this machine get together; None where it cannot be read.

    originals: what kubelet wrote where an agent has written something else.
    """
    size = machine.size(frozenset())
    try:
        seen = machine.observed(assumed.facts(size, [Level(kubepods, 0), Level(f"{kubepods}/any", 0)]))
        there = seen.levels[0]
        kubelets = int(originals.get((kubepods, scale_of(size.unified).file), there.weight))
    except (Refused, ValueError):
        return None
    return node_share(replace(there, weight=kubelets), size.cpus, size.unified, there.weight)


def _machine(config: AgentConfig) -> ThisMachine | None:
    try:
        machine = ThisMachine(config.proc, config.sys)
    except Refused:
        return None
    return machine if machine.mounts else None


def _promises(machine: ThisMachine, config: AgentConfig) -> tuple[PromiseState, ...]:
    devices = machine.size(frozenset()).devices
    node = Node(machine.mounts, unified=machine.cgroup == V2, devices=devices, proc=config.proc)
    return promises(node)


def _nri(path: Path | None) -> str:
    """Connecting is all that is tried: registering would take the agent's place."""
    if path is None:
        return "not asked for"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
            one.settimeout(_SECONDS)
            one.connect(str(path))
    except OSError as error:
        return os.strerror(error.errno) if error.errno else str(error)
    return ""


def _watch(machine: ThisMachine | None) -> str:
    if machine is None:
        return "there are no cgroups to watch"
    try:
        Fanotify(sorted(set(machine.mounts.values()))).close()
    except OSError as error:
        return os.strerror(error.errno or errno.EPERM)
    return ""


def _agent(address: tuple[str, int]) -> tuple[str, str]:
    """What the agent at this address says of itself, and why it is not ready."""
    host, port = address
    shown = f"[{host}]" if ":" in host else host or "127.0.0.1"
    url = f"http://{shown}:{port}/readyz"
    try:
        with urllib.request.urlopen(url, timeout=_SECONDS):
            return f"it answers at {shown}:{port} and is ready", ""
    except urllib.error.HTTPError as error:
        return f"it answers at {shown}:{port}", error.read().decode(errors="replace").strip()
    except OSError:
        return "", ""
