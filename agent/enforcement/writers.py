"""The writer of a kernel file: a process's name as one of a few words, for metrics and fights."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

KUBELET: Final = "kubelet"
RUNTIME: Final = "runtime"
SYSTEMD: Final = "systemd"
AGENT: Final = "agent"
"""Our own, but not this process: another instance, or the hook."""
OTHER: Final = "other"
"""A person, or a program that is none of these."""
WRITERS: Final = (KUBELET, RUNTIME, SYSTEMD, AGENT, OTHER)

ENDED: Final = ""
"""Its process had ended when we looked, or is of a pid namespace that we do not see."""
UNTOLD: Final = "untold"
"""No event has reported this write yet: it may be in the queue, or older than the agent."""
UNSEEN: Final = "unseen"
"""inotify does not say who writes."""

_RUNTIMES: Final = (
    "containerd",
    "runc",
    "crun",
    "crio",
    "conmon",
    "podman",
    "dockerd",
    "docker",
    "kata",
    "runsc",
    "youki",
)
_KUBELETS: Final = ("kubelet", "k3s-server", "k3s-agent", "k3s", "rke2", "k0s", "microk8s", "kubelite")
_OURS: Final = "j10ce"


def writer_of(comm: str, command_line: str = "") -> str:
    """One of WRITERS. comm: /proc/PID/comm, at most 15 characters (proc_pid_comm(5)).

    command_line: asked for where the name is that of an interpreter only.
    """
    if comm.startswith(_OURS) or (comm.startswith("python") and _OURS in command_line):
        return AGENT
    if comm.startswith(_KUBELETS):
        return KUBELET
    if comm.startswith("systemd"):
        return SYSTEMD
    if comm.startswith(_RUNTIMES):
        return RUNTIME
    return OTHER


def seen(pid: int, proc: str = "/proc") -> str:
    """One of WRITERS, or ENDED."""
    folder = Path(proc, str(pid))
    comm = command_line = ""
    if pid > 0:
        with contextlib.suppress(OSError):
            comm = (folder / "comm").read_bytes().decode("ascii", "replace").strip()
        if comm.startswith("python"):
            with contextlib.suppress(OSError):
                command_line = (folder / "cmdline").read_bytes().decode("ascii", "replace")
    return writer_of(comm, command_line) if comm else ENDED
