"""A node in the test VM: cgroups as kubelet and a runtime make them, floors kept as the hook keeps them."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import replace

from adapters.machine import ThisMachine
from kernel.apply import Outcome, apply
from kernel.target import from_pid
from lab.contention.groups import Group, Tree
from qos.cluster.objects import Resources
from qos.plan import layout
from qos.plan.assumed import Machine, kubernetes_facts
from qos.plan.node import NodeFacts
from qos.plan.planning import plan
from qos.plan.settings import Plan
from qos.pods.containers import BEST_EFFORT, BURSTABLE, GUARANTEED, Container, NodePod
from qos.promises import Promises

HOST_SLICES = ("system.slice", "user.slice")
"""The cgroups that compete with all pods on a node that systemd runs; at the default weight."""


class NotKeptError(Exception):
    """The plan says that a floor cannot be kept, or the kernel refused a setting."""


class Node:
    """A machine of its own: pods are cgroups, and whatever a test starts in them."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._pods: dict[str, NodePod] = {}
        for qos in (BURSTABLE, BEST_EFFORT):
            tree.make(self._tier(qos), cpu_weight=1)
        self._machine = ThisMachine()
        size = self.size()
        tree.make(self._top(), cpu_weight=size.kubelet_weight(size.allocatable_cpus))

    @property
    def kubepods(self) -> Group:
        """The cgroup of all pods."""
        return self._tree.make(self._top())

    def limit(self, memory: int) -> None:
        """Bytes that all pods may have together."""
        self._tree.make(self._top(), memory_max=memory)

    def size(self) -> Machine:
        """CPUs, memory and kernel files of this machine."""
        return self._machine.size(frozenset())

    def start(self, pod: NodePod) -> dict[str, Group]:
        """Make a pod's cgroups with kubelet's and the runtime's weights; its containers', by name."""
        self.admit(pod)
        return {
            one.name: self._tree.make(
                self._path(pod, one.name), cpu_weight=self.size().runtime_weight(one.cpu_request)
            )
            for one in pod.containers
        }

    def admit(self, pod: NodePod) -> None:
        """Make the pod's own cgroup, as kubelet does before the runtime makes its containers."""
        self._pods[pod.uid] = pod
        size = self.size()
        above = self._path(pod, pod.containers[0].name).rpartition("/")[0]
        requested = sum(one.cpu_request for one in pod.containers)
        self._tree.make(above, cpu_weight=size.kubelet_weight(requested))
        burstable = sum(
            one.cpu_request
            for each in self._pods.values()
            if each.qos == BURSTABLE
            for one in each.containers
        )
        self._tree.make(self._tier(BURSTABLE), cpu_weight=size.kubelet_weight(burstable))

    def slices(self) -> list[Group]:
        """What runs beside all pods."""
        return [self._tree.busy(name) for name in HOST_SLICES]

    def facts(self, pod: NodePod, container: str) -> NodeFacts:
        """What the plan has to know, read from this kernel."""
        return self._machine.observed(kubernetes_facts(pod, container, self.size()))

    def keep(
        self,
        pod: NodePod,
        container: str,
        promises: Promises,
        floor: Resources | None,
        *,
        devices: tuple[str, ...] = (),
        own_cpus: str = "",
    ) -> Plan:
        """Plan for a started container and apply it, all or nothing; NotKeptError says what was not.

        The container must have a process. devices: the disks to limit; own_cpus: the CPUs it has been given.
        """
        node = replace(self.facts(pod, container), devices=devices, own_cpus=own_cpus)
        planned = plan(pod, container, promises, floor, node)
        if planned.shortfalls:
            raise NotKeptError(f"{planned.shortfalls}")
        self.apply(pod, container, planned)
        return planned

    def apply(self, pod: NodePod, container: str, planned: Plan) -> Outcome:
        """Apply a plan through the container's first process, as the hook does."""
        first = min(self._tree.make(self._path(pod, container)).pids())
        with from_pid(first, container_id(pod, container)) as target:
            outcome = apply(target, [setting.entry for setting in planned.settings])
        if outcome.refusals:
            raise NotKeptError("; ".join(str(refusal) for refusal in outcome.refusals))
        return outcome

    def _top(self) -> str:
        return layout.kubelet_paths(GUARANTEED, driver=self._tree.driver)[0]

    def _tier(self, qos: str) -> str:
        return layout.kubelet_paths(qos, driver=self._tree.driver)[1]

    def _path(self, pod: NodePod, container: str) -> str:
        return path(pod, container, self._tree.driver)


def container_id(pod: NodePod, container: str) -> str:
    """An id as runtimes give them: 64 hexadecimal digits."""
    return hashlib.sha256(f"{pod.uid}/{container}".encode()).hexdigest()


def path(pod: NodePod, container: str, driver: layout.Driver = layout.Driver.CGROUPFS) -> str:
    """Where kubelet has the container's cgroup."""
    return layout.kubelet_paths(pod.qos, pod.uid, container_id(pod, container), driver)[-1]


def pod(name: str, qos: str, *containers: Container) -> NodePod:
    """A pod with a uid that follows from its name."""
    uid = str(uuid.uuid5(uuid.NAMESPACE_DNS, name))
    return NodePod(uid, "default", name, containers or (Container("app"),), qos)


def best_effort(name: str) -> NodePod:
    """A pod that requests nothing."""
    return pod(name, BEST_EFFORT)


def small(qos: str, count: int) -> list[NodePod]:
    """Pods that request 2m each: kubelet's least weight gives them many times that."""
    return [pod(f"small-{number}", qos, Container("app", cpu_request=2)) for number in range(count)]
