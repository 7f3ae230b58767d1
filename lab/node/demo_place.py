"""Where the demonstration takes place: a real node on this machine, or a systemd node in the test VM."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from lab.cluster import Cluster
from lab.node.demo_pod import Delivered, PodHere, PodThere
from lab.node.demo_wait import answers, until
from lab.node.node import RealNode
from lab.node.rig import real_node
from lab.node.settings import Programs
from lab.node.systemd import files
from lab.node.systemd.node import SystemdNode, systemd_node
from lab.only_one import Report
from lab.runtimes.cgroups import is_v2
from qos.plan.layout import Driver, kubelet_paths

Kill = Callable[[], None]

_MEGABIT = 1_000_000
_LINK_IN_THE_VM = 20 * _MEGABIT
_SCRIPTS = Path(sysconfig.get_path("scripts"))
_UNINSTALL = ("network", "uninstall")


class Place(Protocol):
    """A node, for the demonstration."""

    @property
    def name(self) -> str:
        """Of its Node."""

    @property
    def weight_file(self) -> str:
        """The kernel's name for a cgroup's share of CPU there."""

    @property
    def cpus(self) -> int:
        """How many it has."""

    @property
    def floor(self) -> int:
        """Millicores that can be kept there."""

    @property
    def neighbour(self) -> str:
        """CPU that a neighbour may request, and the floor be kept: nothing is taken from a request."""

    @property
    def address(self) -> str:
        """The node's, as this machine reaches it."""

    @property
    def link(self) -> int:
        """Bits a second that its link carries each way."""

    @property
    def network(self) -> Mapping[str, int]:
        """Bits a second that are a floor's: by egress and, where that can be kept, ingress."""

    @property
    def flood(self) -> str:
        """CPU that the pod may request which floods the link."""

    def agent(self) -> AbstractContextManager[Kill]:
        """The agent runs, and is ready, for the time of the block; what is yielded kills it for good."""

    def at_link(self, method: str, *arguments: object) -> Any:
        """What a function of lab.node.demo_link answers there."""

    def uninstall(self) -> None:
        """`j10ce network uninstall` there. RuntimesError."""

    def pod(self, cluster: Cluster, name: str) -> PodThere:
        """A pod that runs there."""


Placing = Callable[[Cluster], AbstractContextManager[Place]]


@dataclass(frozen=True, slots=True)
class Namespaced:
    """A real node in namespaces of this machine."""

    node: RealNode

    @property
    def name(self) -> str:
        """See Place."""
        return self.node.name

    @property
    def weight_file(self) -> str:
        """See Place."""
        return "cpu.weight" if is_v2(self.node.cgroup.mounts) else "cpu.shares"

    @property
    def cpus(self) -> int:
        """See Place."""
        return os.cpu_count() or 1

    @property
    def floor(self) -> int:
        """See Place."""
        return 700

    @property
    def neighbour(self) -> str:
        """See Place: kubepods has 1333 of two CPUs beside the node's daemons."""
        return "300m"

    @property
    def address(self) -> str:
        """See Place."""
        return self.node.address

    @property
    def link(self) -> int:
        """See Place."""
        return 100 * _MEGABIT

    @property
    def network(self) -> Mapping[str, int]:
        """See Place: 84.6M and 81M can be promised."""
        return {"egress": 60 * _MEGABIT, "ingress": 50 * _MEGABIT}

    @property
    def flood(self) -> str:
        """See Place."""
        return "100m"

    @contextlib.contextmanager
    def agent(self) -> Iterator[Kill]:
        """See Place."""
        node = self.node
        argv: list[str | Path] = [_SCRIPTS / "j10ce-agent", "--kubeconfig", node.kubeconfig]
        argv += ["--node", node.name, "--address", f"0.0.0.0:{files.AGENT_PORT}", "--check-seconds", "3"]
        argv += ["--network-floors", *_shaping(self.link)]
        log = node.folder / "logs" / "agent.log"
        with log.open("w") as output, node.popen(argv, stdout=output, stderr=output) as agent:

            def kill() -> None:
                agent.kill()
                agent.wait(60)

            try:
                url = f"http://{node.address}:{files.AGENT_PORT}/readyz"
                until(lambda: answers(url), "the agent is ready", lambda: log.read_text()[-2000:])
                yield kill
            finally:
                agent.kill()

    def pod(self, cluster: Cluster, name: str) -> PodThere:
        """See Place."""
        uid, container_id, path = _find(cluster, name, Driver.CGROUPFS)
        plans = self.node.outside("/run/j10ce/pods")
        return PodHere(self.node.cgroup, plans, path, uid, container_id)

    def at_link(self, method: str, *arguments: object) -> Any:
        """See Place."""
        return _at_link(self.node, sys.executable, method, arguments)

    def uninstall(self) -> None:
        """See Place."""
        self.node.run([_SCRIPTS / "j10ce", *_UNINSTALL]).succeeded()


