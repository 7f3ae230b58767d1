"""A node that cannot be read: all of it that is not the pod's is requested by rivals of its own QoS class.

What runs beside kubepods takes no more than allocatable leaves it. Where it takes more, and other places for
the rivals: qos.plan.placements.

What kubelet and the runtime would write is computed by their own conversions (qos.plan.layout); a plan made
from such facts is a forecast, and whoever shows it says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from qos.keys import CPU, MEMORY
from qos.plan import layout
from qos.plan.node import V2, Level, NodeFacts, Rival
from qos.pods.containers import (
    BEST_EFFORT,
    BURSTABLE,
    GUARANTEED,
    Container,
    NodePod,
    request,
    running_at_once,
)
from qos.quantity import render

HOST_SLICES: Final = 2
"""What runs beside kubepods at default weight: system.slice, user.slice."""
_LEAST_QUOTA: Final = 10
"""Millicores: kubelet's smallest quota is 1 ms of 100 ms (MinQuotaPeriod)."""


class DoesNotFitError(Exception):
    """A pod asks more than the node has: kubelet would refuse it."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A node's size and kernel. cpus in millicores, memory in bytes; `pods`: the most that kubelet runs.

    `allocatable_*`: what its pods may take together. `files`: the kernel files that a cgroup there has.
    """

    cpus: int
    memory: int
    allocatable_cpus: int
    allocatable_memory: int
    files: frozenset[str]
    cgroup: str = V2
    pods: int = 110
    driver: layout.Driver = layout.Driver.SYSTEMD
    runtime: str = "containerd"
    devices: tuple[str, ...] = ("8:0",)

    @property
    def unified(self) -> bool:
        """True where the controllers are in the cgroup v2 tree."""
        return self.cgroup == V2

    def kubelet_weight(self, millicores: int) -> int:
        """What kubelet writes for a request: cpu.weight, or cpu.shares on v1."""
        shares = layout.shares(millicores)
        return layout.kubelet_weight(shares) if self.unified else shares

    def runtime_weight(self, millicores: int) -> int:
        """What the runtime writes for a container's request: cpu.weight, or cpu.shares on v1."""
        shares = layout.shares(millicores)
        return layout.runtime_weight(shares) if self.unified else shares

    @property
    def default_weight(self) -> int:
        """The weight of a cgroup to which nobody gave one."""
        return layout.DEFAULT_WEIGHT if self.unified else layout.DEFAULT_SHARES


def kubernetes_facts(pod: NodePod, container: str, machine: Machine) -> NodeFacts:
    """The facts for a container of a pod under kubelet.

    Raises DoesNotFitError; KeyError where the pod has no such container.
    """
    one = {each.name: each for each in pod.containers}[container]
    asked = request(pod)
    if asked[0] > machine.allocatable_cpus or asked[1] > machine.allocatable_memory:
        raise DoesNotFitError(
            f"pod {pod.namespace}/{pod.name} requests {render(CPU, asked[0])} cpu and "
            f"{render(MEMORY, asked[1])} memory; the node has {render(CPU, machine.allocatable_cpus)} and "
            f"{render(MEMORY, machine.allocatable_memory)}: name a larger one"
        )
    paths = layout.kubelet_paths(
        pod.qos, pod.uid or layout.NO_POD_UID, driver=machine.driver, runtime=machine.runtime
    )
    levels = [
        *shared_levels(pod.qos, machine, paths),
        pod_level(pod, asked[0], machine, paths[-2]),
        container_level(one, machine, paths[-1]),
    ]
    return facts(machine, levels)


def standalone_facts(
    machine: Machine, paths: Iterable[str], beside: int, host: int = HOST_SLICES
) -> NodeFacts:
    """The facts for a container that podman or a plain runtime starts, with `beside` others of its kind.

    Every cgroup on the way has its default weight, and so have `host` others below the root; only the
    container's own is ours to set.
    """
    *above, own = paths
    one = Rival(machine.default_weight)
    levels = [
        Level(path, machine.default_weight, (one,) * (host if depth == 0 else 0), assumed=True)
        for depth, path in enumerate(above)
    ]
    rivals = beside if above else beside + host
    levels.append(Level(own, machine.default_weight, (one,) * rivals, owned=True, assumed=True))
    return facts(machine, levels)


def facts(machine: Machine, levels: Iterable[Level]) -> NodeFacts:
    """A machine's facts with these levels."""
    cpus = max(machine.cpus // 1000, 1)
    return NodeFacts(
        cgroup=machine.cgroup,
        cpus=machine.cpus,
        memory=machine.memory,
        files=machine.files,
        levels=tuple(levels),
        devices=machine.devices,
        shared_cpus=f"0-{cpus - 1}" if cpus > 1 else "0",
    )


def shared_levels(qos: str, machine: Machine, paths: Sequence[str]) -> list[Level]:
    """kubepods, and the class's cgroup where it has one; what rivals request is beside the pod itself."""
    all_pods = machine.allocatable_cpus
    kubepods = Level(
        paths[0],
        machine.kubelet_weight(all_pods),
        memory_max=machine.allocatable_memory or None,
        assumed=True,
    )
    if qos == GUARANTEED:
        return [kubepods]
    if qos == BURSTABLE:
        return [kubepods, Level(paths[1], machine.kubelet_weight(all_pods), assumed=True)]
    # All requests are those of pods beside the BestEffort cgroup.
    return [kubepods, Level(paths[1], machine.kubelet_weight(0), (_pods(machine, all_pods),), assumed=True)]


def pod_level(pod: NodePod, cpu: int, machine: Machine, path: str) -> Level:
    """A pod's cgroup; cpu: what the pod requests, in millicores."""
    rivals = (_pods(machine, machine.allocatable_cpus - cpu if pod.qos != BEST_EFFORT else 0),)
    return Level(
        path,
        machine.kubelet_weight(cpu),
        rivals,
        owned=True,
        assumed=True,
        cpu_quota=_pod_limit(
            pod.cpu_limit, [(one, one.cpu_limit) for one in pod.containers], pod.cpu_overhead, _LEAST_QUOTA
        ),
        memory_max=_pod_limit(
            pod.memory_limit, [(one, one.memory_limit) for one in pod.containers], pod.memory_overhead
        ),
    )


def container_level(container: Container, machine: Machine, path: str) -> Level:
    """A container's cgroup."""
    # No rivals: the pod's other containers the plan knows by itself, and its sandbox sleeps for ever.
    return Level(
        path,
        machine.runtime_weight(container.cpu_request),
        owned=True,
        assumed=True,
        cpu_quota=max(container.cpu_limit, _LEAST_QUOTA) if container.cpu_limit else None,
        memory_max=container.memory_limit or None,
    )


def _pods(machine: Machine, millicores: int) -> Rival:
    """All other pods as one: the most that their weights can come to, each being at least the smallest."""
    others = max(machine.pods - 1, 1)
    shares = millicores * 1024 // 1000
    weight = others + shares * 9999 // 262_142 if machine.unified else others * layout.LEAST_SHARES + shares
    return Rival(weight, cpu_guard=millicores)


def _pod_limit(stated: int, limits: list[tuple[Container, int]], overhead: int, least: int = 0) -> int | None:
    """What kubelet limits the pod to (ResourceConfigForPod); None: unlimited.

    What is stated for the whole pod; else, where every container has a limit, init containers too, the most
    that run at the same time may have.
    """
    if stated:
        return max(stated + overhead, least)
    if not limits or not all(limit for _, limit in limits):
        return None
    return max(running_at_once(limits) + overhead, least)
