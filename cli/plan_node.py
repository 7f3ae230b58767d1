"""The node that a plan is made for: an assumed one, one from a Node's YAML, or this machine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from adapters.documents import DocumentsError, Problem, read
from adapters.machine import Promised, ThisMachine
from adapters.pod_files import Origin, plain
from cli import promised
from qos.keys import CPU, MEMORY
from qos.plan import assumed, layout
from qos.plan.assumed import Machine
from qos.plan.controller import OF_PROCESS, all_files
from qos.plan.layout import Driver
from qos.plan.node import V1, V2, NodeFacts
from qos.pods.containers import NodePod, request
from qos.quantity import QuantityError, parse, render

THIS: Final = "this"
"""What people write for the machine the command runs on."""
_ASSUMED_CPUS: Final = 8000
_ASSUMED_ALLOCATABLE: Final = 7910
"""What Amazon's and Google's clusters leave to pods of 8 CPUs."""
_ASSUMED_MEMORY: Final = 32 * 2**30
_NEWEST: Final = (999,)
_FULL = "the rest of it is requested by others, in as many pods as the kubelet runs"


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A node, and where it comes from in words; `here`: the machine itself where it is this one.

    `promised`: pods there that have a floor; counted on this machine only, an assumed node is full anyway.
    """

    machine: Machine
    origin: str
    here: ThisMachine | None = None
    promised: tuple[Promised, ...] = ()

    def facts(self, pod: NodePod, container: str) -> NodeFacts:
        """The facts for a container of a pod. Raises DoesNotFitError, Refused."""
        expected = assumed.kubernetes_facts(pod, container, self.machine)
        others = [one for one in self.promised if not one.uid or one.uid != pod.uid]
        return self.here.observed(expected, others) if self.here else expected

    def with_pods(self, pods: Iterable[tuple[NodePod, int]]) -> PlanNode:
        """The node with pods that are to run there, too, and their floors in millicores."""
        coming = tuple(self._coming(pod, cpu) for pod, cpu in pods if cpu)
        known = {one.uid for one in coming} - {""}
        return replace(self, promised=(*(one for one in self.promised if one.uid not in known), *coming))

    def _coming(self, pod: NodePod, cpu: int) -> Promised:
        machine = self.machine
        *_, parent, _, _ = (
            "/",
            *layout.kubelet_paths(pod.qos, driver=machine.driver, runtime=machine.runtime),
        )
        return Promised(pod.uid, cpu, machine.kubelet_weight(request(pod)[0]), parent)

    @property
    def words(self) -> str:
        """For people."""
        one = self.machine
        return (
            f"{self.origin}: {render(CPU, one.cpus)} CPUs, {one.memory // 2**20}Mi memory, "
            f"cgroup {one.cgroup}, {one.driver.value} driver"
        )


def default_node(cgroup: str, driver: Driver | None) -> PlanNode:
    """A usual node with the newest kernel."""
    machine = Machine(
        _ASSUMED_CPUS,
        _ASSUMED_MEMORY,
        _ASSUMED_ALLOCATABLE,
        _ASSUMED_MEMORY,
        files_of(cgroup, _NEWEST),
        cgroup,
    )
    return PlanNode(_with_driver(machine, driver), f"assumed ({_FULL})")


def this_node(driver: Driver | None, run: Path = promised.RUN) -> PlanNode:
    """This machine; run: the hook's folder there. Raises Refused."""
    here = ThisMachine()
    machine = here.size(files_of(here.cgroup, _NEWEST))
    return PlanNode(_with_driver(machine, driver), "this machine", here, promised.read(run / promised.PODS))


def node_of(file: Path, cgroup: str, driver: Driver | None) -> PlanNode:
    """A Kubernetes Node as `kubectl get node -o yaml` prints it. DocumentsError."""
    expected = "expected a Node, as `kubectl get node NAME -o yaml` prints it"
    documents = read(file, expected)
    if len(documents) != 1 or documents[0].get("kind") != "Node":
        raise DocumentsError([Problem(file, 1, "", expected)])
    origin = Origin(file, documents[0])
    whole = plain(documents[0], origin)
    status = _mapping(whole.get("status"))
    info = _mapping(status.get("nodeInfo"))
    capacity = _amounts(origin, status, "capacity")
    allocatable = capacity | _amounts(origin, status, "allocatable")
    kernel = tuple(int(part) for part in re.findall(r"\d+", str(info.get("kernelVersion", "")))[:2])
    machine = Machine(
        cpus=capacity[CPU],
        memory=capacity[MEMORY],
        allocatable_cpus=allocatable[CPU],
        allocatable_memory=allocatable[MEMORY],
        files=files_of(cgroup, kernel or _NEWEST),
        cgroup=cgroup,
        pods=max(allocatable.get("pods", 110), 1),
        runtime=str(info.get("containerRuntimeVersion", "containerd")).partition(":")[0],
    )
    name = _mapping(whole.get("metadata")).get("name", "")
    return PlanNode(_with_driver(machine, driver), f"node {name} ({_FULL})")


def files_of(cgroup: str, kernel: tuple[int, ...]) -> frozenset[str]:
    """The kernel files that a cgroup has under a mainline kernel of this version."""
    version = V2 if cgroup == V2 else V1
    return frozenset(
        name
        for name, file in all_files().items()
        if file.hierarchy == OF_PROCESS
        or (version in file.versions and _version(file.kernel(version)) <= kernel)
    )


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _with_driver(machine: Machine, driver: Driver | None) -> Machine:
    return replace(machine, driver=driver) if driver else machine


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _amounts(origin: Origin, status: Mapping[str, Any], part: str) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for name, text in _mapping(status.get(part)).items():
        try:
            amounts[name] = parse(name, text)
        except QuantityError as error:
            raise DocumentsError([origin.problem(f"status.{part}.{name}", str(error))]) from None
    for name in (CPU, MEMORY):
        if part == "capacity" and amounts.get(name, 0) <= 0:
            raise DocumentsError([origin.problem(f"status.{part}", f"says no {name} above zero")])
    return amounts