@dataclass(frozen=True, slots=True)
class InTheVm:
    """A systemd node."""

    node: SystemdNode

    @property
    def name(self) -> str:
        """See Place."""
        return self.node.name

    @property
    def weight_file(self) -> str:
        """See Place."""
        return "cpu.weight"

    @property
    def cpus(self) -> int:
        """See Place."""
        return 2

    @property
    def floor(self) -> int:
        """See Place: kubepods.slice (weight 79) has 566 beside init.scope and system.slice (100 each)."""
        return 400

    @property
    def neighbour(self) -> str:
        """See Place: all requests have room in the 566."""
        return "50m"

    @property
    def address(self) -> str:
        """See Place."""
        return self.node.address

    @property
    def link(self) -> int:
        """See Place: as much as an emulated processor can fill."""
        return _LINK_IN_THE_VM

    @property
    def network(self) -> Mapping[str, int]:
        """See Place: 16.9M and 16.2M can be promised."""
        return {"egress": 12 * _MEGABIT, "ingress": 10 * _MEGABIT}

    @property
    def flood(self) -> str:
        """See Place."""
        return "10m"

    @contextlib.contextmanager
    def agent(self) -> Iterator[Kill]:
        """See Place; by its unit, as it is shipped."""
        node = self.node
        node.run(["systemctl", "start", "j10ce-agent"]).succeeded()
        url = f"http://{node.address}:{files.AGENT_PORT}/readyz"
        until(lambda: answers(url), "the agent is ready", lambda: node.journal("j10ce-agent"))

        def kill() -> None:
            node.run(["systemctl", "kill", "--signal=KILL", "j10ce-agent"]).succeeded()
            node.run(["systemctl", "stop", "j10ce-agent"]).succeeded()  # or it comes back

        yield kill

    def pod(self, cluster: Cluster, name: str) -> PodThere:
        """See Place."""
        uid, container_id, path = _find(cluster, name, Driver.SYSTEMD)
        return _PodInTheVm(self.node, (path, uid, container_id))

    def at_link(self, method: str, *arguments: object) -> Any:
        """See Place."""
        return _at_link(self.node, "python3", method, arguments)

    def uninstall(self) -> None:
        """See Place."""
        self.node.run([files.SCRIPTS / "j10ce", *_UNINSTALL]).succeeded()


@dataclass(frozen=True, slots=True)
class _PodInTheVm:
    """Asks demo_pod's program in the guest."""

    node: SystemdNode
    names: tuple[str, ...]

    def value(self, level: int, name: str) -> str:
        return str(self._ask("value", level, name))

    def planned(self, container: str) -> Mapping[tuple[int, str], str]:
        return {(level, file): value for level, file, value in self._ask("planned", container)}

    def memory_bytes(self) -> int:
        return int(self._ask("memory_bytes"))

    def delivered(self, seconds: float) -> Delivered:
        return Delivered(**self._ask("delivered", seconds))

    def spread(self) -> None:
        self._ask("spread")

    def repaired_after(self, level: int, name: str, value: str) -> float:
        return float(self._ask("repaired_after", level, name, value))

    def _ask(self, method: str, *arguments: object) -> Any:
        argv: Sequence[str] = ("python3", "-B", "-m", "lab.node.demo_pod", *self.names, method)
        done = self.node.run([*argv, *map(json.dumps, arguments)])
        return json.loads(done.succeeded().stdout)


def namespaced(programs: Programs) -> Placing:
    """On this machine."""

    @contextlib.contextmanager
    def place(cluster: Cluster) -> Iterator[Place]:
        with real_node(cluster, programs=programs) as node:
            yield Namespaced(node)

    return place


def in_the_vm(report: Report) -> Placing:
    """On a systemd node in the test VM."""

    @contextlib.contextmanager
    def place(cluster: Cluster) -> Iterator[Place]:
        with systemd_node(cluster, report, network_floors=_shaping(_LINK_IN_THE_VM, _ARRIVES)) as node:
            yield InTheVm(node)

    return place


_ARRIVES: Final = 85
"""Percent of the wire's speed at which the emulated machine shapes what arrives."""


def _shaping(link: int, arrives: int = 100) -> Sequence[str]:
    """The agent's options for a link of that speed, bits a second.

    arrives: percent of it for what arrives. On a slow wire that is well below it: else the queue at the far
    end, which is everybody's, stays full.
    """
    return ("--shape-ingress", "--link-egress", str(link), "--link-ingress", str(link * arrives // 100))


def _at_link(node: RealNode | SystemdNode, python: str, method: str, arguments: Sequence[object]) -> Any:
    argv = [python, "-P", "-B", "-m", "lab.node.demo_link", method, *map(json.dumps, arguments)]
    return json.loads(node.run(argv).succeeded().stdout)


def _find(cluster: Cluster, name: str, driver: Driver) -> tuple[str, str, str]:
    """Uid of a pod, its container's id and cgroup."""
    found = json.loads(cluster.kubectl("get", "pod", name, "--output=json"))
    uid = found["metadata"]["uid"]
    (status,) = found["status"]["containerStatuses"]
    container_id = status["containerID"].rpartition("/")[2]
    return uid, container_id, kubelet_paths(found["status"]["qosClass"], uid, container_id, driver)[-1]
