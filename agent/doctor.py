"""What works on this node, what does not, and why, in plain words. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from agent.findings import Finding, Grade
from agent.network_doctor import NetworkFacts, network_findings
from qos.cluster.node_report import PromiseState
from qos.keys import CPU
from qos.plan.node import HYBRID, V1, V2
from qos.plan.node_share import NodeShare
from qos.quantity import render


@dataclass(frozen=True, slots=True)
class Facts:
    """What was found on the node.

    `cgroup`: V1, V2, HYBRID; "" none is mounted. `kubepods`: the cgroup of all pods, "" none. `nri`: why the
    runtime's socket cannot be used, "" if it can; `watch`: why the kernel does not tell who writes, "" if it
    does; `agent`: what it says of itself, "" it does not run; `agent_problem`: why it is not ready. `share`:
    what all pods together get, None where no kubelet runs. `network`: None where it may not be looked at.
    """

    kernel: str
    root: bool
    cgroup: str
    promises: tuple[PromiseState, ...]
    kubepods: str
    nri_socket: str
    nri: str
    watch: str
    psi: bool
    agent: str
    agent_problem: str = ""
    share: NodeShare | None = None
    network: NetworkFacts | None = None


_CGROUPS: Final = {
    V2: "cgroup v2: CPU and memory floors can be kept",
    V1: "cgroup v1: CPU floors can be kept; the kernel protects no memory",
    HYBRID: "cgroup v1 controllers beside an empty v2 tree: CPU floors can be kept, memory is not protected",
}
_FLOORS: Final = {"floor (cpu)": "CPU floors", "memory_low_percent": "memory floors"}
"""Promises that floors are made of, and their names for people."""


def findings(facts: Facts) -> tuple[Finding, ...]:
    """All findings, the most important first."""
    return tuple(_all(facts))


def _all(facts: Facts) -> Iterator[Finding]:
    if not facts.root:
        yield Finding(
            "rights", Grade.BROKEN, "not root: kernel files cannot be tried", "run it as root on the node"
        )
    yield _cgroups(facts)
    for state in sorted(facts.promises, key=lambda one: one.promise not in _FLOORS):
        yield _promise(state)
    yield _pods(facts)
    if facts.share is not None:
        yield _share(facts.share)
    if facts.network is not None:
        yield from network_findings(facts.network)
    yield _nri(facts)
    yield _watching(facts)
    yield _pressure(facts)
    yield _agent(facts)


def _cgroups(facts: Facts) -> Finding:
    if not facts.cgroup:
        return Finding(
            "cgroups",
            Grade.BROKEN,
            "no cgroup file system is mounted here",
            "mount the node's /sys/fs/cgroup into the container, writable",
        )
    grade = Grade.WORKS if facts.cgroup == V2 else Grade.LIMITED
    do = "" if facts.cgroup == V2 else "boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1)"
    return Finding("cgroups", grade, f"kernel {facts.kernel}, {_CGROUPS[facts.cgroup]}", do)


def _promise(state: PromiseState) -> Finding:
    subject = _FLOORS.get(state.promise, state.promise)
    if state.enforced:
        return Finding(subject, Grade.WORKS, f"{state.file} was written and read back")
    grade = Grade.BROKEN if state.promise in _FLOORS else Grade.LIMITED
    return Finding(subject, grade, state.message)


def _share(share: NodeShare) -> Finding:
    reaching, due, beside, reserved = (render(CPU, amount) for amount in share)
    if not share.pods_lack and not share.beside_lacks:
        return Finding("CPU of all pods", Grade.WORKS, f"{due} are allocatable, and {reaching} reach them")
    if not share.pods_lack:
        return Finding(
            "CPU of all pods",
            Grade.LIMITED,
            f"{reserved} are reserved for what runs beside kubepods, and {beside} are left to it when pods "
            "want all they can get",
            "raise CPUWeight of system.slice",
        )
    return Finding(
        "CPU of all pods",
        Grade.LIMITED,
        f"{due} are allocatable, and {reaching} reach them by the weight of kubepods when what runs beside "
        "it wants all it can get; no pod pays for what a floor lacks by that",
        "let the agent weigh kubepods (--node-shares Allocatable), lower CPUWeight of system.slice and "
        "user.slice, or reserve more (kubeReserved, systemReserved)",
    )


def _pods(facts: Facts) -> Finding:
    if facts.kubepods:
        return Finding("kubelet", Grade.WORKS, f"its pods are in {facts.kubepods}")
    return Finding(
        "kubelet", Grade.LIMITED, "there is no cgroup kubepods: no kubelet runs, or cgroupRoot is another"
    )


def _nri(facts: Facts) -> Finding:
    if not facts.nri:
        return Finding("NRI", Grade.WORKS, f"{facts.nri_socket} answers: containers are right from birth")
    return Finding(
        "NRI",
        Grade.LIMITED,
        f"{facts.nri_socket}: {facts.nri}; containers get their settings from the OCI hook, or when they are "
        "seen",
        "enable NRI (containerd: [plugins.'io.containerd.nri.v1.nri'] disable = false; CRI-O: enable_nri = "
        "true), or install the hook: j10ce hook install",
    )


def _watching(facts: Facts) -> Finding:
    if not facts.watch:
        return Finding("drift", Grade.WORKS, "fanotify tells at once who writes a kernel file")
    return Finding(
        "drift",
        Grade.LIMITED,
        f"fanotify: {facts.watch}; inotify tells that a file was written, not by whom",
        "give the agent CAP_SYS_ADMIN, or accept repairs without a name",
    )


def _pressure(facts: Facts) -> Finding:
    if facts.psi and facts.cgroup == V2:
        return Finding("pressure", Grade.WORKS, "PSI is on: who waits for what is measured")
    if facts.psi:
        return Finding(
            "pressure",
            Grade.LIMITED,
            "PSI is on for the node only, because cgroup v1 has none: deficits are judged by the waits of "
            "threads and by pages that were needed again",
            "boot with cgroup v2 for PSI of each pod",
        )
    return Finding(
        "pressure",
        Grade.LIMITED,
        "this kernel has no PSI: deficits are judged by throttling and run delays",
        "boot with psi=1",
    )


def _agent(facts: Facts) -> Finding:
    if not facts.agent:
        return Finding("agent", Grade.LIMITED, "no agent answers here", "start j10ce-agent on this node")
    if facts.agent_problem:
        return Finding("agent", Grade.BROKEN, f"{facts.agent}: {facts.agent_problem}", "see its log")
    return Finding("agent", Grade.WORKS, facts.agent)
